#ifndef ANNULUS_BENCH_MODEL_ENGINE_COUNTS_H_
#define ANNULUS_BENCH_MODEL_ENGINE_COUNTS_H_

#include <optional>

#include "engine/api.h"

namespace annulus::bench {

// Figures from an engine's metrics, counted since the engine was created.

// The hit rate of the cache of block lists (PatternCache), 0..1; nullopt if no list was needed, as
// with dense attention.
std::optional<double> PatternHits(const Engine& engine);

// Seconds that ranks had nothing to attend because they waited for a peer, summed over the ranks.
double ExposedSeconds(const Engine& engine);

// Of a model whose experts are not all in memory (EngineOptions::expert_memory_bytes); otherwise
// all 0. Summed over the ranks.
struct ExpertFigures {
  double hits = 0;  // experts that a step needed and found in memory
  double misses = 0;
  double read_bytes = 0;
  double wait_seconds = 0;
  double steps = 0;  // that needed experts
  double waited_steps = 0;
};
ExpertFigures ExpertsSoFar(const Engine& engine);
// sum += later - earlier
void AddSince(const ExpertFigures& earlier, const ExpertFigures& later, ExpertFigures& sum);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_ENGINE_COUNTS_H_
