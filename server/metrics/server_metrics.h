#ifndef ANNULUS_SERVER_METRICS_SERVER_METRICS_H_
#define ANNULUS_SERVER_METRICS_SERVER_METRICS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/api.h"
#include "server/documents/document_store.h"
#include "server/identity/quota_book.h"
#include "server/identity/tls_files.h"
#include "server/log/log.h"
#include "server/metrics/request_balance.h"
#include "server/net/cut_off.h"
#include "server/traces/span_queue.h"
#include "server/work/lifecycle.h"

namespace annulus::server {

// The server's own metrics; the engine has others. Callers report events with the functions here.
// Only server_metrics.cc knows which metrics count them, and their names and help texts. So to add
// a metric of an event that is reported already, change that file alone. Thread-safe.
class ServerMetrics {
 public:
  ServerMetrics();
  ~ServerMetrics();

  // Counts the end of a call. Ignores methods that are not in the table of roles.
  void CountCall(absl::string_view method, absl::StatusCode code);
  void CountError(absl::StatusCode code);
  // Counts the end of an upload. `document`: what is now stored under the name, null if the upload
  // failed. `created`: false if the same text was already stored there.
  void CountUpload(const StoredDocument* document, bool created);
  // Counts a call that follows a request sent by another call.
  void CountAttached();
  void SetReloadFailed(bool failed);
  RequestBalance& balance() { return balance_; }
  // Counts a connection that the relay has closed.
  void CountCutOff(CutOff why);

  std::vector<MetricFamily> Collect(const Lifecycle& lifecycle,
                                    const DocumentStore& documents) const;

 private:
  struct Counts;

  const std::unique_ptr<Counts> counts_;
  RequestBalance balance_;
};

// For the label of annulus_connections_cut_off_total and the log: "headers", "memory" and so on.
const char* CutOffReason(CutOff why);

// The number of log lines that were not written.
MetricFamily LostLogLines(const Logger& log);

// Labels that describe the cache of keys and values. The value is always 1, as in vLLM's metric of
// that name.
MetricFamily CacheConfigInfo(const ServerConfig& config, const ModelInfo& model,
                             const EngineLoad& load);

// Adds the label model_name to the metrics that vLLM has too, because dashboards for vLLM select by
// it.
void AddModelName(absl::string_view name, std::vector<MetricFamily>& families);

// The expiry time of each certificate in use. `files` is null without TLS: then there are no
// samples.
MetricFamily CertificateEnds(const TlsFiles* files);

// Memory of the answers that are kept for repeated request_ids.
MetricFamily ReplayMemory(size_t bytes);
// Of the folder of --documents; nothing if it is null.
std::vector<MetricFamily> DocumentFolderMetrics(const DocumentFolder* folder);
// Of the spans for --otlp-endpoint; nothing if it is null.
std::vector<MetricFamily> SpanMetrics(const SpanQueue* spans);
// The number of generations and uploads that a tenant's quota did not allow.
MetricFamily QuotaRefusals(const QuotaBook& quotas);

// Replaces the engine's annulus_rank_up if there is no engine: 0 for each rank.
MetricFamily RanksDown(int ranks);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_METRICS_SERVER_METRICS_H_
