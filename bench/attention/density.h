#ifndef ANNULUS_BENCH_ATTENTION_DENSITY_H_
#define ANNULUS_BENCH_ATTENTION_DENSITY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/sparse/policy.h"

namespace annulus {

// Share of the causal pairs of a sequence of `tokens` that the policy attends; beyond 1024 blocks,
// of the rows of that many, evenly spread.
double PolicyDensity(const AttentionPolicy& policy, int64_t tokens, int kv_heads);

// The policy with its extent (the window, the stride, the rates, the blocks that are near or
// random) set so that its density comes closest to `density` without going below it, if it can.
// INVALID_ARGUMENT for a kind that has no such extent; the message lists those that have.
absl::StatusOr<AttentionPolicy> WithDensity(AttentionPolicy policy, double density, int64_t tokens,
                                            int kv_heads);

}  // namespace annulus

#endif  // ANNULUS_BENCH_ATTENTION_DENSITY_H_
