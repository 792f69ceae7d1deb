#ifndef ANNULUS_BENCH_QUALITY_NEXT_TOKENS_H_
#define ANNULUS_BENCH_QUALITY_NEXT_TOKENS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace annulus::bench {

// What the reference expects at one position; made once for all models that are compared with it.
struct ExpectedToken {
  // From logits [vocabulary], not empty.
  explicit ExpectedToken(std::span<const float> logits);

  std::vector<double> log_probabilities;
  std::vector<double> probabilities;
  int64_t choice = 0;  // the most probable token, the first of equals
};

// Compares the next-token distributions of two models that read the same text, position by
// position.
class NextTokens {
 public:
  // Adds one position: what the reference expects, the logits [vocabulary] of the compared model,
  // and the token `next` that follows in the text, an index into both.
  void Add(const ExpectedToken& reference, std::span<const float> compared, int32_t next);
  void Add(const NextTokens& more);

  int64_t count() const { return static_cast<int64_t>(divergences_.size()); }
  // exp of the mean of -ln p(next), at least 1. This and all functions below return NaN before the
  // first Add.
  double reference_perplexity() const;
  double perplexity() const;
  // Kullback-Leibler divergence of the compared distribution from the reference, in nats, at least
  // 0: the mean over positions, and the 99th percentile (nearest rank).
  double mean_divergence() const;
  double high_divergence() const;
  // Share of positions at which both models have the same most probable token.
  double same_choice() const;

 private:
  double reference_loss_ = 0;
  double loss_ = 0;
  int64_t same_ = 0;
  std::vector<double> divergences_;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_QUALITY_NEXT_TOKENS_H_
