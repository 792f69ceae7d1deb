#ifndef ANNULUS_BENCH_GATES_FIT_GATES_H_
#define ANNULUS_BENCH_GATES_FIT_GATES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/runner/rank_model.h"
#include "engine/sparse/gate_fitting.h"

namespace annulus::bench {

// How well the gates of one layer fit, as the mean over its heads: see FittedGate.
struct GateLoss {
  int layer = 0;
  double before = 0;
  double after = 0;
};

// Reads each document (token ids, at least two pages) with the model, densely, and fits gates to
// its attention. Calls `done` after each layer. RESOURCE_EXHAUSTED if the documents' keys and
// values do not fit in memory.
absl::StatusOr<AttentionGates> FitGates(const RankModel& model, Backend& backend, int threads,
                                        const std::vector<std::vector<int32_t>>& documents,
                                        const GateFitting& options,
                                        const std::function<void(const GateLoss&)>& done);

// Writes a safetensors file that ReadGates can read. `path` must not exist.
absl::Status WriteGates(const AttentionGates& gates, const GateShape& shape,
                        const std::string& path);

// The shape that gates for this model must have.
GateShape GateShapeOf(const RankModel& model);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_GATES_FIT_GATES_H_
