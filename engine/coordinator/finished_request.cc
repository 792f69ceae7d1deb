#include "engine/coordinator/finished_request.h"

namespace annulus {
namespace {

// A request that had its turn.
void CountServed(const Request& request, EngineMetrics& metrics) {
  const Timings& timings = request.timings();
  metrics.request_inference_time.Observe(timings.total - timings.queue);
  metrics.request_ring_wait.Observe(timings.ring_wait);
  metrics.request_host_time.Observe(timings.host);
  metrics.request_cached_tokens.Observe(static_cast<double>(request.cached_tokens()));
  metrics.request_stalls.Observe(static_cast<double>(timings.stalls));
  metrics.request_preemptions.Observe(static_cast<double>(timings.preemptions));
  if (request.drafted_tokens() > 0) {
    metrics.request_accepted_tokens.Observe(static_cast<double>(request.accepted_tokens()));
  }
}

}  // namespace

void CountFinished(const Request& request, FinishReason reason, EngineMetrics& metrics) {
  metrics.CountFinished(reason);
  metrics.e2e_request_latency.Observe(request.timings().total);
  metrics.request_prompt_tokens.Observe(static_cast<double>(request.prompt_tokens()));
  if (request.has_begun()) CountServed(request, metrics);
  metrics.request_max_num_generation_tokens.Observe(request.spec().sampling.max_tokens);
  metrics.request_generation_tokens.Observe(static_cast<double>(request.completion_tokens()));
  if (request.completion_tokens() > 0) {
    metrics.request_decode_time.Observe(request.timings().decode);
  }
  // One token has no gap, which would count as a very short one.
  if (request.completion_tokens() > 1) {
    metrics.request_longest_gap.Observe(request.timings().longest_gap);
  }
}

}  // namespace annulus
