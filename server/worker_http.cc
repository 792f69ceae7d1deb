#include "server/worker_http.h"

#include <atomic>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/status_macros.h"
#include "server/http/operator_http.h"
#include "server/identity/credentials.h"
#include "server/identity/file_watch.h"
#include "server/identity/tls_files.h"
#include "server/metrics/ring_metrics.h"
#include "server/metrics/server_metrics.h"
#include "server/process/periodic_thread.h"
#include "server/process/process_metrics.h"

namespace annulus::server {
namespace {

constexpr std::chrono::milliseconds kWatchInterval{1'000};

class WorkerHttpImpl final : public WorkerHttp {
 public:
  WorkerHttpImpl(const Logger& log, FileWatch watch, std::unique_ptr<Credentials> credentials,
                 std::shared_ptr<TlsFiles> tls)
      : log_(log),
        watch_(std::move(watch)),
        credentials_(std::move(credentials)),
        tls_(std::move(tls)) {}

  absl::Status Listen(const ServerConfig& config) {
    const auto state = [this] {
      return Status().epoch > 0 ? v1::SERVER_STATE_SERVING : v1::SERVER_STATE_LOADING;
    };
    ANNULUS_ASSIGN_OR_RETURN(
        http_, StartOperatorHttp(config, *credentials_, tls_,
                                 {[this] { return Metrics(); }, [] { return true; }, state}));
    watching_ = std::make_unique<PeriodicThread>(kWatchInterval, [this] { Watch(); });
    return absl::OkStatus();
  }

  void Show(const Worker& worker) override { worker_ = &worker; }
  int port() const override { return http_->port(); }

 private:
  WorkerStatus Status() const {
    const Worker* const worker = worker_;
    return worker == nullptr ? WorkerStatus() : worker->Status();
  }

  std::vector<MetricFamily> Metrics() const {
    std::vector<MetricFamily> families = WorkerMetrics(Status());
    families.push_back(LostLogLines(log_));
    families.push_back(CertificateEnds(tls_.get()));
    std::vector<MetricFamily> process = ProcessMetrics();
    std::move(process.begin(), process.end(), std::back_inserter(families));
    return families;
  }

  void Watch() {
    if (!watch_.Changed()) return;
    absl::Status status = credentials_->Reload();
    if (tls_ != nullptr) status.Update(tls_->Reload());
    if (status.ok()) return log_.Info("reloaded");
    log_.Error("reload_failed", {{"reason", std::string(status.message())}});
  }

  const Logger& log_;
  FileWatch watch_;  // used by the watching thread only
  const std::unique_ptr<Credentials> credentials_;
  const std::shared_ptr<TlsFiles> tls_;  // null without TLS
  std::atomic<const Worker*> worker_{nullptr};
  std::unique_ptr<HttpResponder> http_;
  std::unique_ptr<PeriodicThread> watching_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerHttp>> WorkerHttp::Start(const ServerConfig& config,
                                                              const Logger& log) {
  FileWatch watch({config.auth_token_file, config.admin_token_file, config.tokens_file,
                   config.tls_certificate, config.tls_key, config.tls_client_ca});
  ANNULUS_ASSIGN_OR_RETURN(auto credentials, Credentials::Open(config));
  ANNULUS_ASSIGN_OR_RETURN(auto tls, TlsFiles::Open(config));
  auto http = std::make_unique<WorkerHttpImpl>(log, std::move(watch), std::move(credentials),
                                               std::move(tls));
  ANNULUS_RETURN_IF_ERROR(http->Listen(config));
  return http;
}

}  // namespace annulus::server
