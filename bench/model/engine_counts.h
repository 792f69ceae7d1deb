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

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_ENGINE_COUNTS_H_
