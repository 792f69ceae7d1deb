// A mixture of experts.
#include <algorithm>
#include <vector>

#include "engine/runner/step_run.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {

// Sorts choices by expert, rows in order inside each: expert e has sorted places
// [ends[e], ends[e + 1]).
void StepRun::SortByExpert(int64_t rows) {
  const int32_t chosen = model().config.experts.chosen;
  ExpertBuffers& b = experts_;
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

// A row meets its experts in ascending order, whatever the rows beside it chose, so its sum has the
// same bits in any batch.
absl::Status StepRun::Experts(int layer, ConstMatrixView input) {
  const LinearWeights& router = own_weights().layers[layer].router;
  const MatrixView logits = experts_.logits.row_range(0, input.rows);
  ANNULUS_RETURN_IF_ERROR(
      ops().linear(stream(), {input, &router.weight, router.bias.data(), logits}));
  return input.rows <= kMostChoosingRows ? ExpertsOfFewRows(layer, input, logits)
                                         : ExpertsOfManyRows(layer, input, logits);
}

// The device alone knows what was chosen, so nothing waits for the host.
absl::Status StepRun::ExpertsOfFewRows(int layer, ConstMatrixView input, ConstMatrixView logits) {
  const ExpertsWeights& weights = own_weights().layers[layer].experts;
  const ExpertsConfig& config = model().config.experts;
  const int64_t choices = input.rows * config.chosen;
  const int64_t columns = config.intermediate_size;
  int32_t* const experts = experts_.few_chosen.data();
  const MatrixView gate{buffers_.gate.data, choices, columns, columns};
  const MatrixView up{buffers_.up.data, choices, columns, columns};
  const MatrixView output = experts_.output.row_range(0, choices);
  const auto multiply = [&](ConstMatrixView from, const ExpertMatrices& matrices, MatrixView to) {
    const Activations activations =
        ActivationsOf(model().activations, matrices.matrices.front()->dtype);
    return ops().expert_linear(stream(),
                               {from, &matrices, experts, config.chosen, to, activations});
  };
  ANNULUS_RETURN_IF_ERROR(ops().route(stream(), {logits, config.chosen, config.weights_of_chosen,
                                                 experts, experts_.few_weights.data()}));
  ANNULUS_RETURN_IF_ERROR(multiply(input, weights.gate, gate));
  ANNULUS_RETURN_IF_ERROR(multiply(input, weights.up, up));
  ANNULUS_RETURN_IF_ERROR(Activate(gate, up));
  ANNULUS_RETURN_IF_ERROR(multiply(gate, weights.down, output));
  return ops().add_choices(stream(), {output, experts_.few_weights.data(), config.chosen,
                                      buffers_.residual.row_range(0, input.rows)});
}

// The host sorts rows by expert: every expert's are one product.
absl::Status StepRun::ExpertsOfManyRows(int layer, ConstMatrixView input, ConstMatrixView logits) {
  const std::vector<GatedWeights>& experts = own_weights().layers[layer].experts.each;
  const ExpertsConfig& config = model().config.experts;
  ExpertBuffers& b = experts_;
  ANNULUS_RETURN_IF_ERROR(ops().route(stream(), {logits, config.chosen, config.weights_of_chosen,
                                                 b.chosen.data(), b.weights.data()}));
  ANNULUS_RETURN_IF_ERROR(stream().Synchronize());
  SortByExpert(input.rows);
  for (size_t e = 0; e < experts.size(); ++e) {
    const auto first = static_cast<size_t>(b.ends[e]);
    const size_t count = static_cast<size_t>(b.ends[e + 1]) - first;
    if (count == 0) continue;
    const std::span<const int32_t> rows = b.sorted_rows.subspan(first, count);
    const auto n = static_cast<int64_t>(count);
    const MatrixView gathered = b.input.row_range(0, n);
    const MatrixView output = b.output.row_range(0, n);
    ANNULUS_RETURN_IF_ERROR(ops().gather_rows(stream(), {input, rows, gathered}));
    ANNULUS_ASSIGN_OR_RETURN(const ConstMatrixView gated, Gated(experts[e], gathered));
    ANNULUS_RETURN_IF_ERROR(Linear(experts[e].down, gated, output));
    ANNULUS_RETURN_IF_ERROR(
        ops().scatter_add(stream(), {output, rows, b.sorted_weights.subspan(first, count),
                                     buffers_.residual.row_range(0, input.rows)}));
  }
  return absl::OkStatus();
}

}  // namespace annulus
