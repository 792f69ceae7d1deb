#include "bench/quality/next_tokens.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "bench/report/statistics.h"
#include "kernels/base/check.h"

namespace annulus::bench {
namespace {

// ln of the sum of exp(logits).
double LogSum(std::span<const float> logits, float most) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
  return most + std::log(sum);
}

}  // namespace

void NextTokens::Add(std::span<const float> reference, std::span<const float> compared,
                     int32_t next) {
  ANNULUS_CHECK(reference.size() == compared.size() && next >= 0 &&
                static_cast<size_t>(next) < reference.size());
  const auto most = std::max_element(reference.begin(), reference.end());
  const auto compared_most = std::max_element(compared.begin(), compared.end());
  const double log_sum = LogSum(reference, *most);
  const double compared_log_sum = LogSum(compared, *compared_most);
  double divergence = 0;
  for (size_t token = 0; token < reference.size(); ++token) {
    const double log_p = reference[token] - log_sum;
    divergence += std::exp(log_p) * (log_p - (compared[token] - compared_log_sum));
  }
  reference_loss_ += log_sum - reference[static_cast<size_t>(next)];
  loss_ += compared_log_sum - compared[static_cast<size_t>(next)];
  same_ += most - reference.begin() == compared_most - compared.begin() ? 1 : 0;
  // Of equal distributions rounding leaves a little on either side of 0.
  divergences_.push_back(std::max(divergence, 0.0));
}

void NextTokens::Add(const NextTokens& more) {
  reference_loss_ += more.reference_loss_;
  loss_ += more.loss_;
  same_ += more.same_;
  divergences_.insert(divergences_.end(), more.divergences_.begin(), more.divergences_.end());
}

double NextTokens::reference_perplexity() const {
  return std::exp(reference_loss_ / static_cast<double>(count()));
}

double NextTokens::perplexity() const { return std::exp(loss_ / static_cast<double>(count())); }

double NextTokens::mean_divergence() const {
  return std::accumulate(divergences_.begin(), divergences_.end(), 0.0) /
         static_cast<double>(count());
}

double NextTokens::high_divergence() const { return Percentile(divergences_, 0.99); }

double NextTokens::same_choice() const {
  return static_cast<double>(same_) / static_cast<double>(count());
}

}  // namespace annulus::bench
