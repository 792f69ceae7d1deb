#ifndef ANNULUS_BENCH_ATTENTION_STRUCTURED_GATES_H_
#define ANNULUS_BENCH_ATTENTION_STRUCTURED_GATES_H_

#include "absl/status/statusor.h"
#include "bench/attention/ring_world.h"
#include "engine/sparse/gates.h"

namespace annulus::bench {

// Fits gates for structured heads (StructuredHead) to heads of the same structures that were drawn
// with another seed: one layer, for the heads of `shape`.
absl::StatusOr<AttentionGates> FitStructuredGates(const AttentionShape& shape, Backend& backend,
                                                  const OpTable& ops);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_ATTENTION_STRUCTURED_GATES_H_
