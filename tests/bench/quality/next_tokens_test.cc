#include "bench/quality/next_tokens.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace annulus::bench {
namespace {

// Logits of probabilities, moved by a constant, which means nothing.
std::vector<float> Logits(const std::vector<double>& probabilities, double by) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + by));
  return logits;
}

TEST(NextTokensTest, MeasuresWhatTheFormulasSay) {
  NextTokens next;
  const std::vector<double> p = {0.5, 0.25, 0.25};
  const std::vector<double> q = {0.25, 0.5, 0.25};
  next.Add(ExpectedToken(Logits(p, 0)), Logits(p, 100), 0);
  next.Add(ExpectedToken(Logits(p, -3)), Logits(q, 7), 1);
  EXPECT_EQ(next.count(), 2);
  // exp of the mean of ln 2 and ln 4, and of ln 2 and ln 2.
  EXPECT_NEAR(next.reference_perplexity(), std::sqrt(8.0), 1e-5);
  EXPECT_NEAR(next.perplexity(), 2, 1e-5);
  const double divergence = 0.5 * std::log(2.0) - 0.25 * std::log(2.0);
  EXPECT_NEAR(next.mean_divergence(), divergence / 2, 1e-5);
  EXPECT_NEAR(next.high_divergence(), divergence, 1e-5);
  EXPECT_EQ(next.same_choice(), 0.5);
}

TEST(NextTokensTest, AddsUp) {
  NextTokens a;
  NextTokens b;
  NextTokens all;
  const auto one = Logits({0.9, 0.1}, 0);
  const auto other = Logits({0.3, 0.7}, 0);
  a.Add(ExpectedToken(one), other, 1);
  b.Add(ExpectedToken(other), one, 0);
  b.Add(ExpectedToken(one), one, 0);
  all.Add(ExpectedToken(one), other, 1);
  all.Add(ExpectedToken(other), one, 0);
  all.Add(ExpectedToken(one), one, 0);
  a.Add(b);
  EXPECT_EQ(a.count(), 3);
  EXPECT_DOUBLE_EQ(a.perplexity(), all.perplexity());
  EXPECT_DOUBLE_EQ(a.mean_divergence(), all.mean_divergence());
  EXPECT_DOUBLE_EQ(a.same_choice(), 1.0 / 3);
}

TEST(NextTokensTest, HugeLogitsStayFinite) {
  NextTokens next;
  next.Add(ExpectedToken(std::vector<float>{3e4f, -3e4f}), std::vector<float>{-3e4f, 3e4f}, 0);
  EXPECT_TRUE(std::isfinite(next.mean_divergence()));
  EXPECT_NEAR(next.mean_divergence(), 6e4, 1);
}

}  // namespace
}  // namespace annulus::bench
