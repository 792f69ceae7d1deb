#include "server/server_metrics.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/server_state.h"
#include "server/version.h"

namespace annulus {
namespace {

MetricFamily Single(std::string name, std::string help, MetricFamily::Type type, double value) {
  MetricSample sample;
  sample.value = value;
  return MetricFamily{std::move(name), std::move(help), type, {std::move(sample)}};
}

MetricSample Labelled(std::string label, std::string text, double value) {
  MetricSample sample;
  sample.labels = {{std::move(label), std::move(text)}};
  sample.value = value;
  return sample;
}

// One of them is 1.
MetricFamily States(v1::ServerState now) {
  static constexpr v1::ServerState kStates[] = {v1::SERVER_STATE_LOADING, v1::SERVER_STATE_SERVING,
                                                v1::SERVER_STATE_DRAINING,
                                                v1::SERVER_STATE_UNHEALTHY};
  MetricFamily states{"annulus_server_state",
                      "What the server is doing: 1 for one state, 0 for the others.",
                      MetricFamily::Type::kGauge,
                      {}};
  for (const v1::ServerState state : kStates) {
    states.samples.push_back(Labelled("state", StateName(state), state == now ? 1 : 0));
  }
  return states;
}

}  // namespace

void ServerMetrics::CountError(absl::StatusCode code) {
  const size_t index = static_cast<size_t>(code);
  const size_t unknown = static_cast<size_t>(absl::StatusCode::kUnknown);
  errors_[index < kCodes ? index : unknown].fetch_add(1, std::memory_order_relaxed);
}

void ServerMetrics::CountUpload(UploadOutcome outcome) {
  uploads_[static_cast<size_t>(outcome)].fetch_add(1, std::memory_order_relaxed);
}

std::vector<MetricFamily> ServerMetrics::Collect(const Lifecycle& lifecycle,
                                                 const DocumentStore& documents) const {
  using Type = MetricFamily::Type;
  std::vector<MetricFamily> families;
  MetricFamily errors{
      "annulus_request_errors_total",
      "Calls that failed, by gRPC status code; not: GetDocument of what is not there.",
      Type::kCounter,
      {}};
  for (size_t code = 1; code < kCodes; ++code) {
    errors.samples.push_back(
        Labelled("code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code)),
                 static_cast<double>(errors_[code].load(std::memory_order_relaxed))));
  }
  families.push_back(std::move(errors));

  MetricFamily uploads{
      "annulus_document_uploads_total", "Uploads that ended, by outcome.", Type::kCounter, {}};
  const std::array<const char*, 3> outcomes = {"stored", "unchanged", "failed"};
  for (size_t i = 0; i < outcomes.size(); ++i) {
    uploads.samples.push_back(Labelled(
        "outcome", outcomes[i], static_cast<double>(uploads_[i].load(std::memory_order_relaxed))));
  }
  families.push_back(std::move(uploads));

  families.push_back(Single("annulus_documents", "Documents stored.", Type::kGauge,
                            static_cast<double>(documents.count())));
  families.push_back(Single("annulus_document_memory_bytes",
                            "Memory of documents, uploads in progress included.", Type::kGauge,
                            static_cast<double>(documents.memory_used())));
  families.push_back(Single("annulus_active_generations",
                            "Generate and StreamGenerate calls under way.", Type::kGauge,
                            static_cast<double>(lifecycle.active())));

  families.push_back(Single("annulus_calls_attached_total",
                            "Calls that followed a request which another call had sent, by its "
                            "request_id.",
                            Type::kCounter,
                            static_cast<double>(attached_.load(std::memory_order_relaxed))));

  families.push_back(States(StateOf(lifecycle)));
  families.push_back(
      Single("annulus_reload_failed",
             "1 while the last attempt to read files of tokens and certificates again "
             "failed, so that what was read before is in use; else 0.",
             Type::kGauge, reload_failed_ ? 1 : 0));

  MetricFamily build{"annulus_build_info", "The server's version; always 1.", Type::kGauge, {}};
  build.samples.push_back(Labelled("version", kVersion, 1));
  families.push_back(std::move(build));
  return families;
}

MetricFamily LostLogLines(const Logger& log) {
  return MetricFamily{
      "annulus_log_lines_dropped_total",
      "Lines of the log that were not written: blocked, as its reader was too slow or refused "
      "them; rate, as clients caused too many of one kind.",
      MetricFamily::Type::kCounter,
      {Labelled("reason", "blocked", static_cast<double>(log.dropped())),
       Labelled("reason", "rate", static_cast<double>(log.suppressed()))}};
}

MetricFamily CertificateEnds(const TlsFiles* files) {
  MetricFamily family{"annulus_certificate_expiry_timestamp_seconds",
                      "When a certificate in use ends, in seconds since 1970, by the option that "
                      "names its file and the position in it.",
                      MetricFamily::Type::kGauge,
                      {}};
  if (files == nullptr) return family;
  for (const CertificateEnd& end : EndsOf(*files->current())) {
    MetricSample sample;
    sample.labels = {{"option", end.option}, {"position", absl::StrCat(end.position)}};
    sample.value = static_cast<double>(end.seconds);
    family.samples.push_back(std::move(sample));
  }
  return family;
}

MetricFamily ReplayMemory(size_t bytes) {
  return Single("annulus_replay_memory_bytes",
                "Memory of the answers kept for calls that bring their request_id again.",
                MetricFamily::Type::kGauge, static_cast<double>(bytes));
}

MetricFamily QuotaRefusals(const QuotaBook& quotas) {
  MetricFamily family{"annulus_quota_refusals_total",
                      "Generations and uploads that a quota of their tenant did not allow.",
                      MetricFamily::Type::kCounter,
                      {}};
  for (int i = 0; i < kQuotaKinds; ++i) {
    const Quota quota = static_cast<Quota>(i);
    family.samples.push_back(
        Labelled("quota", QuotaName(quota), static_cast<double>(quotas.refusals(quota))));
  }
  return family;
}

MetricFamily RanksDown(int ranks) {
  MetricFamily up{
      "annulus_rank_up", "Whether the rank answers: 1 or 0.", MetricFamily::Type::kGauge, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    up.samples.push_back(Labelled("rank", absl::StrCat(rank), 0));
  }
  return up;
}

}  // namespace annulus
