// A mixture of experts.
#include <algorithm>
#include <optional>
#include <vector>

#include "engine/model/experts/expert_cache.h"
#include "engine/runner/step/step_layers.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Sorts the choices of `rows` rows by expert, rows in order inside each: expert e has sorted places
// [ends[e], ends[e + 1]).
void SortByExpert(int64_t rows, int32_t chosen, StepBuffers::Experts& b) {
  std::fill(b.ends.begin(), b.ends.end(), 0);
  const auto choices = static_cast<size_t>(rows * chosen);
  // Counts shifted by two places turn into starts, and the filling turns those into ends.
  for (size_t i = 0; i < choices; ++i) {
    const size_t place = static_cast<size_t>(b.chosen[i]) + 2;
    if (place < b.ends.size()) ++b.ends[place];
  }
  for (size_t e = 1; e < b.ends.size(); ++e) b.ends[e] += b.ends[e - 1];
  for (size_t i = 0; i < choices; ++i) {
    const auto place = static_cast<size_t>(b.ends[static_cast<size_t>(b.chosen[i]) + 1]++);
    b.sorted_rows[place] = static_cast<int32_t>(i / static_cast<size_t>(chosen));
    b.sorted_weights[place] = b.weights[i];
  }
}

}  // namespace

// A row sums its experts in ascending order, independent of the other rows' choices, so its sum has
// the same bits in any batch.
absl::Status StepLayers::Experts(int layer, int64_t rows) {
  const Pass pass{.layer = layer, .rows = rows};
  ANNULUS_RETURN_IF_ERROR(Walk(graph(layer).routing, pass));
  const std::span<const Operation> shared = graph(layer).shared;
  if (!shared.empty()) ANNULUS_RETURN_IF_ERROR(Slices(shared, layer, rows));
  // If experts are not all in memory, the host must know which are chosen.
  const bool few = rows <= kMostChoosingRows && experts() == nullptr;
  return few ? ExpertsOfFewRows(pass) : ExpertsOfManyRows(pass);
}

RouteParams StepLayers::Route(const Pass& pass, std::span<int32_t> chosen,
                              std::span<float> shares) {
  return {.logits = View(LayerArray::kRouterLogits, pass.rows, pass),
          .rule = model().config.experts.routing,
          .bias = weights(pass.layer).choice_bias.data(),
          .factors = weights(pass.layer).expert_factors.data(),
          .experts = chosen.data(),
          .weights = shares.data()};
}

// A router of one expert, whose score is the gate.
absl::Status StepLayers::AddGated(const Operation& operation, const Pass& pass) {
  constexpr RoutingRule kGate = {.chosen = 1, .scores = RoutingRule::Scores::kSigmoid};
  const StepBuffers::Experts& b = buffers_.experts;
  ANNULUS_RETURN_IF_ERROR(
      ops().route(stream(), {.logits = View(LayerArray::kSharedLogit, pass.rows, pass),
                             .rule = kGate,
                             .experts = b.gate_chosen.data(),
                             .weights = b.gates.data()}));
  return ops().add_choices(stream(), {View(operation.input, pass.rows, pass), b.gates.data(), 1,
                                      View(operation.output, pass.rows, pass)});
}

// The choices stay on the device, so nothing waits for the host.
absl::Status StepLayers::ExpertsOfFewRows(Pass pass) {
  const ExpertsConfig& config = model().config.experts;
  const LayerGraph& layer = graph(pass.layer);
  const StepBuffers::Experts& b = buffers_.experts;
  const int64_t rows = pass.rows;
  ANNULUS_RETURN_IF_ERROR(ops().route(stream(), Route(pass, b.few_chosen, b.few_weights)));
  pass.chosen = true;
  pass.expert_input = View(layer.routing.back().input, rows, pass).data;
  ANNULUS_RETURN_IF_ERROR(Walk(layer.block, pass));
  return ops().add_choices(
      stream(), {View(LayerArray::kExpertOutput, rows * config.routing.chosen, pass),
                 b.few_weights.data(), config.routing.chosen, View(layer.mixture, rows, pass)});
}

// The host sorts rows by expert: every expert's are one product.
absl::Status StepLayers::ExpertsOfManyRows(Pass pass) {
  const std::vector<GatedWeights>& all = weights(pass.layer).experts.each;
  const ExpertsConfig& config = model().config.experts;
  const LayerGraph& layer = graph(pass.layer);
  const ConstMatrixView input = View(layer.routing.back().input, pass.rows, pass);
  const MatrixView sum = View(layer.mixture, pass.rows, pass);
  StepBuffers::Experts& b = buffers_.experts;
  ANNULUS_RETURN_IF_ERROR(ops().route(stream(), Route(pass, b.chosen, b.weights)));
  ANNULUS_RETURN_IF_ERROR(stream().Synchronize());
  SortByExpert(pass.rows, config.routing.chosen, b);
  pass.expert_input = buffers_.of(LayerArray::kExpertInput).data();
  std::optional<ExpertCache::Walk> walk;
  if (experts() != nullptr) walk.emplace(*experts(), pass.layer, b.ends);
  for (size_t e = 0; e < all.size(); ++e) {
    const auto first = static_cast<size_t>(b.ends[e]);
    const size_t count = static_cast<size_t>(b.ends[e + 1]) - first;
    if (count == 0) continue;
    const std::span<const int32_t> rows = b.sorted_rows.subspan(first, count);
    pass.rows = static_cast<int64_t>(count);
    pass.block = &all[e];
    if (walk.has_value()) {
      ANNULUS_ASSIGN_OR_RETURN(pass.block, walk->Hold(static_cast<int32_t>(e)));
      state_.parts.heartbeat->Beat();
    }
    ANNULUS_RETURN_IF_ERROR(ops().gather_rows(
        stream(), {input, rows, View(LayerArray::kExpertInput, pass.rows, pass)}));
    ANNULUS_RETURN_IF_ERROR(Walk(layer.block, pass));
    ANNULUS_RETURN_IF_ERROR(
        ops().scatter_add(stream(), {View(LayerArray::kExpertOutput, pass.rows, pass), rows,
                                     b.sorted_weights.subspan(first, count), sum}));
  }
  met_experts_ = true;
  waited_ = waited_ || (walk.has_value() && walk->waited());
  return absl::OkStatus();
}

}  // namespace annulus
