#include "engine/sparse/block_ranking.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "gtest/gtest.h"

namespace annulus {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

std::vector<float> RandomScores(std::mt19937& random, size_t count) {
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> scores(count);
  for (float& score : scores) score = normal(random);
  return scores;
}

// As many blocks of each query block as `tau` needs.
BlockPattern PatternOf(const BlockRanking& ranking, double tau) {
  return MakePattern(ranking.query_blocks(), ranking.kv_heads(), /*block_tokens=*/64,
                     [&](size_t q, int kv_head, std::vector<int32_t>& blocks) {
                       const auto chosen =
                           ranking.order(q, kv_head).first(ranking.Count(q, kv_head, tau));
                       blocks.assign(chosen.begin(), chosen.end());
                       std::sort(blocks.begin(), blocks.end());
                     });
}

TEST(BlockScoresTest, HoldersOfOneBlockAddUp) {
  BlockScores scores(1, 2, 4);
  scores.Merge(std::vector<float>{1, 2, 3, 4}, std::vector<int32_t>{0, 2}, false);
  scores.Merge(std::vector<float>{1, 5, kNothing, 6}, std::vector<int32_t>{0, 3}, false);
  EXPECT_NEAR(scores.row(0, 0)[0], 1 + std::log(2), 1e-6);
  EXPECT_EQ(scores.row(0, 0)[1], kNothing);
  EXPECT_EQ(scores.row(0, 0)[2], 2);
  EXPECT_EQ(scores.row(0, 0)[3], 5);
  EXPECT_EQ(scores.row(0, 1)[0], 3);
  scores.Merge(std::vector<float>{7, -7}, std::vector<int32_t>{0}, true);
  EXPECT_EQ(scores.row(0, 0)[0], 7);
  EXPECT_EQ(scores.row(0, 1)[0], 3);
}

TEST(BlockMassesTest, HoldersOfOneBlockAddUpAndNothingBehindTheDiagonalCounts) {
  BlockMasses masses({1, 3}, 2);
  masses.Add(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}, std::vector<int32_t>{0, 2});
  masses.Add(std::vector<float>{10, 20, 30, 40}, std::vector<int32_t>{0});
  const auto row = [&](size_t q, int kv_head) {
    const auto of = masses.row(q, kv_head);
    return std::vector<float>(of.begin(), of.end());
  };
  EXPECT_EQ(row(0, 0), (std::vector<float>{11, 0}));
  EXPECT_EQ(row(0, 1), (std::vector<float>{23, 0}));
  EXPECT_EQ(row(1, 0), (std::vector<float>{35, 0, 6, 0}));
  EXPECT_EQ(row(1, 1), (std::vector<float>{47, 0, 8, 0}));
}

TEST(BlockRankingTest, ListsHoldTheDiagonalTheFirstAndTheShare) {
  for (uint32_t seed = 1; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const int kv_heads = 1 + static_cast<int>(random() % 3);
    const int group = 1 + static_cast<int>(random() % 3);
    const std::vector<int32_t> query_blocks = {4, 9, 17};
    BlockScores scores(3, kv_heads * group, 18);
    std::vector<int32_t> all(18);
    for (int32_t b = 0; b < 18; ++b) all[b] = b;
    scores.Merge(RandomScores(random, 3 * static_cast<size_t>(kv_heads * group) * 18), all, false);
    const BlockRanking ranking(MassesOf(scores, kv_heads, query_blocks));
    for (const double tau : {0.01, 0.3, 0.9, 0.999, 1.0}) {
      const BlockPattern pattern = PatternOf(ranking, tau);
      for (const int32_t block : {4, 9, 17}) {
        for (int kv_head = 0; kv_head < kv_heads; ++kv_head) {
          const auto keys = pattern.keys(kv_head, block);
          ASSERT_GE(keys.size(), 2u);
          EXPECT_TRUE(std::is_sorted(keys.begin(), keys.end()));
          EXPECT_EQ(keys.front(), 0);
          EXPECT_EQ(keys.back(), block);
          if (tau == 1) {
            EXPECT_EQ(keys.size(), static_cast<size_t>(block) + 1);
          }
          // Recomputed from the scores: at least the share, and no block to spare.
          double kept = 0, least = 1;
          for (const int32_t key : keys) {
            double mass = 0;
            const auto row = static_cast<int64_t>(ranking.Find(block));
            for (int h = kv_head * group; h < (kv_head + 1) * group; ++h) {
              double total = 0;
              for (int32_t b = 0; b <= block; ++b) total += std::exp(scores.row(row, h)[b]);
              mass += std::exp(scores.row(row, h)[key]) / total / group;
            }
            kept += mass;
            if (key != 0 && key != block) least = std::min(least, mass);
          }
          EXPECT_GE(kept, tau - 1e-5);
          if (keys.size() > 2) {
            EXPECT_LT(kept - least, tau + 1e-5);
          }
        }
      }
      EXPECT_TRUE(pattern.keys(0, 5).empty());
    }
  }
}

TEST(BlockRankingTest, ProbesAreSeededUniformRowsThatSeeEnough) {
  EXPECT_TRUE(ProbeRows(0, 16 * 64 - 1, 64, 1).empty());
  EXPECT_EQ(ProbeRows(0, 16 * 64 + 1, 64, 1), (std::vector<int32_t>{1023, 1024}));
  std::set<int32_t> met;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const std::vector<int32_t> rows = ProbeRows(4096, 4196, 64, seed);
    ASSERT_EQ(rows.size(), static_cast<size_t>(kProbeRows));
    ASSERT_TRUE(std::is_sorted(rows.begin(), rows.end()));
    ASSERT_EQ(std::set<int32_t>(rows.begin(), rows.end()).size(), rows.size());
    ASSERT_GE(rows.front(), 4096);
    ASSERT_LT(rows.back(), 4196);
    met.insert(rows.begin(), rows.end());
    ASSERT_EQ(rows, ProbeRows(4096, 4196, 64, seed));
  }
  EXPECT_EQ(met.size(), 100u);
}

TEST(BlockRankingTest, CoverageCountsSinksAsAttended) {
  using Blocks = std::vector<int32_t>;
  const std::vector<float> exact = {0, std::log(2.0f), kNothing, 0};
  const auto share = [&](const Blocks& blocks, float sink) {
    return Coverage(exact, blocks, Blocks{static_cast<int32_t>(blocks.size())}, sink).front();
  };
  EXPECT_NEAR(share({1}, kNothing), 0.5, 1e-6);
  EXPECT_NEAR(share({0, 2, 3}, kNothing), 0.5, 1e-6);
  EXPECT_NEAR(share({1}, std::log(4.0f)), 0.75, 1e-6);
  EXPECT_EQ(Coverage(std::vector<float>{kNothing}, Blocks{}, Blocks{0}, kNothing).front(), 1);
}

TEST(BlockRankingTest, CoverageGrowsAlongTheOrder) {
  std::mt19937 random(7);
  const std::vector<float> exact = RandomScores(random, 37);
  std::vector<int32_t> order(exact.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  const std::vector<int32_t> counts = {0, 1, 5, 5, 20, 37};
  const std::vector<double> shares = Coverage(exact, order, counts, 1.5f);
  double total = std::exp(1.5);
  for (const float score : exact) total += std::exp(static_cast<double>(score));
  for (size_t i = 0; i < counts.size(); ++i) {
    double kept = std::exp(1.5);
    for (int32_t n = 0; n < counts[i]; ++n) kept += std::exp(static_cast<double>(exact[order[n]]));
    EXPECT_NEAR(shares[i], kept / total, 1e-6) << counts[i];
  }
}

}  // namespace
}  // namespace annulus
