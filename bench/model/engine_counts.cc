#include "bench/model/engine_counts.h"

#include <map>
#include <string>

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

ExpertFigures ExpertsSoFar(const Engine& engine) {
  ExpertFigures figures;
  const std::map<std::string, double*> by_name = {
      {"annulus_expert_hits_total", &figures.hits},
      {"annulus_expert_misses_total", &figures.misses},
      {"annulus_expert_read_bytes_total", &figures.read_bytes},
      {"annulus_expert_wait_seconds_total", &figures.wait_seconds},
      {"annulus_expert_steps_total", &figures.steps},
      {"annulus_expert_waited_steps_total", &figures.waited_steps}};
  for (const MetricFamily& family : engine.Metrics()) {
    const auto found = by_name.find(family.name);
    if (found != by_name.end()) *found->second = family.samples.front().value;
  }
  return figures;
}

void AddSince(const ExpertFigures& earlier, const ExpertFigures& later, ExpertFigures& sum) {
  for (double ExpertFigures::*const figure :
       {&ExpertFigures::hits, &ExpertFigures::misses, &ExpertFigures::read_bytes,
        &ExpertFigures::wait_seconds, &ExpertFigures::steps, &ExpertFigures::waited_steps}) {
    sum.*figure += later.*figure - earlier.*figure;
  }
}

}  // namespace annulus::bench
