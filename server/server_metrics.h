#ifndef ANNULUS_SERVER_SERVER_METRICS_H_
#define ANNULUS_SERVER_SERVER_METRICS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/api.h"
#include "server/connection_relay.h"
#include "server/document_store.h"
#include "server/identity/quota_book.h"
#include "server/lifecycle.h"
#include "server/log.h"
#include "server/request_balance.h"
#include "server/tls_credentials.h"

namespace annulus {

enum class UploadOutcome : uint8_t { kStored, kUnchanged, kFailed };

// What the server counts itself, beside the engine's own metrics. Thread-safe.
class ServerMetrics {
 public:
  ServerMetrics();

  // A call of a method in the table of roles ended.
  void CountCall(absl::string_view method, absl::StatusCode code);
  void CountError(absl::StatusCode code);
  void CountUpload(UploadOutcome outcome);
  // A call follows a request that another one sent.
  void CountAttached() { attached_.fetch_add(1, std::memory_order_relaxed); }
  void SetReloadFailed(bool failed) { reload_failed_ = failed; }
  RequestBalance& balance() { return balance_; }
  // The relay has closed a connection for what it sent, or did not send.
  void CountCutOff(ConnectionRelay::CutOff why);

  std::vector<MetricFamily> Collect(const Lifecycle& lifecycle,
                                    const DocumentStore& documents) const;

 private:
  MetricFamily CutOffs() const;

  static constexpr size_t kCodes = 17;  // gRPC's status codes, 0 to 16
  static size_t IndexOf(absl::StatusCode code);
  MetricFamily Calls() const;

  using Codes = std::array<std::atomic<uint64_t>, kCodes>;
  std::map<std::string, Codes, std::less<>> calls_;  // by method; the keys never change
  Codes errors_{};
  RequestBalance balance_;
  std::array<std::atomic<uint64_t>, 3> uploads_{};
  std::array<std::atomic<uint64_t>, 3> cut_off_{};
  std::atomic<uint64_t> attached_{0};
  std::atomic<bool> reload_failed_{false};
};

// "headers", "memory" or "slow": the label of annulus_connections_cut_off_total, and for the log.
const char* CutOffReason(ConnectionRelay::CutOff why);

// Lines of the log that are missing.
MetricFamily LostLogLines(const Logger& log);

// How keys and values are cached; always 1, as vLLM's metric of that name.
MetricFamily CacheConfigInfo(const ServerConfig& config, const EngineLoad& load);

// Gives the families that vLLM has too the label model_name, which dashboards for it choose by.
void AddModelName(absl::string_view name, std::vector<MetricFamily>& families);

// When each certificate in use ends; no sample without TLS, where `files` is null.
MetricFamily CertificateEnds(const TlsFiles* files);

// What answers take that are kept for calls that ask again.
MetricFamily ReplayMemory(size_t bytes);
// Generations and uploads that a tenant's quota did not allow.
MetricFamily QuotaRefusals(const QuotaBook& quotas);

// The engine's annulus_rank_up where there will be no engine: 0 for each rank.
MetricFamily RanksDown(int ranks);

}  // namespace annulus

#endif  // ANNULUS_SERVER_SERVER_METRICS_H_
