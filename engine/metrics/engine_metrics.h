#ifndef ANNULUS_ENGINE_METRICS_ENGINE_METRICS_H_
#define ANNULUS_ENGINE_METRICS_ENGINE_METRICS_H_

#include <cstdint>
#include <vector>

#include "engine/api/load.h"
#include "engine/api/result.h"
#include "engine/metrics/buckets.h"
#include "engine/metrics/metrics.h"
#include "kernels/backend.h"

namespace annulus {

// Why a request was refused before it held anything.
enum class AdmissionRejection : uint8_t {
  kQueueFull,  // "queue_full": as many requests wait as are allowed to
  kContext,    // "context": longer than the model's context
  kMemory,     // "memory": its pages can never fit
};

// What happened to the launches that one rank's steps held back: see GraphCounts. All stay 0 if the
// device has no graphs.
struct GraphMetrics {
  Counter& whole;
  Counter& pieces;
  Counter& in_graphs;
  Counter& single;
  Counter& updates;
  Counter& built;
  Counter& cut_by_wait;
  Counter& cut_by_event;
  Counter& cut_by_copy;
  Counter& cut_by_memory;
  Counter& cut_by_library;

  void Show(const GraphCounts& counts);
};

// What one rank reports. Seconds and bytes add up over all steps.
struct RankMetrics {
  Gauge& up;  // 1 or 0
  Counter& compute_seconds;
  Counter& exposed_wait_seconds;
  Counter& send_seconds;
  Counter& pass_kv_bytes;
  Counter& pass_q_bytes;
  Counter& estimate_bytes;
};

// The figures of one memory pool, in bytes.
struct PoolMetrics {
  Gauge& held;
  Gauge& free;
  Gauge& limit;
  Gauge& high_water;
  Gauge& fragmentation_ratio;
  Counter& trims;
  Counter& trimmed_bytes;
  Counter& refusals;

  struct Figures {
    size_t held = 0;
    size_t free = 0;
    size_t limit = 0;
    size_t high_water = 0;  // most ever held at once
    double fragmentation_ratio = 0;
    int64_t trims = 0;  // these three since the start
    size_t trimmed_bytes = 0;
    int64_t refusals = 0;
  };
  void Show(const Figures& figures);
};

// The pages for keys and values of one rank, in bytes: a pool of its own, cut from the rank's.
struct PagePoolMetrics {
  Gauge& held;      // in use by running requests
  Gauge& reserved;  // for running requests
  Gauge& cached;
  Gauge& free;
  Gauge& limit;
  Gauge& high_water;

  struct Pages {
    int64_t held = 0;
    int64_t reserved = 0;
    int64_t cached = 0;
    int64_t free = 0;
    int64_t most = 0;  // ever not free at once
  };
  void Show(const Pages& pages, int64_t page_bytes);
};

// A tier of pages below the ranks' memory.
struct TierMetrics {
  Gauge& up;  // 1 or 0
  Gauge& bytes;
  Gauge& limit;
  Gauge& pages;
  Gauge& waiting;  // pages
  Counter& hits;
  Counter& restores;
  Counter& rejects;
  Counter& checks;
  Counter& mismatches;
  Counter& io_errors;
  Counter& read_seconds;
  Counter& write_seconds;
  Counter& wait_seconds;  // of prompts, for writes
  Counter& read_bytes;
  Counter& written_bytes;

  struct Figures {
    bool up = false;
    int64_t bytes = 0;
    int64_t limit = 0;
    int64_t pages = 0;
    int64_t rejects = 0;  // these three since the start
    int64_t mismatches = 0;
    int64_t io_errors = 0;
  };
  void Show(const Figures& figures);
};

// Of the tiers that keep pages below the ranks' memory; all 0 for a tier that is not there.
struct KvTierMetrics {
  TierMetrics disk;
  TierMetrics host;
};

// Every metric that the engine itself knows, each with its name and meaning. The engine counts
// requests that ended without an error; the server counts errors by code, since it sees every
// status that a client gets. Any thread may update any member.
class EngineMetrics {
  MetricSet set_;  // stands first: the members below are made by it

 public:
  // `ranks` >= 1.
  EngineMetrics(int ranks, const ModelInfo& model);
  EngineMetrics(const EngineMetrics&) = delete;
  EngineMetrics& operator=(const EngineMetrics&) = delete;

  // Counts kStop, kLength and kPrefilled as successes; the other reasons are errors and do nothing
  // here.
  void CountFinished(FinishReason reason);
  void CountRejection(AdmissionRejection reason);

  std::vector<MetricFamily> Collect() const { return set_.Collect(); }

  // One observation per request.
  Histogram& time_to_first_token =
      set_.AddHistogram("time_to_first_token_seconds",
                        "Seconds from submission to the first token.", LatencyBuckets());
  Histogram& e2e_request_latency =
      set_.AddHistogram("e2e_request_latency_seconds",
                        "Seconds from submission to the end of a request.", LatencyBuckets());
  Histogram& request_queue_time =
      set_.AddHistogram("request_queue_time_seconds",
                        "Seconds that a request waited to be admitted.", LatencyBuckets());
  Histogram& request_prefill_time =
      set_.AddHistogram("request_prefill_time_seconds",
                        "Seconds from admission to the first token.", LatencyBuckets());
  Histogram& request_decode_time = set_.AddHistogram(
      "request_decode_time_seconds", "Seconds from the first token to the last.", LatencyBuckets());
  Histogram& request_prompt_tokens = set_.AddHistogram(
      "request_prompt_tokens", "Tokens in a request's prompt.", TokenCountBuckets());
  Histogram& request_generation_tokens = set_.AddHistogram(
      "request_generation_tokens", "Tokens generated for a request.", TokenCountBuckets());

  Histogram& request_max_num_generation_tokens = set_.AddHistogram(
      "request_max_num_generation_tokens",
      "Largest number of answer tokens that a request allowed.", TokenCountBuckets());
  Histogram& request_inference_time =
      set_.AddHistogram("request_inference_time_seconds",
                        "Seconds from admission to the end of a request.", LatencyBuckets());
  Histogram& request_longest_gap =
      set_.AddHistogram("request_longest_gap_seconds",
                        "Longest time between two tokens of a request, if its client kept up.",
                        TokenLatencyBuckets());
  Histogram& request_ring_wait = set_.AddHistogram(
      "request_ring_wait_seconds",
      "Seconds of a request's steps in which the slowest rank waited for another and had nothing "
      "else to do.",
      LatencyBuckets());
  Histogram& request_host_time = set_.AddHistogram(
      "request_host_time_seconds",
      "Seconds of a request's steps in which the ranks were idle, while steps were planned and "
      "results used.",
      LatencyBuckets());
  Histogram& request_cached_tokens = set_.AddHistogram(
      "request_cached_tokens", "Prompt tokens of a request whose keys and values were reused.",
      TokenCountBuckets());
  Histogram& request_accepted_tokens = set_.AddHistogram(
      "request_accepted_tokens", "Correct speculative tokens of a request that had any.",
      TokenCountBuckets());
  Histogram& request_stalls = set_.AddHistogram(
      "request_stalls",
      "Gaps between two tokens of a request that were longer than the stall budget.",
      RareCountBuckets());
  Histogram& request_preemptions = set_.AddHistogram(
      "request_preemptions", "Preemptions of a request: it released its pages and had to wait.",
      RareCountBuckets());

  // One observation per step.
  Histogram& iteration_tokens = set_.AddHistogram(
      "iteration_tokens",
      "Tokens that a step computed: of prompts and answers, speculative ones included.",
      TokenCountBuckets());

  // One observation per token after a request's first.
  Histogram& inter_token_latency =
      set_.AddHistogram("inter_token_latency_seconds", "Seconds between two tokens of one request.",
                        TokenLatencyBuckets());

  Counter& stall_violations = set_.AddCounter("stall_violations_total",
                                              "Gaps between two tokens that were longer than the "
                                              "stall budget, although the client kept up.");
  Gauge& step_cost_error = set_.AddGauge(
      "step_cost_error_ratio",
      "Error of predicted step times: |predicted - real| / real, mean over the last steps.");
  Gauge& smallest_chunk_seconds = set_.AddGauge(
      "smallest_chunk_seconds",
      "Predicted seconds of the smallest part of a prompt that a step can compute, at the depth of "
      "the last step's prompt. If that is above the stall budget, the budget cannot be kept.");
  Counter& chunk_stretches = set_.AddCounter(
      "chunk_stretches_total",
      "Steps that computed only some layers of a prompt's chunk: beside streams, because not even "
      "one page through all layers fits into the stall budget; alone, so that chunks can be "
      "larger.");

  // Counted step by step, as the tokens are computed.
  Counter& prompt_tokens =
      set_.AddCounter("prompt_tokens_total", "Prompt tokens computed by prefill.");
  Counter& generation_tokens = set_.AddCounter("generation_tokens_total", "Tokens generated.");
  Counter& step_seconds =
      set_.AddCounter("step_seconds_total", "Seconds in which the ranks ran steps.");
  Counter& host_seconds = set_.AddCounter(
      "host_seconds_total",
      "Seconds between steps in which the ranks were idle, while the engine used the last step's "
      "results, admitted requests and planned the next step.");
  Counter& draft_tokens = set_.AddCounter("spec_decode_num_draft_tokens_total",
                                          "Speculative tokens that were checked.");
  Counter& accepted_tokens = set_.AddCounter("spec_decode_num_accepted_tokens_total",
                                             "Speculative tokens that were accepted.");
  Counter& prefix_cache_queries = set_.AddCounter("prefix_cache_queries_total",
                                                  "Prompt tokens looked up among cached prefixes.");
  Counter& prefix_cache_hits = set_.AddCounter("prefix_cache_hits_total",
                                               "Prompt tokens whose keys and values were reused.");
  Counter& failed_steps =
      set_.AddCounter("failed_steps_total",
                      "Steps that failed on the ranks. What they computed is computed again.");
  Counter& repaired_tokens = set_.AddCounter(
      "repaired_tokens_total",
      "Tokens whose keys and values ranks had lost and that were computed again in place.");
  Counter& preemptions =
      set_.AddCounter("num_preemptions_total",
                      "Preemptions: a running request released its pages and had to wait.");

  Gauge& requests_running =
      set_.AddGauge("num_requests_running", "Running requests: admitted and not ended.");
  Gauge& requests_parked = set_.AddGauge(
      "num_requests_parked",
      "Running requests whose clients do not keep up: they keep their pages, but take no slot.");
  Gauge& requests_waiting =
      set_.AddGauge("num_requests_waiting", "Requests that wait for admission.");
  Gauge& kv_cache_usage =
      set_.AddGauge("kv_cache_usage_perc",
                    "Pages that hold keys and values of running requests over all pages, 0 to 1; "
                    "reserved and cached pages are not in use.");
  Gauge& kv_cache_reserved =
      set_.AddGauge("kv_cache_reserved_perc",
                    "Pages reserved for running requests, with nothing in them yet, over all "
                    "pages, 0 to 1.");
  Gauge& attention_density = set_.AddGauge(
      "attention_density_ratio",
      "Attended pairs of query and key, divided by all causal pairs, since the start, 0 to 1.");
  Gauge& attention_coverage = set_.AddGauge(
      "attention_coverage_ratio",
      "Share of the attention inside the chosen blocks, mean over all rows measured since the "
      "start, 0 to 1.");
  Gauge& attention_estimated_coverage = set_.AddGauge(
      "attention_estimated_coverage_ratio",
      "Share of the attention that estimates gave to the chosen blocks, mean over all query blocks "
      "estimated since the start, 0 to 1.");

  // Raised and set before Collect.
  Counter& pattern_cache_hits = set_.AddCounter(
      "pattern_cache_hits_total", "Block lists of sparse attention found in the cache.");
  Counter& pattern_cache_misses = set_.AddCounter(
      "pattern_cache_misses_total", "Block lists of sparse attention that had to be built.");
  Counter& expert_hits = set_.AddCounter(
      "expert_hits_total", "With --expert-memory: experts that a step needed and found in memory.");
  Counter& expert_misses =
      set_.AddCounter("expert_misses_total",
                      "Experts that were not in memory and had to be read from the model's files.");
  Counter& expert_read_bytes =
      set_.AddCounter("expert_read_bytes_total", "Bytes of the experts that were read.");
  Counter& expert_wait_seconds = set_.AddCounter(
      "expert_wait_seconds_total", "Seconds that ranks waited for experts, added up.");
  Counter& expert_steps = set_.AddCounter(
      "expert_steps_total", "With --expert-memory: steps of each rank that needed experts.");
  Counter& expert_waited_steps = set_.AddCounter(
      "expert_waited_steps_total", "Of these steps, those that waited for an expert.");
  Gauge& pattern_cache_bytes =
      set_.AddGauge("pattern_cache_bytes", "Bytes of the block lists that are kept for reuse.");
  Family<Gauge>& rank_memory_bytes = set_.AddGauges(
      "rank_memory_bytes",
      "Memory of a rank, by purpose. Pages in use are kv_full, kv_window and "
      "kv_summaries; kv_reserved has nothing in it yet, kv_cached is kept for reuse.",
      {"rank", "kind"});

 private:
  Family<Counter>& ring_mode_ = set_.AddCounters(
      "ring_mode_total",
      "Step items (rows of one request) on rings of 2 or more ranks, by ring mode.", {"mode"});
  Family<Counter>& request_success_ =
      set_.AddCounters("request_success_total", "Requests that ended without an error, by reason.",
                       {"finished_reason"});
  Family<Counter>& attention_layers_ =
      set_.AddCounters("attention_layers_total",
                       "Layers run under an attention policy, by effect of its coverage contract: "
                       "policy's blocks kept, number of blocks raised, or layer made dense.",
                       {"outcome"});
  Family<Counter>& recovered_requests_ = set_.AddCounters(
      "recovered_requests_total",
      "Times that a running request went on after a step had failed: in its place, with only what "
      "ranks had lost computed again (repaired), or after waiting, from a cached prefix "
      "(set_back).",
      {"way"});
  Family<Counter>& ring_losses_ = set_.AddCounters(
      "ring_losses_total",
      "How often a ring of several processes broke: a worker's connection ended (closed), a worker "
      "said nothing in time (silent), or sent what it may not or that it cannot go on (message), "
      "or "
      "between ranks messages did not arrive, or changed, though all workers were there (wire).",
      {"cause"});
  Family<Counter>& admission_rejections_ = set_.AddCounters(
      "admission_rejections_total", "Requests refused before admission, by reason.", {"reason"});

 public:
  Counter& mode_pass_kv = ring_mode_.With({"pass_kv"});
  Counter& mode_pass_q = ring_mode_.With({"pass_q"});
  Counter& attention_layers_kept = attention_layers_.With({"kept"});
  Counter& attention_layers_raised = attention_layers_.With({"raised"});
  Counter& attention_layers_dense = attention_layers_.With({"dense"});
  Counter& recovered_repaired = recovered_requests_.With({"repaired"});
  Counter& recovered_set_back = recovered_requests_.With({"set_back"});
  Counter& ring_losses_closed = ring_losses_.With({"closed"});
  Counter& ring_losses_silent = ring_losses_.With({"silent"});
  Counter& ring_losses_message = ring_losses_.With({"message"});
  Counter& ring_losses_wire = ring_losses_.With({"wire"});
  std::vector<RankMetrics> ranks;
  std::vector<GraphMetrics> graphs;    // [rank]
  std::vector<PoolMetrics> pools;      // [rank] "rank0", ..
  std::vector<PagePoolMetrics> pages;  // [rank] "rank0-pages", ..
  KvTierMetrics tiers;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_METRICS_ENGINE_METRICS_H_
