#include "engine/coordinator/plan_density.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/scheduler/step_cost.h"
#include "engine/sparse/block_map.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Of each head of keys and values.
struct HeadDensities {
  AttentionPolicy policy;
  std::vector<double> heads;
};

absl::StatusOr<std::vector<double>> Draw(const AttentionPolicy& policy, int64_t tokens,
                                         int kv_heads, const CancelFlag& cancel) {
  std::vector<double> densities(static_cast<size_t>(kv_heads), 1);
  if (AttendsAll(policy)) return densities;
  ANNULUS_ASSIGN_OR_RETURN(
      const BlockMap map,
      DrawBlockMap({.policy = policy, .tokens = tokens, .heads = kv_heads, .cells = 1}, cancel));
  for (const BlockMap::Head& head : map.heads) {
    std::fill_n(densities.begin() + head.first_head, head.head_count, head.density);
  }
  return densities;
}

}  // namespace

absl::StatusOr<std::optional<double>> DensityOf(const AttentionAssignment& attention,
                                                int64_t tokens, const std::vector<int32_t>& layers,
                                                int kv_heads, const CancelFlag& cancel) {
  if (ClassOf(&attention) == AttentionClass::kContent) return std::nullopt;
  if (attention.dense() || layers.empty()) return 1.0;
  std::vector<HeadDensities> drawn;
  double sum = 0;
  for (const int32_t layer : layers) {
    for (const LayerPart& part : PartsOf(attention, layer, kv_heads)) {
      auto known = std::find_if(drawn.begin(), drawn.end(),
                                [&](const auto& one) { return one.policy == part.policy; });
      if (known == drawn.end()) {
        auto heads = Draw(part.policy, tokens, kv_heads, cancel);
        if (absl::IsOutOfRange(heads.status())) return std::nullopt;
        if (!heads.ok()) return heads.status();
        drawn.push_back({part.policy, *std::move(heads)});
        known = std::prev(drawn.end());
      }
      for (size_t head = 0; head < part.heads.size(); ++head) {
        if (part.heads[head]) sum += known->heads[head];
      }
    }
  }
  return sum / static_cast<double>(layers.size() * static_cast<size_t>(kv_heads));
}

absl::Status AddDensity(const ModelConfig& model, int64_t tokens, const CancelFlag& cancel,
                        RequestPlan& plan) {
  std::vector<int32_t> layers;
  for (int32_t layer = 0; layer < std::ssize(model.layers); ++layer) {
    if (model.layers[static_cast<size_t>(layer)].window == 0) layers.push_back(layer);
  }
  ANNULUS_ASSIGN_OR_RETURN(const AttentionAssignment policies, ParseAssignment(plan.policy));
  ANNULUS_ASSIGN_OR_RETURN(plan.density,
                           DensityOf(policies, tokens, layers, model.kv_heads, cancel));
  return absl::OkStatus();
}

}  // namespace annulus
