#include "bench/quality/next_tokens.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "bench/report/statistics.h"
#include "kernels/base/check.h"

namespace annulus::bench {
namespace {

// ln of the sum of exp(logits), of which `most` is the largest.
double LogSum(std::span<const float> logits, float most) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
  return most + std::log(sum);
}

}  // namespace

ExpectedToken::ExpectedToken(std::span<const float> logits) {
  const auto most = std::max_element(logits.begin(), logits.end());
  choice = most - logits.begin();
  const double log_sum = LogSum(logits, *most);
  log_probabilities.reserve(logits.size());
  probabilities.reserve(logits.size());
  for (const float logit : logits) {
    log_probabilities.push_back(logit - log_sum);
    probabilities.push_back(std::exp(log_probabilities.back()));
  }
}

void NextTokens::Add(const ExpectedToken& reference, std::span<const float> compared,
                     int32_t next) {
  ANNULUS_CHECK(reference.probabilities.size() == compared.size() && next >= 0 &&
                static_cast<size_t>(next) < compared.size());
  const auto most = std::max_element(compared.begin(), compared.end());
  const double log_sum = LogSum(compared, *most);
  double divergence = 0;
  for (size_t token = 0; token < compared.size(); ++token) {
    divergence += reference.probabilities[token] *
                  (reference.log_probabilities[token] - (compared[token] - log_sum));
  }
  reference_loss_ -= reference.log_probabilities[static_cast<size_t>(next)];
  loss_ += log_sum - compared[static_cast<size_t>(next)];
  same_ += reference.choice == most - compared.begin() ? 1 : 0;
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
