// Routing of rows to experts, of the SIMD path.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/simd_ops.h"
#include "kernels/ops/checks.h"

namespace annulus::cpu {
namespace {

// Keeps the `chosen` largest logits in descending order, of equal ones the earlier first: one pass
// with insertion, as `chosen` is small.
void ChooseLargest(const float* logits, int64_t count, int chosen, int32_t* experts) {
  int kept = 0;
  for (int32_t e = 0; e < count; ++e) {
    if (kept == chosen && !(logits[e] > logits[experts[kept - 1]])) continue;
    int place = kept < chosen ? kept++ : chosen - 1;
    for (; place > 0 && logits[e] > logits[experts[place - 1]]; --place) {
      experts[place] = experts[place - 1];
    }
    experts[place] = e;
  }
}

void RouteRow(const RouteParams& params, int64_t row) {
  const float* logits = params.logits.row(row);
  int32_t* experts = params.experts.data() + row * params.chosen;
  float* weights = params.weights.data() + row * params.chosen;
  ChooseLargest(logits, params.logits.cols, params.chosen, experts);
  const float largest = logits[experts[0]];
  float sum = 0;
  for (int i = 0; i < params.chosen; ++i) {
    weights[i] = std::exp(logits[experts[i]] - largest);
    sum += weights[i];
  }
  if (!params.softmax_of_chosen) {
    sum = 0;
    for (int64_t e = 0; e < params.logits.cols; ++e) sum += std::exp(logits[e] - largest);
  }
  for (int i = 0; i < params.chosen; ++i) weights[i] /= sum;
}

}  // namespace

absl::Status Route(CpuStream& stream, const RouteParams& params) {
  CheckRoute(params);
  stream.ParallelRows(params.logits.rows, 8 * params.logits.cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) RouteRow(params, r);
  });
  return absl::OkStatus();
}

absl::Status GatherRows(CpuStream& stream, const GatherRowsParams& params) {
  CheckGatherRows(params);
  const int64_t cols = params.input.cols;
  stream.ParallelRows(params.output.rows, cols, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(params.input.row(params.rows[i]), cols, params.output.row(i));
    }
  });
  return absl::OkStatus();
}

absl::Status ScatterAdd(const SimdKernels& isa, CpuStream& stream, const ScatterAddParams& params) {
  CheckScatterAdd(params);
  const int64_t cols = params.input.cols;
  stream.ParallelRows(params.input.rows, 2 * cols, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      isa.add_scaled_row(params.input.row(i), params.weights[i], params.output.row(params.rows[i]),
                         cols);
    }
  });
  return absl::OkStatus();
}

}  // namespace annulus::cpu
