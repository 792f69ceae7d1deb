#ifndef ANNULUS_BENCH_MODEL_ENGINE_COUNTS_H_
#define ANNULUS_BENCH_MODEL_ENGINE_COUNTS_H_

#include <optional>

#include "engine/api.h"

namespace annulus::bench {

// What an engine's metrics count since it was made.

// Share of the block lists asked for that were there already; none were asked for without a policy.
std::optional<double> PatternHits(const Engine& engine);

// Of all ranks: seconds that one waited for another with nothing to attend.
double ExposedSeconds(const Engine& engine);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_ENGINE_COUNTS_H_
