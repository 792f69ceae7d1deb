// Reference routing of rows to experts, and their products.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/reference/reference.h"
#include "kernels/ops/checks.h"

namespace annulus::reference {

absl::Status Route(Stream&, const RouteParams& params) {
  CheckRoute(params);
  const int64_t experts = params.logits.cols;
  for (int64_t r = 0; r < params.logits.rows; ++r) {
    std::vector<float> logits(params.logits.row(r), params.logits.row(r) + experts);
    for (float& logit : logits) {
      if (std::isnan(logit)) logit = -std::numeric_limits<float>::infinity();
    }
    std::vector<int32_t> order(experts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    const int64_t counted = params.softmax_of_chosen ? params.chosen : experts;
    float sum = 0;
    const float largest = logits[order[0]];
    for (int64_t i = 0; i < counted; ++i) sum += std::exp(logits[order[i]] - largest);
    std::sort(order.begin(), order.begin() + params.chosen);
    for (int i = 0; i < params.chosen; ++i) {
      params.experts[r * params.chosen + i] = order[i];
      params.weights[r * params.chosen + i] = std::exp(logits[order[i]] - largest) / sum;
    }
  }
  return absl::OkStatus();
}

absl::Status ExpertLinear(Stream& stream, const ExpertLinearParams& params) {
  CheckExpertLinear(params);
  const int64_t share = params.output.rows == params.input.rows ? 1 : params.chosen;
  for (int64_t i = 0; i < params.output.rows; ++i) {
    const auto expert = static_cast<size_t>(params.experts[i]);
    LinearParams one;
    one.input = params.input.row_range(i / share, 1);
    one.weight = params.weights->matrices[expert];
    one.bias = params.weights->biases[expert];
    one.output = params.output.row_range(i, 1);
    one.activations = params.activations;
    ANNULUS_RETURN_IF_ERROR(Linear(stream, one));
  }
  return absl::OkStatus();
}

absl::Status AddChoices(Stream&, const AddChoicesParams& params) {
  CheckAddChoices(params);
  for (int64_t i = 0; i < params.input.rows; ++i) {
    float* const output = params.output.row(i / params.chosen);
    for (int64_t c = 0; c < params.output.cols; ++c) {
      output[c] += params.weights[i] * params.input.row(i)[c];
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
