#include "engine/scheduler/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "engine/scheduler/placement.h"

namespace annulus {
namespace {

// Llama 3 405B as arXiv 2411.01783 serves it (section 4): a node of eight GPUs is one rank, bf16
// throughout, and nodes are linked by 400 Gbit/s for each GPU.
AttentionGeometry PaperGeometry() {
  return {.heads = 128, .page = {64, 8, 128, 128, DType::kBF16}, .query_bytes_per_element = 2};
}

ExchangeRates PaperRates() {
  ExchangeRates rates;
  rates.attention = {{1, 8 * 400e12, 8 * 400e12}};
  rates.link_bytes_per_second = 8 * 26e9;
  rates.message_seconds = 0;
  return rates;
}

// The same on every rank, as the paper counts.
RingWork EvenWork(double rows, double cached, int degree) {
  return {static_cast<int64_t>(rows), static_cast<int64_t>(cached), degree, 1.0 / degree,
          1.0 / degree};
}

TEST(CostModel, OneRankExchangesNothing) {
  const RingWork work = StripedWork(10, 10, 1, 64, 8);
  EXPECT_EQ(work.row_share, 1);
  EXPECT_EQ(work.key_share, 1);
  EXPECT_EQ(ExchangeSeconds(RingMode::kPassKv, work, PaperGeometry(), PaperRates()), 0);
  EXPECT_EQ(ExchangeSeconds(RingMode::kPassQ, work, PaperGeometry(), PaperRates()), 0);
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
    const int kv_heads = g.page.kv_heads = 1 << random() % 4;
    g.heads = kv_heads << random() % 6;
    ExchangeRates rates = PaperRates();
    const double flops = log_uniform(1e12, 1e16);
    rates.attention = {{1, flops, flops}};
    rates.link_bytes_per_second = log_uniform(1e9, 1e12);
    const int degree = 2 + static_cast<int>(random() % 15);
    const double t = std::floor(log_uniform(1, 1e6));
    const double p = std::floor(log_uniform(1, 1e7));
    const RingWork work = EvenWork(t, p, degree);
    const auto choose = ChooseRingMode(work, g, rates);
    const double ratio = 2.0 * kv_heads / g.heads;
    const double hidden =
        degree * flops * kv_heads * 2 / (2 * g.heads * rates.link_bytes_per_second);
    SCOPED_TRACE(::testing::Message() << "T " << t << " P " << p << " ranks " << degree << " heads "
                                      << g.heads << "/" << kv_heads << " case " << n);
    // The paper counts T (T + P) pairs in the second test, where causal attention has T P + T^2/2.
    const double pairs = (t * p + t * t / 2) / (t * (t + p));
    if (t / (t + p) >= ratio) {
      ++many_new;
      ASSERT_EQ(choose, RingMode::kPassKv);
    } else if (t * pairs >= hidden) {
      ++enough_work;
      ASSERT_EQ(choose, RingMode::kPassKv);
      ASSERT_EQ(ExchangeSeconds(RingMode::kPassKv, work, g, rates), 0);
    } else {
      // Below both, keys and values stay exposed: by exactly what attention does not cover.
      ++neither;
      const double share = (degree - 1.0) / degree;
      const double bytes = 4 * (t + p) * kv_heads * 128 * share;
      const double attention = 4.0 * g.heads * 128 * t * (t + p) * pairs / degree / flops * share;
      const double exposed = bytes / rates.link_bytes_per_second - attention;
      ASSERT_NEAR(ExchangeSeconds(RingMode::kPassKv, work, g, rates), exposed,
                  1e-9 * bytes / rates.link_bytes_per_second);
    }
  }
  EXPECT_GT(std::min({many_new, enough_work, neither}), 500);
}

// Their measurement (table 4, 128,000 tokens on 4 ranks): pass-Q is quicker at 1% of new tokens,
// pass-KV at 10%.
TEST(CostModel, ChangesModeBetweenOneAndTenPercentOfMisses) {
  const auto choose = [](int64_t rows) {
    return ChooseRingMode(EvenWork(rows, 128'000 - rows, 4), PaperGeometry(), PaperRates());
  };
  EXPECT_EQ(choose(1'280), RingMode::kPassQ);
  EXPECT_EQ(choose(12'800), RingMode::kPassKv);
  EXPECT_EQ(choose(128'000), RingMode::kPassKv);
}

// In one address space only messages and their parts cost anything in the exchange.
TEST(CostModel, WhereNothingIsCopiedOnlyLongListsOfPagesCount) {
  const AttentionGeometry geometry = PaperGeometry();
  ExchangeRates rates;
  rates.link_bytes_per_second = 0;
  rates.message_seconds = 6e-6;
  rates.part_seconds = 6e-9;
  const auto seconds = [&](RingMode mode, int64_t rows, int64_t cached) {
    return ExchangeSeconds(mode, EvenWork(rows, cached, 4), geometry, rates);
  };
  EXPECT_DOUBLE_EQ(seconds(RingMode::kPassQ, 64, 1'000'000), 6 * 6e-6);
  EXPECT_DOUBLE_EQ(seconds(RingMode::kPassQ, 2048, 0), 6 * 6e-6);
  EXPECT_DOUBLE_EQ(seconds(RingMode::kPassKv, 0, 64 * 4'000), 3 * 6e-6 + 3'000 * 6e-9);
  // k m / part = 4000 pages: shorter sequences pass keys and values, longer ones queries.
  EXPECT_EQ(ChooseRingMode(EvenWork(256, 200'000, 4), geometry, rates), RingMode::kPassKv);
  EXPECT_EQ(ChooseRingMode(EvenWork(256, 300'000, 4), geometry, rates), RingMode::kPassQ);
}

// Against counting position by position.
TEST(CostModel, SharesAreThoseOfTheFullestRank) {
  std::mt19937 random(3);
  for (int n = 0; n < 2000; ++n) {
    const int degree = 1 + static_cast<int>(random() % 8);
    const int page = 1 << random() % 6;
    const int rows = 1 + static_cast<int>(random() % 300);
    const int cached = static_cast<int>(random() % 700);
    std::vector<int> rows_of(degree, 0);
    std::vector<int> keys_of(degree, 0);
    for (int position = 0; position < cached + rows; ++position) {
      const int index = PlaceOnRing(position, page, degree, 8);
      ++keys_of[index];
      if (position >= cached) ++rows_of[index];
    }
    const RingWork work = StripedWork(rows, cached, degree, page, 8);
    SCOPED_TRACE(::testing::Message()
                 << rows << " after " << cached << " over " << degree << " ranks, page " << page);
    ASSERT_DOUBLE_EQ(work.row_share * rows, *std::max_element(rows_of.begin(), rows_of.end()));
    ASSERT_DOUBLE_EQ(work.key_share * (cached + rows),
                     *std::max_element(keys_of.begin(), keys_of.end()));
  }
}

TEST(CostModel, RatesLieBetweenThoseMeasured) {
  ExchangeRates rates;
  rates.attention = {{2, 10e9, 20e9}, {8, 30e9, 60e9}, {64, 36e9, 72e9}};
  EXPECT_DOUBLE_EQ(RateOf(1, rates).flops, 10e9);
  EXPECT_DOUBLE_EQ(RateOf(2, rates).flops, 10e9);
  EXPECT_DOUBLE_EQ(RateOf(4, rates).flops, 20e9);
  EXPECT_DOUBLE_EQ(RateOf(4, rates).alone_flops, 40e9);
  EXPECT_DOUBLE_EQ(RateOf(8, rates).flops, 30e9);
  EXPECT_DOUBLE_EQ(RateOf(16, rates).flops, 32e9);
  EXPECT_DOUBLE_EQ(RateOf(64, rates).alone_flops, 72e9);
  EXPECT_DOUBLE_EQ(RateOf(1e6, rates).alone_flops, 72e9);
}

// Four ranks on two cores: alone, one of them is twice as fast.
ExchangeRates TwoCores() {
  ExchangeRates rates;
  rates.attention = {{1, 2e9, 4e9}, {64, 20e9, 40e9}};
  rates.link_bytes_per_second = 0;
  rates.message_seconds = 5e-6;
  rates.part_seconds = 5e-9;
  return rates;
}

AttentionGeometry SmallGeometry() {
  AttentionGeometry geometry;
  geometry.heads = 8;
  geometry.page.kv_heads = 2;
  return geometry;
}

// The rows of one page make one rank attend all in pass-KV, and all of them in pass-Q.
TEST(CostModel, FewRowsAreSharedByTheHoldersOfTheirKeys) {
  const AttentionGeometry geometry = SmallGeometry();
  const auto seconds = [&](RingMode mode, int64_t rows, int64_t cached) {
    return AttentionSeconds(mode, StripedWork(rows, cached, 4, 64, 8), geometry, TwoCores());
  };
  const double flops = 4.0 * 8 * 64 * (64 * 16384 + 64 * 32);
  EXPECT_DOUBLE_EQ(seconds(RingMode::kPassKv, 64, 16384), flops / 40e9);
  EXPECT_DOUBLE_EQ(seconds(RingMode::kPassQ, 64, 16384), flops / 4 / 20e9);
  // A row on each rank, or two ranks of four: the two cores are at work in both modes.
  for (const int64_t rows : {128, 256, 4096}) {
    EXPECT_DOUBLE_EQ(seconds(RingMode::kPassKv, rows, 16384),
                     seconds(RingMode::kPassQ, rows, 16384));
  }
  // Each of the four calls costs as many keys more.
  ExchangeRates rates = TwoCores();
  rates.call_keys = 100;
  EXPECT_DOUBLE_EQ(
      AttentionSeconds(RingMode::kPassKv, StripedWork(64, 16384, 4, 64, 8), geometry, rates),
      flops / 40e9 + 4.0 * 8 * 64 * 64 * 400 / 40e9);
  EXPECT_DOUBLE_EQ(
      AttentionSeconds(RingMode::kPassKv, StripedWork(64, 64, 4, 64, 8), geometry, rates),
      4.0 * 8 * 64 * 64 * (96 + 200) / 40e9);
  // One page: its holder attends it in both.
  EXPECT_DOUBLE_EQ(seconds(RingMode::kPassKv, 64, 0), seconds(RingMode::kPassQ, 64, 0));
}

TEST(CostModel, QueriesPassWhereSharedAttentionPaysForTheirMessages) {
  const auto choose = [](int64_t rows, int64_t cached) {
    return ChooseRingMode(StripedWork(rows, cached, 4, 64, 8), SmallGeometry(), TwoCores());
  };
  // 3 further messages take 15 us; half of one row's attention 0.256 us for each key.
  EXPECT_EQ(choose(1, 0), RingMode::kPassKv);
  EXPECT_EQ(choose(1, 32), RingMode::kPassKv);
  EXPECT_EQ(choose(1, 256), RingMode::kPassQ);
  EXPECT_EQ(choose(16, 1024), RingMode::kPassQ);
  EXPECT_EQ(choose(64, 65'536), RingMode::kPassQ);
  EXPECT_EQ(choose(64, 0), RingMode::kPassKv);
  EXPECT_EQ(choose(256, 1024), RingMode::kPassKv);
  EXPECT_EQ(choose(4096, 65'536), RingMode::kPassKv);
  // Where a rank alone is no faster, every processor counts: 5 pages of 64 rows put two on one.
  ExchangeRates own = TwoCores();
  for (AttentionRate& rate : own.attention) rate.alone_flops = rate.flops;
  EXPECT_EQ(ChooseRingMode(StripedWork(320, 16384, 4, 64, 8), SmallGeometry(), own),
            RingMode::kPassQ);
}

// What pass-Q takes besides was measured for some rows; it moves the choice for rows between them.
TEST(CostModel, WhatQueriesTakeBesidesCounts) {
  ExchangeRates rates = TwoCores();
  const RingWork work = StripedWork(8, 192, 4, 64, 8);
  const auto queries = [&] {
    return ExchangeSeconds(RingMode::kPassQ, work, SmallGeometry(), rates);
  };
  const double before = queries();
  EXPECT_EQ(ChooseRingMode(work, SmallGeometry(), rates), RingMode::kPassQ);
  rates.attention[0].query_seconds = 40e-6;
  EXPECT_NEAR(queries() - before, 3 * 20e-6, 1e-9);  // 8 is halfway from 1 to 64
  EXPECT_EQ(ChooseRingMode(work, SmallGeometry(), rates), RingMode::kPassKv);
  rates.attention[0].query_seconds = -40e-6;
  EXPECT_EQ(ChooseRingMode(work, SmallGeometry(), rates), RingMode::kPassQ);
}

}  // namespace
}  // namespace annulus
