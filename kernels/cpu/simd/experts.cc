// Routing of rows to experts and their products, of the SIMD path.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/simd/ops.h"
#include "kernels/ops/checks.h"

namespace annulus::cpu {
namespace {

float CountedLogit(float logit) {
  return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
}

// Keeps the `chosen` largest logits in descending order, of equal ones the earlier first: one pass
// with insertion, as `chosen` is small.
void ChooseLargest(const float* logits, int64_t count, int chosen, int32_t* experts) {
  const auto larger = [&](int32_t a, int32_t b) {
    return CountedLogit(logits[a]) > CountedLogit(logits[b]);
  };
  int kept = 0;
  for (int32_t e = 0; e < count; ++e) {
    if (kept == chosen && !larger(e, experts[kept - 1])) continue;
    int place = kept < chosen ? kept++ : chosen - 1;
    for (; place > 0 && larger(e, experts[place - 1]); --place) {
      experts[place] = experts[place - 1];
    }
    experts[place] = e;
  }
}

// Sets the keys of all experts outside the best groups to minus infinity.
void KeepBestGroups(const RoutingRule& rule, int64_t experts, float* keys) {
  const int64_t size = experts / rule.groups;
  std::array<float, kMostExperts> sums;
  for (int g = 0; g < rule.groups; ++g) {
    const float* const group = keys + g * size;
    float first = std::max(group[0], group[1]);
    float second = std::min(group[0], group[1]);
    for (int64_t e = 2; e < size; ++e) {
      second = std::max(second, std::min(first, group[e]));
      first = std::max(first, group[e]);
    }
    sums[static_cast<size_t>(g)] = first + second;
  }
  std::array<int32_t, kMostExperts> best;
  ChooseLargest(sums.data(), rule.groups, rule.chosen_groups, best.data());
  std::sort(best.begin(), best.begin() + rule.chosen_groups);
  const int32_t* next = best.data();
  for (int32_t g = 0; g < rule.groups; ++g) {
    if (next != best.data() + rule.chosen_groups && *next == g) {
      ++next;
    } else {
      std::fill_n(keys + g * size, size, -std::numeric_limits<float>::infinity());
    }
  }
}

void RouteBySigmoid(const RouteParams& params, const float* logits, int32_t* experts,
                    float* weights) {
  const RoutingRule& rule = params.rule;
  std::array<float, kMostExperts> scores, keys;
  for (int64_t e = 0; e < params.logits.cols; ++e) {
    const auto i = static_cast<size_t>(e);
    scores[i] = 1 / (1 + std::exp(-CountedLogit(logits[e])));
    keys[i] = params.bias == nullptr ? scores[i] : scores[i] + params.bias[e];
  }
  if (rule.groups > 1) KeepBestGroups(rule, params.logits.cols, keys.data());
  ChooseLargest(keys.data(), params.logits.cols, rule.chosen, experts);
  std::sort(experts, experts + rule.chosen);
  float sum = 1e-20f;
  for (int i = 0; i < rule.chosen; ++i) sum += scores[static_cast<size_t>(experts[i])];
  if (!rule.normalised) sum = 1;
  for (int i = 0; i < rule.chosen; ++i) {
    weights[i] = scores[static_cast<size_t>(experts[i])] / sum * rule.scale;
  }
}

void RouteBySoftmax(const RouteParams& params, const float* logits, int32_t* experts,
                    float* weights) {
  const RoutingRule& rule = params.rule;
  ChooseLargest(logits, params.logits.cols, rule.chosen, experts);
  const float largest = CountedLogit(logits[experts[0]]);
  const auto exponential = [&](int64_t e) { return std::exp(CountedLogit(logits[e]) - largest); };
  float sum = 0;
  if (rule.normalised) {
    for (int i = 0; i < rule.chosen; ++i) sum += exponential(experts[i]);
  } else {
    for (int64_t e = 0; e < params.logits.cols; ++e) sum += exponential(e);
  }
  std::sort(experts, experts + rule.chosen);
  for (int i = 0; i < rule.chosen; ++i) weights[i] = exponential(experts[i]) / sum * rule.scale;
}

void RouteRow(const RouteParams& params, int64_t row) {
  const bool sigmoid = params.rule.scores == RoutingRule::Scores::kSigmoid;
  const int chosen = params.rule.chosen;
  int32_t* experts = params.experts + row * chosen;
  float* weights = params.weights + row * chosen;
  (sigmoid ? RouteBySigmoid : RouteBySoftmax)(params, params.logits.row(row), experts, weights);
  if (params.factors == nullptr) return;
  for (int i = 0; i < chosen; ++i) weights[i] *= params.factors[experts[i]];
}

// The choices that fell on one expert, in their order: at most one of each row.
struct SameExpert {
  std::array<int64_t, kMostChoosingRows> choices;
  size_t count = 0;
};

// Those of the expert of choice `first`; none where an earlier one is of the same.
SameExpert ChoicesFrom(const ExpertLinearParams& params, int64_t first) {
  SameExpert same;
  const int32_t expert = params.experts[first];
  for (int64_t i = 0; i < params.output.rows; ++i) {
    if (params.experts[i] != expert) continue;
    if (i < first) return {};
    same.choices[same.count++] = i;
  }
  return same;
}

// One product of rows that do not lie side by side, by way of the workspace.
absl::Status MultiplyTogether(CpuStream& stream, const ExpertLinearParams& params,
                              const SameExpert& same, int64_t share, LinearParams product,
                              LinearOp linear) {
  const auto rows = static_cast<int64_t>(same.count);
  const int64_t in = params.input.cols;
  const int64_t out = params.output.cols;
  ANNULUS_ASSIGN_OR_RETURN(
      std::byte* const scratch,
      stream.OuterScratch(same.count * static_cast<size_t>(in + out) * sizeof(float)));
  const MatrixView input{reinterpret_cast<float*>(scratch), rows, in, in};
  product.input = input;
  product.output = {input.data + rows * in, rows, out, out};
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(params.input.row(same.choices[r] / share), in, input.row(r));
  }
  ANNULUS_RETURN_IF_ERROR(linear(stream, product));
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(product.output.row(r), out, params.output.row(same.choices[r]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Route(CpuStream& stream, const RouteParams& params) {
  CheckRoute(params);
  stream.ParallelRows(params.logits.rows, 8 * params.logits.cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) RouteRow(params, r);
  });
  return absl::OkStatus();
}

absl::Status ExpertLinear(CpuStream& stream, const ExpertLinearParams& params, LinearOp linear) {
  CheckExpertLinear(params);
  const int64_t share = params.output.rows == params.input.rows ? 1 : params.chosen;
  for (int64_t i = 0; i < params.output.rows; ++i) {
    const SameExpert same = ChoicesFrom(params, i);
    if (same.count == 0) continue;
    const auto expert = static_cast<size_t>(params.experts[i]);
    LinearParams product;
    product.weight = params.weights->matrices[expert];
    product.bias = params.weights->biases[expert];
    product.activations = params.activations;
    if (same.count > 1) {
      ANNULUS_RETURN_IF_ERROR(MultiplyTogether(stream, params, same, share, product, linear));
      continue;
    }
    product.input = params.input.row_range(i / share, 1);
    product.output = params.output.row_range(i, 1);
    ANNULUS_RETURN_IF_ERROR(linear(stream, product));
  }
  return absl::OkStatus();
}

absl::Status AddChoices(const SimdKernels& isa, CpuStream& stream, const AddChoicesParams& params) {
  CheckAddChoices(params);
  const int64_t cols = params.output.cols;
  const int64_t cost = 2 * params.chosen * cols;
  stream.ParallelRows(params.output.rows, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * params.chosen; i < end * params.chosen; ++i) {
      isa.add_scaled_row(params.input.row(i), params.weights[i],
                         params.output.row(i / params.chosen), cols);
    }
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
