#include "server/metrics/server_metrics.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/dtype.h"
#include "server/base/version.h"
#include "server/identity/call_roles.h"
#include "server/metrics/server_state.h"

namespace annulus::server {
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

// Metrics that vLLM (0.10) has with the same name after the prefix; iteration_tokens ends in _total
// there, which promtool takes for a counter.
constexpr absl::string_view kVllmStems[] = {"cache_config_info",
                                            "e2e_request_latency_seconds",
                                            "generation_tokens_total",
                                            "inter_token_latency_seconds",
                                            "iteration_tokens",
                                            "kv_cache_usage_perc",
                                            "num_preemptions_total",
                                            "num_requests_running",
                                            "num_requests_waiting",
                                            "prefix_cache_hits_total",
                                            "prefix_cache_queries_total",
                                            "prompt_tokens_total",
                                            "request_decode_time_seconds",
                                            "request_generation_tokens",
                                            "request_inference_time_seconds",
                                            "request_max_num_generation_tokens",
                                            "request_prefill_time_seconds",
                                            "request_prompt_tokens",
                                            "request_queue_time_seconds",
                                            "request_success_total",
                                            "spec_decode_num_accepted_tokens_total",
                                            "spec_decode_num_draft_tokens_total",
                                            "time_to_first_token_seconds"};

bool IsInVllm(absl::string_view family) {
  return absl::ConsumePrefix(&family, "annulus_") &&
         std::find(std::begin(kVllmStems), std::end(kVllmStems), family) != std::end(kVllmStems);
}

// One sample for each state; that of the current state is 1.
MetricFamily States(v1::ServerState now) {
  static constexpr v1::ServerState kStates[] = {v1::SERVER_STATE_LOADING, v1::SERVER_STATE_SERVING,
                                                v1::SERVER_STATE_DRAINING,
                                                v1::SERVER_STATE_UNHEALTHY};
  MetricFamily states{"annulus_server_state",
                      "State of the server: 1 for the current state, 0 for the others.",
                      MetricFamily::Type::kGauge,
                      {}};
  for (const v1::ServerState state : kStates) {
    states.samples.push_back(Labelled("state", StateName(state), state == now ? 1 : 0));
  }
  return states;
}

constexpr size_t kCodes = 17;  // gRPC's status codes, 0 to 16

size_t IndexOf(absl::StatusCode code) {
  const size_t index = static_cast<size_t>(code);
  return index < kCodes ? index : static_cast<size_t>(absl::StatusCode::kUnknown);
}

using Count = std::atomic<uint64_t>;
using CountsByCode = std::array<Count, kCodes>;
using CountsByMethod = std::map<std::string, CountsByCode, std::less<>>;

void Increment(Count& count) { count.fetch_add(1, std::memory_order_relaxed); }

double ValueOf(const Count& count) {
  return static_cast<double>(count.load(std::memory_order_relaxed));
}

// The ends of uploads, in the order of Counts::uploads.
enum class UploadOutcome : uint8_t { kStored, kUnchanged, kFailed };
constexpr std::array<const char*, 3> kOutcomes = {"stored", "unchanged", "failed"};

bool IsOverHttp(absl::string_view method) { return absl::StartsWith(method, "/"); }

void AddCall(absl::string_view label, const std::string& method, size_t code, double count,
             MetricFamily& calls) {
  MetricSample sample;
  sample.labels = {{std::string(label), method},
                   {"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}};
  sample.value = count;
  calls.samples.push_back(std::move(sample));
}

// For each method, OK and the other codes with which calls of it have ended.
MetricFamily Calls(const CountsByMethod& counts) {
  MetricFamily calls{"annulus_grpc_requests_total",
                     "Calls that ended, by method and gRPC status code.",
                     MetricFamily::Type::kCounter,
                     {}};
  for (const auto& [method, codes] : counts) {
    if (IsOverHttp(method)) continue;
    for (size_t code = 0; code < kCodes; ++code) {
      const double count = ValueOf(codes[code]);
      if (count != 0 || code == 0) AddCall("method", method, code, count, calls);
    }
  }
  return calls;
}

// For each route, the codes with which requests of it have ended.
MetricFamily HttpCalls(const CountsByMethod& counts) {
  MetricFamily calls{"annulus_http_requests_total",
                     "HTTP requests that ended, by route and equivalent gRPC status code.",
                     MetricFamily::Type::kCounter,
                     {}};
  for (const auto& [route, codes] : counts) {
    if (!IsOverHttp(route)) continue;
    for (size_t code = 0; code < kCodes; ++code) {
      const double count = ValueOf(codes[code]);
      if (count != 0) AddCall("route", route, code, count, calls);
    }
  }
  return calls;
}

MetricFamily Errors(const CountsByCode& counts) {
  MetricFamily errors{
      "annulus_request_errors_total",
      "Calls that failed, by gRPC status code, except GetDocument calls that found no document.",
      MetricFamily::Type::kCounter,
      {}};
  for (size_t code = 1; code < kCodes; ++code) {
    errors.samples.push_back(Labelled("code",
                                      absl::StatusCodeToString(static_cast<absl::StatusCode>(code)),
                                      ValueOf(counts[code])));
  }
  return errors;
}

MetricFamily Uploads(const std::array<Count, kOutcomes.size()>& counts) {
  MetricFamily uploads{"annulus_document_uploads_total",
                       "Uploads that ended, by outcome.",
                       MetricFamily::Type::kCounter,
                       {}};
  for (size_t i = 0; i < counts.size(); ++i) {
    uploads.samples.push_back(Labelled("outcome", kOutcomes[i], ValueOf(counts[i])));
  }
  return uploads;
}

MetricFamily CutOffs(const std::array<Count, kCutOffKinds>& counts) {
  MetricFamily cut_off{
      "annulus_connections_cut_off_total",
      "Connections that the server closed, by reason. headers: a header block that is too long, or "
      "frames that no gRPC client sends; memory: the largest connection of the client with most "
      "incomplete calls and messages; slow: a call whose message did not arrive; flood: too many "
      "frames without a message, or too many open calls; unread: the client did not read; refused: "
      "calls without a valid identity or to unknown methods.",
      MetricFamily::Type::kCounter,
      {}};
  for (size_t i = 0; i < counts.size(); ++i) {
    cut_off.samples.push_back(
        Labelled("reason", CutOffReason(static_cast<CutOff>(i)), ValueOf(counts[i])));
  }
  return cut_off;
}

}  // namespace

struct ServerMetrics::Counts {
  CountsByMethod calls;  // by method; the keys never change
  CountsByCode errors{};
  std::array<Count, kOutcomes.size()> uploads{};  // by UploadOutcome
  std::array<Count, kCutOffKinds> cut_off{};      // by CutOff
  Count attached{0};
  std::atomic<bool> reload_failed{false};
};

ServerMetrics::ServerMetrics() : counts_(std::make_unique<Counts>()) {
  for (const absl::string_view method : AllMethods()) {
    counts_->calls.try_emplace(std::string(method));
  }
}

ServerMetrics::~ServerMetrics() = default;

void ServerMetrics::CountCall(absl::string_view method, absl::StatusCode code) {
  const auto found = counts_->calls.find(method);
  if (found != counts_->calls.end()) Increment(found->second[IndexOf(code)]);
}

void ServerMetrics::CountError(absl::StatusCode code) { Increment(counts_->errors[IndexOf(code)]); }

void ServerMetrics::CountUpload(const StoredDocument* document, bool created) {
  UploadOutcome outcome = UploadOutcome::kFailed;
  if (document != nullptr) outcome = created ? UploadOutcome::kStored : UploadOutcome::kUnchanged;
  Increment(counts_->uploads[static_cast<size_t>(outcome)]);
}

void ServerMetrics::CountAttached() { Increment(counts_->attached); }

void ServerMetrics::SetReloadFailed(bool failed) { counts_->reload_failed = failed; }

void ServerMetrics::CountCutOff(CutOff why) {
  Increment(counts_->cut_off[static_cast<size_t>(why)]);
}

const char* CutOffReason(CutOff why) {
  switch (why) {
    case CutOff::kHeaders:
      return "headers";
    case CutOff::kMemory:
      return "memory";
    case CutOff::kSlow:
      return "slow";
    case CutOff::kFlood:
      return "flood";
    case CutOff::kUnread:
      return "unread";
    case CutOff::kRefused:
      return "refused";
    case CutOff::kRoom:
      break;
  }
  return "room";
}

std::vector<MetricFamily> ServerMetrics::Collect(const Lifecycle& lifecycle,
                                                 const DocumentStore& documents) const {
  using Type = MetricFamily::Type;
  std::vector<MetricFamily> families = balance_.Collect();
  families.push_back(Calls(counts_->calls));
  MetricFamily over_http = HttpCalls(counts_->calls);
  if (!over_http.samples.empty()) families.push_back(std::move(over_http));
  families.push_back(Errors(counts_->errors));
  families.push_back(Uploads(counts_->uploads));
  families.push_back(CutOffs(counts_->cut_off));

  families.push_back(Single("annulus_documents", "Documents stored.", Type::kGauge,
                            static_cast<double>(documents.count())));
  families.push_back(Single("annulus_document_memory_bytes",
                            "Memory of documents, uploads in progress included.", Type::kGauge,
                            static_cast<double>(documents.memory_used())));
  families.push_back(Single("annulus_documents_evicted_total",
                            "Transient documents that were evicted to make room for others.",
                            Type::kCounter, static_cast<double>(documents.evictions())));
  families.push_back(Single("annulus_active_generations",
                            "Calls in progress that generate or prefill.", Type::kGauge,
                            static_cast<double>(lifecycle.active())));

  families.push_back(
      Single("annulus_calls_attached_total",
             "Calls that attached by request_id to a request that another call had sent.",
             Type::kCounter, ValueOf(counts_->attached)));

  families.push_back(States(StateOf(lifecycle)));
  families.push_back(Single("annulus_reload_failed",
                            "1 if the last reload of token and certificate files failed, so that "
                            "their earlier content is in use; else 0.",
                            Type::kGauge, counts_->reload_failed ? 1 : 0));

  MetricFamily build{"annulus_build_info", "The server's version; always 1.", Type::kGauge, {}};
  build.samples.push_back(Labelled("version", kVersion, 1));
  families.push_back(std::move(build));
  return families;
}

MetricFamily LostLogLines(const Logger& log) {
  return MetricFamily{"annulus_log_lines_dropped_total",
                      "Log lines that were not written, by reason. blocked: the reader was too "
                      "slow or refused them; rate: clients caused too many of one kind.",
                      MetricFamily::Type::kCounter,
                      {Labelled("reason", "blocked", static_cast<double>(log.dropped())),
                       Labelled("reason", "rate", static_cast<double>(log.suppressed()))}};
}

MetricFamily CacheConfigInfo(const ServerConfig& config, const ModelInfo& model,
                             const EngineLoad& load) {
  int64_t memory = 0;
  for (const RankLoad& rank : load.ranks) memory += rank.kv_bytes_total;
  MetricSample sample;
  sample.labels = {{"block_size", absl::StrCat(config.engine.page_tokens)},
                   {"cache_dtype", std::string(DTypeName(model.kv_dtype))},
                   {"enable_prefix_caching", "True"},
                   {"kv_memory_bytes", absl::StrCat(memory)},
                   {"kv_host_bytes", absl::StrCat(config.engine.kv_host_bytes)},
                   {"kv_disk_bytes", absl::StrCat(config.engine.kv_disk_bytes)}};
  sample.value = 1;
  return {"annulus_cache_config_info",
          "Configuration of the cache of keys and values: tokens in a page, dtype, prefix reuse, "
          "limits of memory and tiers; always 1.",
          MetricFamily::Type::kGauge,
          {std::move(sample)}};
}

void AddModelName(absl::string_view name, std::vector<MetricFamily>& families) {
  for (MetricFamily& family : families) {
    if (!IsInVllm(family.name)) continue;
    for (MetricSample& sample : family.samples) {
      sample.labels.emplace_back("model_name", std::string(name));
    }
  }
}

MetricFamily CertificateEnds(const TlsFiles* files) {
  MetricFamily family{"annulus_certificate_expiry_timestamp_seconds",
                      "Expiry time of each certificate in use, in seconds since 1970, by the "
                      "option that names its file and its position in the file.",
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
                "Memory of the answers kept for retries with the same request_id.",
                MetricFamily::Type::kGauge, static_cast<double>(bytes));
}

std::vector<MetricFamily> DocumentFolderMetrics(const DocumentFolder* folder) {
  using Type = MetricFamily::Type;
  if (folder == nullptr) return {};
  const DocumentFolder::Stats stats = folder->stats();
  return {
      Single("annulus_documents_disk_bytes", "Bytes of files in --documents, uploads included.",
             Type::kGauge, static_cast<double>(stats.bytes)),
      Single("annulus_documents_disk_limit_bytes", "Most bytes of files in --documents.",
             Type::kGauge, static_cast<double>(stats.limit)),
      Single("annulus_documents_disk_errors_total",
             "Failed calls to the disk of --documents, a full disk included, and damaged files.",
             Type::kCounter, static_cast<double>(stats.errors)),
      Single("annulus_documents_lost",
             "Files in --documents that the start could not load: damaged, or without room.",
             Type::kGauge, static_cast<double>(stats.lost))};
}

std::vector<MetricFamily> SpanMetrics(const SpanQueue* spans) {
  using Type = MetricFamily::Type;
  if (spans == nullptr) return {};
  const SpanQueue::Counts counts = spans->counts();
  return {Single("annulus_trace_spans_sent_total", "Spans that --otlp-endpoint has taken.",
                 Type::kCounter, static_cast<double>(counts.sent)),
          Single("annulus_trace_spans_dropped_total",
                 "Spans for which there was no room while --otlp-endpoint did not take any.",
                 Type::kCounter, static_cast<double>(counts.dropped))};
}

MetricFamily QuotaRefusals(const QuotaBook& quotas) {
  MetricFamily family{"annulus_quota_refusals_total",
                      "Generations and uploads refused by a quota of their tenant.",
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
      "annulus_rank_up", "1 if the rank answers, 0 if not.", MetricFamily::Type::kGauge, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    up.samples.push_back(Labelled("rank", absl::StrCat(rank), 0));
  }
  return up;
}

}  // namespace annulus::server
