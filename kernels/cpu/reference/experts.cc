// Reference routing of rows to experts, and their products.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/reference/reference.h"
#include "kernels/ops/checks.h"

namespace annulus::reference {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The indices of `keys`, the largest first, of equal ones the lowest.
std::vector<int32_t> Descending(const std::vector<float>& keys) {
  std::vector<int32_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return keys[a] > keys[b]; });
  return order;
}

// Sets the keys of all experts outside the best groups to minus infinity.
void KeepBestGroups(const RoutingRule& rule, std::vector<float>& keys) {
  const size_t size = keys.size() / static_cast<size_t>(rule.groups);
  std::vector<float> sums;
  for (size_t first = 0; first < keys.size(); first += size) {
    std::vector<float> group(keys.begin() + first, keys.begin() + first + size);
    std::sort(group.begin(), group.end(), std::greater<>());
    sums.push_back(group[0] + group[1]);
  }
  const std::vector<int32_t> order = Descending(sums);
  for (size_t g = static_cast<size_t>(rule.chosen_groups); g < order.size(); ++g) {
    const auto first = keys.begin() + order[g] * size;
    std::fill(first, first + size, kMinusInfinity);
  }
}

void RouteRow(const RouteParams& params, std::vector<float> logits, int32_t* chosen,
              float* weights) {
  const RoutingRule& rule = params.rule;
  const bool sigmoid = rule.scores == RoutingRule::Scores::kSigmoid;
  for (float& logit : logits) {
    if (std::isnan(logit)) logit = kMinusInfinity;
  }
  std::vector<float> keys = logits;
  for (size_t e = 0; sigmoid && e < keys.size(); ++e) {
    keys[e] = 1 / (1 + std::exp(-logits[e])) + (params.bias == nullptr ? 0 : params.bias[e]);
  }
  if (rule.groups > 1) KeepBestGroups(rule, keys);
  std::vector<int32_t> order = Descending(keys);
  const float largest = logits[order[0]];
  const auto score = [&](int32_t e) {
    return sigmoid ? 1 / (1 + std::exp(-logits[e])) : std::exp(logits[e] - largest);
  };
  float sum = sigmoid ? 1e-20f : 0;
  const int64_t counted = rule.normalised ? rule.chosen : params.logits.cols;
  for (int64_t i = 0; i < counted; ++i) sum += score(order[i]);
  if (sigmoid && !rule.normalised) sum = 1;
  std::sort(order.begin(), order.begin() + rule.chosen);
  for (int i = 0; i < rule.chosen; ++i) {
    chosen[i] = order[i];
    weights[i] = score(order[i]) / sum * rule.scale;
    if (params.factors != nullptr) weights[i] *= params.factors[order[i]];
  }
}

}  // namespace

absl::Status Route(Stream&, const RouteParams& params) {
  CheckRoute(params);
  const int64_t experts = params.logits.cols;
  for (int64_t r = 0; r < params.logits.rows; ++r) {
    const int64_t first = r * params.rule.chosen;
    RouteRow(params, {params.logits.row(r), params.logits.row(r) + experts}, params.experts + first,
             params.weights + first);
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
