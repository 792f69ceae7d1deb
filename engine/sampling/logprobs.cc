#include "engine/sampling/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/candidates.h"

namespace annulus {
namespace {

double LogSumExp(std::span<const float> logits) {
  float maximum = -std::numeric_limits<float>::infinity();
  for (float logit : logits) maximum = std::max(maximum, ReadLogit(logit));
  double sum = 0;
  for (float logit : logits) sum += std::exp(double{ReadLogit(logit)} - maximum);
  return maximum + std::log(sum);
}

// The `count` greatest logits above -inf, in the order of preference. Keeps a short sorted list:
// count is at most 20, so few logits of a large vocabulary ever enter it.
std::vector<Candidate> Greatest(std::span<const float> logits, size_t count) {
  std::vector<Candidate> greatest;
  if (count == 0) return greatest;
  greatest.reserve(count + 1);
  for (size_t token = 0; token < logits.size(); ++token) {
    const Candidate candidate{ReadLogit(logits[token]), static_cast<int32_t>(token)};
    if (std::isinf(candidate.value)) continue;
    if (greatest.size() == count && !Before(candidate, greatest.back())) continue;
    greatest.insert(std::upper_bound(greatest.begin(), greatest.end(), candidate, Before),
                    candidate);
    if (greatest.size() > count) greatest.pop_back();
  }
  return greatest;
}

}  // namespace

TokenLogprob LogprobOf(std::span<const float> logits, int32_t token, int32_t alternatives) {
  const double normaliser = LogSumExp(logits);
  TokenLogprob result;
  result.token_id = token;
  result.logprob = static_cast<float>(ReadLogit(logits[token]) - normaliser);
  for (const Candidate& candidate : Greatest(logits, alternatives)) {
    result.alternatives.emplace_back(candidate.token,
                                     static_cast<float>(candidate.value - normaliser));
  }
  return result;
}

}  // namespace annulus
