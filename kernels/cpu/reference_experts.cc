// Reference routing of rows to experts.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/cpu/reference.h"
#include "kernels/ops/checks.h"

namespace annulus::reference {

absl::Status Route(Stream&, const RouteParams& params) {
  CheckRoute(params);
  const int64_t experts = params.logits.cols;
  for (int64_t r = 0; r < params.logits.rows; ++r) {
    const float* logits = params.logits.row(r);
    std::vector<int32_t> order(experts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    const int64_t counted = params.softmax_of_chosen ? params.chosen : experts;
    float sum = 0;
    for (int64_t i = 0; i < counted; ++i) sum += std::exp(logits[order[i]] - logits[order[0]]);
    for (int i = 0; i < params.chosen; ++i) {
      params.experts[r * params.chosen + i] = order[i];
      params.weights[r * params.chosen + i] = std::exp(logits[order[i]] - logits[order[0]]) / sum;
    }
  }
  return absl::OkStatus();
}

absl::Status GatherRows(Stream&, const GatherRowsParams& params) {
  CheckGatherRows(params);
  for (size_t i = 0; i < params.rows.size(); ++i) {
    std::copy_n(params.input.row(params.rows[i]), params.input.cols, params.output.row(i));
  }
  return absl::OkStatus();
}

absl::Status ScatterAdd(Stream&, const ScatterAddParams& params) {
  CheckScatterAdd(params);
  for (size_t i = 0; i < params.rows.size(); ++i) {
    for (int64_t c = 0; c < params.output.cols; ++c) {
      params.output.row(params.rows[i])[c] += params.weights[i] * params.input.row(i)[c];
    }
  }
  return absl::OkStatus();
}

}  // namespace annulus::reference
