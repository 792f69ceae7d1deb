#ifndef ANNULUS_KERNELS_BASE_CANDIDATES_H_
#define ANNULUS_KERNELS_BASE_CANDIDATES_H_

// The steps of drawing one token, as pure functions over candidates. Every filter works in place
// and returns the kept part of its argument; the order of candidates that it leaves is fixed by
// its input, so sums and draws repeat bit for bit.

#include <cstdint>
#include <limits>
#include <span>

namespace annulus {

// A token with its logit, or after ToWeights its weight.
struct Candidate {
  float value = 0;
  int32_t token = 0;
};

// A logit as sampling reads it: NaN is -inf (never chosen), +inf the greatest finite value.
constexpr float ReadLogit(float logit) {
  constexpr float kMost = std::numeric_limits<float>::max();
  if (logit != logit) return -std::numeric_limits<float>::infinity();
  return logit > kMost ? kMost : logit;
}

// The order of preference: greater value first, and of equal values the lower token id.
inline bool Before(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.token < b.token);
}

// The token that is Before all others, as ReadLogit reads them; -1 where none is above -inf.
int32_t GreatestToken(std::span<const float> logits);

// Turns logits into weights exp((logit - maximum) / temperature): the softmax up to a common
// factor, the greatest exactly 1. At least one logit is finite, none is NaN or +inf;
// temperature > 0. No candidate is dropped.
void ToWeights(std::span<Candidate> candidates, float temperature);

// The k first in the order of preference, in that order. k <= 0 or k >= size: all, as they are.
// Fan, Lewis and Dauphin, arXiv 1805.04833, section 5.
std::span<Candidate> KeepTopK(std::span<Candidate> weights, int32_t k);

// The shortest beginning of the order of preference whose weight reaches p of the total, in that
// order; at least one. p >= 1: all, as they are. Holtzman et al., arXiv 1904.09751, section 3.1.
std::span<Candidate> KeepTopP(std::span<Candidate> weights, float p);

// Those whose weight is at least min_p times the greatest, which is 1; their order is kept.
// Nguyen et al., arXiv 2407.01082, section 3.
std::span<Candidate> KeepMinP(std::span<Candidate> weights, float min_p);

// The token at `uniform` (in [0, 1)) of the cumulative weight, in the candidates' order; one of
// weight 0 is never drawn. At least one weight is positive.
int32_t Draw(std::span<const Candidate> weights, double uniform);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_CANDIDATES_H_
