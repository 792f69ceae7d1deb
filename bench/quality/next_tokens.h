#ifndef ANNULUS_BENCH_QUALITY_NEXT_TOKENS_H_
#define ANNULUS_BENCH_QUALITY_NEXT_TOKENS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace annulus {

// Compares two models' distributions of the next token, given the same text, position by position.
class NextTokens {
 public:
  // `logits` [vocabulary] of the reference and of the model that is compared; `next`: the token
  // that follows in the text, an index of both.
  void Add(std::span<const float> reference, std::span<const float> compared, int32_t next);
  void Add(const NextTokens& more);

  int64_t count() const { return static_cast<int64_t>(divergences_.size()); }
  // exp of the mean of -ln p(next), at least 1; NaN before the first Add, as are those below.
  double reference_perplexity() const;
  double perplexity() const;
  // Kullback-Leibler divergence of the compared distribution from the reference in nats, at least
  // 0: its mean over positions, and its 99th percentile (nearest rank).
  double mean_divergence() const;
  double high_divergence() const;
  // Share of positions whose most probable token is the same.
  double same_choice() const;

 private:
  double reference_loss_ = 0;
  double loss_ = 0;
  int64_t same_ = 0;
  std::vector<double> divergences_;
};

}  // namespace annulus

#endif  // ANNULUS_BENCH_QUALITY_NEXT_TOKENS_H_
