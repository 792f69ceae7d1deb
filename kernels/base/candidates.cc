#include "kernels/base/candidates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/base/check.h"

namespace annulus {
namespace {

double Total(std::span<const Candidate> weights) {
  double total = 0;
  for (const Candidate& candidate : weights) total += candidate.value;
  return total;
}

}  // namespace

int32_t GreatestToken(std::span<const float> logits) {
  constexpr size_t kLanes = 16;  // side by side: vectors
  std::array<float, kLanes> lanes;
  lanes.fill(-std::numeric_limits<float>::infinity());
  const auto take = [&](size_t first, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const float logit = logits[first + i];
      lanes[i] = logit > lanes[i] ? logit : lanes[i];  // NaN is not
    }
  };
  const size_t whole = logits.size() / kLanes * kLanes;
  for (size_t first = 0; first < whole; first += kLanes) take(first, kLanes);
  take(whole, logits.size() - whole);
  const float greatest = ReadLogit(*std::max_element(lanes.begin(), lanes.end()));
  if (greatest == -std::numeric_limits<float>::infinity()) return -1;
  const auto found =
      std::find_if(logits.begin(), logits.end(), [&](float logit) { return logit >= greatest; });
  return static_cast<int32_t>(found - logits.begin());
}

void ToWeights(std::span<Candidate> candidates, float temperature) {
  const double maximum = std::min_element(candidates.begin(), candidates.end(), Before)->value;
  for (Candidate& candidate : candidates) {
    candidate.value = static_cast<float>(std::exp((candidate.value - maximum) / temperature));
  }
}

std::span<Candidate> KeepTopK(std::span<Candidate> weights, int32_t k) {
  if (k <= 0 || static_cast<size_t>(k) >= weights.size()) return weights;
  std::partial_sort(weights.begin(), weights.begin() + k, weights.end(), Before);
  return weights.first(k);
}

std::span<Candidate> KeepTopP(std::span<Candidate> weights, float p) {
  if (p >= 1) return weights;
  const double wanted = p * Total(weights);
  // A heap instead of a sort: the kept part is usually a small share of the vocabulary.
  const auto after = [](const Candidate& a, const Candidate& b) { return Before(b, a); };
  std::make_heap(weights.begin(), weights.end(), after);
  auto heap_end = weights.end();
  double reached = 0;
  do {
    std::pop_heap(weights.begin(), heap_end, after);
    --heap_end;
    reached += heap_end->value;
  } while (reached < wanted && heap_end != weights.begin());
  std::reverse(heap_end, weights.end());
  return {heap_end, weights.end()};
}

std::span<Candidate> KeepMinP(std::span<Candidate> weights, float min_p) {
  const auto kept_end = std::remove_if(weights.begin(), weights.end(),
                                       [min_p](const Candidate& c) { return c.value < min_p; });
  return {weights.begin(), kept_end};
}

int32_t Draw(std::span<const Candidate> weights, double uniform) {
  const double target = uniform * Total(weights);
  double reached = 0;
  for (const Candidate& candidate : weights) {
    reached += candidate.value;
    if (reached > target) return candidate.token;
  }
  // The sum repeats Total term by term and uniform is below 1, so only a total of 0 leads here,
  // or a product that rounds up to the total itself.
  for (auto last = weights.rbegin(); last != weights.rend(); ++last) {
    if (last->value > 0) return last->token;
  }
  ANNULUS_CHECK(false) << "no candidate has weight";
  return -1;
}

}  // namespace annulus
