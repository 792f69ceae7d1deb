#ifndef ANNULUS_ENGINE_PLAN_DENSITY_H_
#define ANNULUS_ENGINE_PLAN_DENSITY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api/plan.h"
#include "engine/base/work_meter.h"
#include "engine/model/model_config.h"
#include "engine/sparse/assignment.h"

namespace annulus {

// Share of the causal (row, key) pairs of a prompt of so many tokens that the policies attend: the
// mean over heads of keys and values and over `layers`, the numbers of those without a window.
// Absent if one of the policies looks at content or keeps a contract, or if the prompt is too long
// to draw (DrawBlockMap). Takes time linear in the chosen blocks; CANCELLED.
absl::StatusOr<std::optional<double>> DensityOf(const AttentionAssignment& attention,
                                                int64_t tokens, const std::vector<int32_t>& layers,
                                                int kv_heads, const CancelFlag& cancel);

// Sets the density of a prompt of so many tokens under the policies that the plan names.
absl::Status AddDensity(const ModelConfig& model, int64_t tokens, const CancelFlag& cancel,
                        RequestPlan& plan);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PLAN_DENSITY_H_
