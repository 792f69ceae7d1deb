#include "bench/model/engine_counts.h"

namespace annulus::bench {

std::optional<double> PatternHits(const Engine& engine) {
  double hits = 0;
  double misses = 0;
  for (const MetricFamily& family : engine.Metrics()) {
    if (family.name == "annulus_pattern_cache_hits_total") hits = family.samples.front().value;
    if (family.name == "annulus_pattern_cache_misses_total") misses = family.samples.front().value;
  }
  if (hits + misses == 0) return std::nullopt;
  return hits / (hits + misses);
}

double ExposedSeconds(const Engine& engine) {
  double seconds = 0;
  for (const MetricFamily& family : engine.Metrics()) {
    if (family.name != "annulus_ring_seconds_total") continue;
    for (const MetricSample& sample : family.samples) {
      for (const auto& [label, value] : sample.labels) {
        if (label == "phase" && value == "exposed_wait") seconds += sample.value;
      }
    }
  }
  return seconds;
}

}  // namespace annulus::bench
