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

// The server's own counters; the engine has others. Thread-safe.
class ServerMetrics {
 public:
  ServerMetrics();

  // Counts the end of a call. Ignores methods that are not in the table of roles.
  void CountCall(absl::string_view method, absl::StatusCode code);
  void CountError(absl::StatusCode code);
  void CountUpload(UploadOutcome outcome);
  // Counts a call that follows a request sent by another call.
  void CountAttached() { attached_.fetch_add(1, std::memory_order_relaxed); }
  void SetReloadFailed(bool failed) { reload_failed_ = failed; }
  RequestBalance& balance() { return balance_; }
  // Counts a connection that the relay has closed.
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

// "headers", "memory" or "slow", for the label of annulus_connections_cut_off_total and the log.
const char* CutOffReason(ConnectionRelay::CutOff why);

// The number of log lines that were not written.
MetricFamily LostLogLines(const Logger& log);

// Labels that describe the cache of keys and values. The value is always 1, as in vLLM's metric of
// that name.
MetricFamily CacheConfigInfo(const ServerConfig& config, const EngineLoad& load);

// Adds the label model_name to the metrics that vLLM has too, because dashboards for vLLM select by
// it.
void AddModelName(absl::string_view name, std::vector<MetricFamily>& families);

// The expiry time of each certificate in use. `files` is null without TLS: then there are no
// samples.
MetricFamily CertificateEnds(const TlsFiles* files);

// Memory of the answers that are kept for repeated request_ids.
MetricFamily ReplayMemory(size_t bytes);
// The number of generations and uploads that a tenant's quota did not allow.
MetricFamily QuotaRefusals(const QuotaBook& quotas);

// Replaces the engine's annulus_rank_up if there is no engine: 0 for each rank.
MetricFamily RanksDown(int ranks);

}  // namespace annulus

#endif  // ANNULUS_SERVER_SERVER_METRICS_H_
