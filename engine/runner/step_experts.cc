// A mixture of experts: every expert's rows are one product.
#include <algorithm>

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
  const LayerWeights& weights = own_weights().layers[layer];
  const ExpertsConfig& config = model().config.experts;
  const auto choices = static_cast<size_t>(input.rows * config.chosen);
  ExpertBuffers& b = experts_;
  const MatrixView logits = b.logits.row_range(0, input.rows);
  const LinearWeights& router = weights.router;
  ANNULUS_RETURN_IF_ERROR(
      ops().linear(stream(), {input, &router.weight, router.bias.data(), logits}));
  ANNULUS_RETURN_IF_ERROR(
      ops().route(stream(), {logits, config.chosen, config.weights_of_chosen,
                             b.chosen.first(choices), b.weights.first(choices)}));
  ANNULUS_RETURN_IF_ERROR(stream().Synchronize());
  SortByExpert(input.rows);
  for (size_t e = 0; e < weights.experts.size(); ++e) {
    const auto first = static_cast<size_t>(b.ends[e]);
    const size_t count = static_cast<size_t>(b.ends[e + 1]) - first;
    if (count == 0) continue;
    const std::span<const int32_t> rows = b.sorted_rows.subspan(first, count);
    const auto n = static_cast<int64_t>(count);
    const MatrixView gathered = b.input.row_range(0, n);
    const MatrixView output = b.output.row_range(0, n);
    ANNULUS_RETURN_IF_ERROR(ops().gather_rows(stream(), {input, rows, gathered}));
    ANNULUS_ASSIGN_OR_RETURN(const ConstMatrixView gated, Gated(weights.experts[e], gathered));
    ANNULUS_RETURN_IF_ERROR(Linear(weights.experts[e].down, gated, output));
    ANNULUS_RETURN_IF_ERROR(
        ops().scatter_add(stream(), {output, rows, b.sorted_weights.subspan(first, count),
                                     buffers_.residual.row_range(0, input.rows)}));
  }
  return absl::OkStatus();
}

}  // namespace annulus
