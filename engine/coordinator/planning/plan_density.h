#ifndef ANNULUS_ENGINE_COORDINATOR_PLANNING_PLAN_DENSITY_H_
#define ANNULUS_ENGINE_COORDINATOR_PLANNING_PLAN_DENSITY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engine/api/plan.h"
#include "engine/model/model_config.h"
#include "engine/sparse/assignment.h"

namespace annulus {

// Returns the share of the causal (row, key) pairs of a prompt of `tokens` tokens that the policies
// attend: the mean over heads of keys and values and over `layers`, the indices of the layers
// without a window. An estimate (PatternPairs). Absent if one of the policies looks at content or
// keeps a contract.
std::optional<double> DensityOf(const AttentionAssignment& attention, int64_t tokens,
                                const std::vector<int32_t>& layers, int kv_heads);

// Sets the plan's density: that of a prompt of `tokens` tokens under the policies that it names.
absl::Status AddDensity(const ModelConfig& model, int64_t tokens, RequestPlan& plan);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_PLANNING_PLAN_DENSITY_H_
