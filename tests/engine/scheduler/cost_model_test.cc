#include "engine/scheduler/cost_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace annulus {
namespace {

// Llama 3 405B as arXiv 2411.01783 serves it (section 4): a node of eight GPUs is one rank, bf16
// throughout, and nodes are linked by 400 Gbit/s for each GPU.
AttentionGeometry PaperGeometry() {
  AttentionGeometry geometry;
  geometry.heads = 128;
  geometry.kv_heads = 8;
  geometry.head_dim = 128;
  geometry.kv_bytes_per_element = 2;
  geometry.query_bytes_per_element = 2;
  return geometry;
}

ExchangeRates PaperRates() {
  ExchangeRates rates;
  rates.flops = 8 * 400e12;
  rates.link_bytes_per_second = 8 * 26e9;
  rates.message_seconds = 0;
  return rates;
}

TEST(CostModel, OneRankExchangesNothing) {
  EXPECT_EQ(ExchangeSeconds(RingMode::kPassKv, 10, 10, 1, PaperGeometry(), PaperRates()), 0);
  EXPECT_EQ(ExchangeSeconds(RingMode::kPassQ, 10, 10, 1, PaperGeometry(), PaperRates()), 0);
}

// Algorithm 1: pass-KV where T / (T + P) >= 2 G / H, or T >= N C G e / (2 H BW).
TEST(CostModel, ThePapersThresholdsComeOut) {
  std::mt19937_64 random(7);
  const auto log_uniform = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution<>(std::log(low), std::log(high))(random));
  };
  int many_new = 0;
  int enough_work = 0;
  int neither = 0;
  for (int n = 0; n < 20'000; ++n) {
    AttentionGeometry g = PaperGeometry();
    g.kv_heads = 1 << random() % 4;
    g.heads = g.kv_heads << random() % 6;
    ExchangeRates rates = PaperRates();
    rates.flops = log_uniform(1e12, 1e16);
    rates.link_bytes_per_second = log_uniform(1e9, 1e12);
    const int degree = 2 + static_cast<int>(random() % 15);
    const double t = std::floor(log_uniform(1, 1e6));
    const double p = std::floor(log_uniform(1, 1e7));
    const auto choose =
        ChooseRingMode(static_cast<int64_t>(t), static_cast<int64_t>(p), degree, g, rates);
    const double ratio = 2.0 * g.kv_heads / g.heads;
    const double hidden = degree * rates.flops * g.kv_heads * g.kv_bytes_per_element /
                          (2 * g.heads * rates.link_bytes_per_second);
    SCOPED_TRACE(testing::Message() << "T " << t << " P " << p << " ranks " << degree << " heads "
                                    << g.heads << "/" << g.kv_heads << " case " << n);
    // The paper counts T (T + P) pairs in the second test, where causal attention has T P + T^2/2.
    const double pairs = (t * p + t * t / 2) / (t * (t + p));
    if (t / (t + p) >= ratio) {
      ++many_new;
      ASSERT_EQ(choose, RingMode::kPassKv);
    } else if (t * pairs >= hidden) {
      ++enough_work;
      ASSERT_EQ(choose, RingMode::kPassKv);
      ASSERT_EQ(ExchangeSeconds(RingMode::kPassKv, static_cast<int64_t>(t), static_cast<int64_t>(p),
                                degree, g, rates),
                0);
    } else {
      // Below both, keys and values stay exposed: by exactly what attention does not cover.
      ++neither;
      const double share = (degree - 1.0) / degree;
      const double bytes = 4 * (t + p) * g.kv_heads * g.head_dim * share;
      const double attention =
          4.0 * g.heads * g.head_dim * t * (t + p) * pairs / degree / rates.flops * share;
      const double exposed = bytes / rates.link_bytes_per_second - attention;
      ASSERT_NEAR(ExchangeSeconds(RingMode::kPassKv, static_cast<int64_t>(t),
                                  static_cast<int64_t>(p), degree, g, rates),
                  exposed, 1e-9 * bytes / rates.link_bytes_per_second);
    }
  }
  EXPECT_GT(std::min({many_new, enough_work, neither}), 500);
}

// Their measurement (table 4, 128,000 tokens on 4 ranks): pass-Q is quicker at 1% of new tokens,
// pass-KV at 10%.
TEST(CostModel, ChangesModeBetweenOneAndTenPercentOfMisses) {
  const auto choose = [](int64_t rows) {
    return ChooseRingMode(rows, 128'000 - rows, 4, PaperGeometry(), PaperRates());
  };
  EXPECT_EQ(choose(1'280), RingMode::kPassQ);
  EXPECT_EQ(choose(12'800), RingMode::kPassKv);
  EXPECT_EQ(choose(128'000), RingMode::kPassKv);
}

// In one address space only messages and their parts cost anything.
TEST(CostModel, WhereNothingIsCopiedOnlyLongListsOfPagesCount) {
  AttentionGeometry geometry = PaperGeometry();
  geometry.page_tokens = 64;
  ExchangeRates rates;
  rates.link_bytes_per_second = 0;
  rates.message_seconds = 6e-6;
  rates.part_seconds = 6e-9;
  const auto seconds = [&](RingMode mode, int64_t rows, int64_t cached) {
    return ExchangeSeconds(mode, rows, cached, 4, geometry, rates);
  };
  EXPECT_DOUBLE_EQ(seconds(RingMode::kPassQ, 64, 1'000'000), 6 * 6e-6);
  EXPECT_DOUBLE_EQ(seconds(RingMode::kPassQ, 2048, 0), 6 * 6e-6);
  EXPECT_DOUBLE_EQ(seconds(RingMode::kPassKv, 0, 64 * 4'000), 3 * 6e-6 + 3'000 * 6e-9);
  // k m / part = 4000 pages: shorter sequences pass keys and values, longer ones queries.
  EXPECT_EQ(ChooseRingMode(64, 200'000, 4, geometry, rates), RingMode::kPassKv);
  EXPECT_EQ(ChooseRingMode(64, 300'000, 4, geometry, rates), RingMode::kPassQ);
}

}  // namespace
}  // namespace annulus
