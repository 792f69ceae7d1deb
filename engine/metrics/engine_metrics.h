#ifndef ANNULUS_ENGINE_METRICS_ENGINE_METRICS_H_
#define ANNULUS_ENGINE_METRICS_ENGINE_METRICS_H_

#include <cstdint>
#include <vector>

#include "engine/api.h"
#include "engine/metrics/metrics.h"

namespace annulus {

// Why a request was refused before it held anything.
enum class AdmissionRejection : uint8_t {
  kQueueFull,  // "queue_full": as many wait as may wait
  kContext,    // "context": longer than the model's context
  kMemory,     // "memory": its pages can never fit
};

// Every metric that the engine itself knows, under the names that dashboards use (README of
// deploy/). The engine counts requests that ended well; the server, which sees every status that a
// client gets, counts errors by code. All members may be updated from any thread.
class EngineMetrics {
 private:
  MetricSet set_;  // first, because the members below refer into it

 public:
  // Of one rank. Seconds and bytes add up over steps.
  struct Rank {
    Gauge& up;                 // 1 or 0
    Counter& compute_seconds;  // phases of the ring
    Counter& exposed_wait_seconds;
    Counter& send_seconds;
    Counter& pass_kv_bytes;  // sent to the next rank, by mode
    Counter& pass_q_bytes;
  };

  // `ranks` >= 1.
  EngineMetrics(int ranks, const ModelInfo& model);
  EngineMetrics(const EngineMetrics&) = delete;
  EngineMetrics& operator=(const EngineMetrics&) = delete;

  // Counts a request that ended with kStop or kLength; other reasons are errors, counted above.
  void CountSuccess(FinishReason reason);
  void CountRejection(AdmissionRejection reason);

  std::vector<MetricFamily> Collect() const { return set_.Collect(); }

  // Seconds, one observation per request, but inter_token_latency: per token after the first.
  Histogram& time_to_first_token;
  Histogram& inter_token_latency;
  Histogram& e2e_request_latency;
  Histogram& request_queue_time;
  Histogram& request_prefill_time;
  Histogram& request_decode_time;
  // Tokens, one observation per request.
  Histogram& request_prompt_tokens;
  Histogram& request_generation_tokens;

  Counter& prompt_tokens;      // computed by prefill, as it goes
  Counter& generation_tokens;  // sampled, as they come
  Counter& preemptions;

  Gauge& requests_running;
  Gauge& requests_waiting;
  Gauge& kv_cache_usage;     // held over all pages, 0..1
  Gauge& attention_density;  // computed over causal pairs, all steps since start, 0..1

  // Steps by ring mode, counted once per item group.
  Counter& mode_pass_kv;
  Counter& mode_pass_q;

  std::vector<Rank> ranks;

  // Set from BufferPool::Stats() before each Collect.
  Family<Gauge>& rank_memory_bytes;         // {rank, kind}: kind is a LifetimeName
  Family<Gauge>& pool_bytes;                // {pool, state}: "free" or "held"
  Family<Gauge>& pool_fragmentation_ratio;  // {pool}, 0..1

 private:
  Family<Counter>& request_success_;
  Family<Counter>& admission_rejections_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_METRICS_ENGINE_METRICS_H_
