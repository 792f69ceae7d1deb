#ifndef ANNULUS_KERNELS_BASE_CANDIDATES_H_
#define ANNULUS_KERNELS_BASE_CANDIDATES_H_

// The steps of drawing one token, as pure functions over candidates. Every filter works in place
// and returns the part of its argument that it keeps. The order of the result depends only on the
// order of the input, so sums and draws repeat bit for bit.

#include <cstdint>
#include <limits>
#include <span>

namespace annulus {

// A token with its logit; after ToWeights, with its weight.
struct Candidate {
  float value = 0;
  int32_t token = 0;
};

// Sanitises a logit for sampling: NaN becomes -inf (never chosen), +inf the greatest finite value.
constexpr float ReadLogit(float logit) {
  constexpr float kMost = std::numeric_limits<float>::max();
  if (logit != logit) return -std::numeric_limits<float>::infinity();
  return logit > kMost ? kMost : logit;
}

// The order of preference: greater values first; of equal values, the lower token id.
inline bool Before(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.token < b.token);
}

// The token that comes first in the order of preference, after ReadLogit; -1 if no logit is above
// -inf.
int32_t GreatestToken(std::span<const float> logits);

// Turns logits into weights exp((logit - maximum) / temperature): the softmax up to a common
// factor, with the greatest weight exactly 1. At least one logit must be finite, none NaN or +inf;
// temperature > 0. Keeps all candidates.
void ToWeights(std::span<Candidate> candidates, float temperature);

// Keeps the first k in the order of preference, sorted in that order. If k <= 0 or k >= size,
// returns all of them unchanged. Fan, Lewis and Dauphin, arXiv 1805.04833, section 5.
std::span<Candidate> KeepTopK(std::span<Candidate> weights, int32_t k);

// Keeps the shortest prefix of the order of preference whose weight reaches p of the total, but at
// least one candidate, sorted in that order. If p >= 1, returns all of them unchanged. Holtzman et
// al., arXiv 1904.09751, section 3.1.
std::span<Candidate> KeepTopP(std::span<Candidate> weights, float p);

// Keeps the candidates whose weight is at least min_p times the greatest (which is 1), in their
// order. Nguyen et al., arXiv 2407.01082, section 3.
std::span<Candidate> KeepMinP(std::span<Candidate> weights, float min_p);

// The token at which the cumulative weight, in the candidates' order, passes `uniform` (in [0, 1))
// of the total. Never draws a token of weight 0. At least one weight must be positive.
int32_t Draw(std::span<const Candidate> weights, double uniform);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_CANDIDATES_H_
