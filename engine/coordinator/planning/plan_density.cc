#include "engine/coordinator/planning/plan_density.h"

#include <algorithm>

#include "engine/scheduler/step_cost.h"
#include "engine/sparse/block_pattern.h"
#include "engine/sparse/pattern_pairs.h"
#include "kernels/base/status_macros.h"

namespace annulus {

std::optional<double> DensityOf(const AttentionAssignment& attention, int64_t tokens,
                                const std::vector<int32_t>& layers, int kv_heads) {
  if (ClassOf(&attention) == AttentionClass::kContent) return std::nullopt;
  if (attention.dense() || layers.empty()) return 1.0;
  const PatternPairs pairs(ResolveAssignment(attention, tokens), layers, kv_heads, tokens);
  return std::min(1.0, pairs.Count(0, tokens) / DensePairs(0, tokens).causal);
}

absl::Status AddDensity(const ModelConfig& model, int64_t tokens, RequestPlan& plan) {
  std::vector<int32_t> layers;
  for (int32_t layer = 0; layer < std::ssize(model.layers); ++layer) {
    if (model.layers[static_cast<size_t>(layer)].window == 0) layers.push_back(layer);
  }
  ANNULUS_ASSIGN_OR_RETURN(const AttentionAssignment policies, ParseAssignment(plan.policy));
  plan.density = DensityOf(policies, tokens, layers, WidestAttention(model).kv_heads);
  return absl::OkStatus();
}

}  // namespace annulus
