#ifndef ANNULUS_BENCH_ATTENTION_DENSITY_H_
#define ANNULUS_BENCH_ATTENTION_DENSITY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/sparse/policy.h"

namespace annulus::bench {

// The share of the causal pairs of a sequence of `tokens` that the policy attends. For sequences of
// more than 1024 blocks, computed from 1024 evenly spread blocks of rows.
double PolicyDensity(const AttentionPolicy& policy, int64_t tokens, int kv_heads);

// Returns the policy with its extent (the window, the stride, the rates, or the number of near or
// random blocks) chosen so that its density is the closest to `density` that is not below it, if
// possible. INVALID_ARGUMENT for a kind without such an extent; the message lists the kinds that
// have one.
absl::StatusOr<AttentionPolicy> WithDensity(AttentionPolicy policy, double density, int64_t tokens,
                                            int kv_heads);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_ATTENTION_DENSITY_H_
