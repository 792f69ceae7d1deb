#include "server/cluster/worker_port.h"

#include <grpcpp/generic/async_generic_service.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"
#include "server/base/certificate_names.h"
#include "server/base/pem.h"
#include "server/cluster/control_line.h"
#include "server/grpc/grpc_listener.h"
#include "server/grpc/unknown_methods.h"
#include "server/identity/file_watch.h"
#include "server/identity/peer_book.h"
#include "server/metrics/server_metrics.h"
#include "server/net/socket_user.h"
#include "server/process/periodic_thread.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;

// A ring has at most 64 ranks; the others are for strangers, who are told so.
constexpr int kMostConnections = 256;
constexpr milliseconds kHelloTime{10'000};  // for a worker's first message
constexpr milliseconds kWatchInterval{1'000};
constexpr milliseconds kFarewell{500};  // for the last statuses to leave

// The coordinator's end of a line.
class WorkerCall final : public grpc::ServerGenericBidiReactor, public ControlLine {
 public:
  static std::shared_ptr<WorkerCall> Take(grpc::GenericCallbackServerContext& call,
                                          const Logger& log) {
    std::shared_ptr<WorkerCall> line(new WorkerCall(call, log));
    line->Keep(line);
    return line;
  }

  void OnReadDone(bool ok) override { OnRead(ok); }
  void OnWriteDone(bool ok) override { OnWritten(ok); }
  void OnDone() override {
    if (!call_.IsCancelled()) return OnEnded(absl::OkStatus());
    log_.FromClient(LogLevel::kWarning, "worker_gone", {{"peer", peer_}});
    OnEnded(absl::UnavailableError("the connection to the worker broke"));
  }

 private:
  WorkerCall(grpc::GenericCallbackServerContext& call, const Logger& log)
      : ControlLine(/*held=*/false), call_(call), log_(log), peer_(ClientAddress(call.peer())) {
    call_.AddInitialMetadata(kControlHeader, "1");
    StartSendInitialMetadata();
  }

  void BeginRead(grpc::ByteBuffer& into) override { StartRead(&into); }
  void BeginWrite(const grpc::ByteBuffer& message) override { StartWrite(&message); }
  void SayEnd(const absl::Status& why) override { Finish(WireStatus(why)); }
  void LetGo(const absl::Status& why, bool said) override {
    if (!said) Finish(WireStatus(why));
  }
  void Cancel() override { call_.TryCancel(); }

  static grpc::Status WireStatus(const absl::Status& status) {
    return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
  }

  grpc::GenericCallbackServerContext& call_;
  const Logger& log_;
  const std::string peer_;
};

class WorkerPortImpl final : public WorkerPort {
 public:
  WorkerPortImpl(const ServerConfig& config, const Logger& log, std::shared_ptr<TlsFiles> tls,
                 FileWatch watch)
      : log_(log), tls_(std::move(tls)), watch_(std::move(watch)) {
    port_.address = config.workers_listen;
    port_.option = "--workers-listen";
    port_.max_connections = kMostConnections;
    port_.keepalive_time = config.keepalive_time;
    port_.message_time = kHelloTime;
    port_.received_bytes = kMostControlBytes;
    port_.sent_bytes = kMostControlBytes;
    port_.unfinished_bytes = 4 * kMostControlBytes;
    port_.message_bytes = 4 * kMostControlBytes;
    port_.handshake_failed = [this](const std::string& client, const std::string& why) {
      log_.FromClient(
          LogLevel::kWarning, "worker_refused",
          {{"peer", client},
           {"reason", absl::StrCat("TLS: ", why)},
           {"remedy",
            "give workers a certificate that --tls-client-ca signed (--tls-certificate, "
            "--tls-key)"}});
    };
  }
  ~WorkerPortImpl() override {
    watching_.reset();
    {
      std::lock_guard lock(mutex_);
      stopped_ = absl::UnavailableError("the coordinator stops");
      waiting_.clear();
    }
    if (listener_.server != nullptr) listener_.Shutdown(kFarewell);
    listener_.server.reset();
  }

  absl::Status Listen();
  int port() const override { return number_; }
  void Show(std::function<void(const std::string&)> missing) override;

  void Start(WorkerSourceSink& sink) override;
  void Report(const std::string& missing) override;
  void Stop(const absl::Status& why) override;

  grpc::ServerGenericBidiReactor* Welcome(grpc::GenericCallbackServerContext& call);

 private:
  absl::Status CheckPeer(const std::string& peer) const;
  absl::Status CheckCertificate(const std::string& peer) const;
  void Hand(std::unique_ptr<WorkerLink> link);
  void Watch();

  const Logger& log_;
  const std::shared_ptr<TlsFiles> tls_;  // null without TLS
  const std::shared_ptr<PeerBook> peers_ = std::make_shared<PeerBook>();
  std::mutex shown_mutex_;
  std::function<void(const std::string&)> missing_;  // guarded by shown_mutex_
  GrpcPort port_;
  int number_ = 0;            // set by Listen, during which mutex_ is held
  FileWatch watch_;           // used by the watching thread only
  mutable std::mutex mutex_;  // also held while the sink is called
  WorkerSourceSink* sink_ = nullptr;
  std::vector<std::unique_ptr<WorkerLink>> waiting_;  // for a sink
  std::optional<absl::Status> stopped_;
  GrpcListener listener_;
  std::unique_ptr<PeriodicThread> watching_;
};

class WorkerCalls final : public grpc::CallbackGenericService {
 public:
  explicit WorkerCalls(WorkerPortImpl& port) : port_(port) {}
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* call) override {
    return port_.Welcome(*call);
  }

 private:
  WorkerPortImpl& port_;
};

absl::Status WorkerPortImpl::Listen() {
  std::lock_guard lock(mutex_);  // calls wait until everything is there
  port_.others = std::make_unique<WorkerCalls>(*this);
  ANNULUS_ASSIGN_OR_RETURN(
      listener_,
      StartGrpc(std::move(port_), tls_, peers_, [this](CutOff why, const std::string& client) {
        log_.FromClient(LogLevel::kWarning, "worker_port_cut_off",
                        {{"peer", client}, {"reason", CutOffReason(why)}});
      }));
  number_ = listener_.acceptor->port();
  if (tls_ != nullptr) {
    watching_ = std::make_unique<PeriodicThread>(kWatchInterval, [this] { Watch(); });
  }
  return absl::OkStatus();
}

void WorkerPortImpl::Watch() {
  if (!watch_.Changed()) return;
  const absl::Status status = tls_->Reload();
  if (status.ok()) return log_.Info("worker_port_reloaded");
  log_.Error("worker_port_reload_failed", {{"reason", std::string(status.message())}});
}

absl::Status WorkerPortImpl::CheckCertificate(const std::string& peer) const {
  const std::vector<std::string> theirs = peers_->CertificateNames(peers_->NumberOf(peer));
  const std::shared_ptr<const TlsFiles::Pems> pems = tls_->current();
  const Certificate own = NextCertificate(OpenPem(pems->certificate).get());
  for (const std::string& name : NamesIn(own.get())) {
    if (std::find(theirs.begin(), theirs.end(), name) != theirs.end()) return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      "the certificate has no name in common with the coordinator's; give all processes of a ring "
      "certificates with a common name, which no client has");
}

absl::Status WorkerPortImpl::CheckPeer(const std::string& peer) const {
  if (tls_ != nullptr) return CheckCertificate(peer);
  std::lock_guard lock(mutex_);
  return CheckOwnUser(ClientAddress(peer), static_cast<uint16_t>(number_));
}

grpc::ServerGenericBidiReactor* WorkerPortImpl::Welcome(grpc::GenericCallbackServerContext& call) {
  const std::string peer = call.peer();
  const auto refuse = [&](grpc::StatusCode code, const std::string& why) {
    peers_->CountRefused(peers_->NumberOf(peer), std::chrono::steady_clock::now());
    log_.FromClient(LogLevel::kWarning, "worker_refused",
                    {{"peer", ClientAddress(peer)}, {"reason", why}});
    return RefuseCall({code, why});
  };
  if (call.method() != kControlMethod) {
    return refuse(grpc::StatusCode::UNIMPLEMENTED,
                  "this port of annulusd is for workers (annulusd --join); clients use the address "
                  "of --listen");
  }
  if (const absl::Status allowed = CheckPeer(peer); !allowed.ok()) {
    return refuse(grpc::StatusCode::PERMISSION_DENIED, std::string(allowed.message()));
  }
  peers_->CountKnown(peers_->NumberOf(peer));
  const std::shared_ptr<WorkerCall> line = WorkerCall::Take(call, log_);
  const auto hand = [&] {
    Hand(MakeControlLink(line, ClientAddress(peer)));
    return absl::OkStatus();
  };
  // The worker dials again.
  const absl::Status handed = Guarded(hand, [] { return absl::UnavailableError("no memory"); });
  if (!handed.ok()) line->Close(handed);
  return line.get();
}

void WorkerPortImpl::Hand(std::unique_ptr<WorkerLink> link) {
  std::lock_guard lock(mutex_);
  if (stopped_.has_value()) {
    link->Close(*stopped_);
  } else if (sink_ == nullptr) {
    waiting_.push_back(std::move(link));
  } else {
    sink_->OnWorker(std::move(link));
  }
}

void WorkerPortImpl::Start(WorkerSourceSink& sink) {
  std::lock_guard lock(mutex_);
  sink_ = &sink;
  for (std::unique_ptr<WorkerLink>& link : waiting_) sink_->OnWorker(std::move(link));
  waiting_.clear();
}

void WorkerPortImpl::Show(std::function<void(const std::string&)> missing) {
  std::lock_guard lock(shown_mutex_);
  missing_ = std::move(missing);
}

void WorkerPortImpl::Report(const std::string& missing) {
  std::lock_guard lock(shown_mutex_);
  if (missing_ != nullptr) missing_(missing);
}

void WorkerPortImpl::Stop(const absl::Status& why) {
  std::lock_guard lock(mutex_);
  stopped_ = why;
  sink_ = nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerPort>> WorkerPort::Listen(const ServerConfig& config,
                                                               const Logger& log) {
  FileWatch watch({config.tls_certificate, config.tls_key, config.tls_client_ca});
  ANNULUS_ASSIGN_OR_RETURN(std::shared_ptr<TlsFiles> tls, TlsFiles::Open(config));
  auto port = std::make_unique<WorkerPortImpl>(config, log, std::move(tls), std::move(watch));
  ANNULUS_RETURN_IF_ERROR(port->Listen());
  return port;
}

}  // namespace annulus::server
