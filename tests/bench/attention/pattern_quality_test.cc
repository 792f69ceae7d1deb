#include "bench/attention/pattern_quality.h"

#include <cmath>

#include "bench/attention/structured_head.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"

namespace annulus::bench {
namespace {

std::vector<PatternQuality> Measure(std::vector<const char*> names, QualityOptions options) {
  std::vector<JudgedPolicy> policies;
  for (const char* name : names) policies.push_back({ParsePolicy(name).value(), nullptr});
  return MeasureQuality(policies, options, [](int) {});
}

TEST(StructuredHead, IsTheSameForTheSameSeed) {
  for (int head = 0; head < 3; ++head) {
    const StructuredHead one = MakeStructuredHead(700, 32, head, 5);
    const StructuredHead same = MakeStructuredHead(700, 32, head, 5);
    const StructuredHead other = MakeStructuredHead(700, 32, head, 6);
    EXPECT_EQ(one.query, same.query);
    EXPECT_EQ(one.key, same.key);
    EXPECT_EQ(one.value, same.value);
    EXPECT_NE(one.key, other.key);
  }
}

// Exact mass of the parts that every head has.
TEST(StructuredHead, SinksAndBandStandOut) {
  constexpr int64_t kTokens = 8192;
  for (int h = 0; h < 3; ++h) {
    const StructuredHead head = MakeStructuredHead(kTokens, 64, h, 3);
    double sinks = 0, band = 0, total = 0;
    const int64_t row = kTokens - 1;
    for (int64_t j = 0; j <= row; ++j) {
      double score = 0;
      for (int d = 0; d < 64; ++d) score += double{head.query_row(row)[d]} * head.key_row(j)[d];
      const double weight = std::exp(score / 8);
      total += weight;
      if (j < StructuredHead::kSinks) sinks += weight;
      if (j > row - 64) band += weight;
    }
    EXPECT_GT(sinks / total, 0.01) << h;
    EXPECT_GT(band / total, 0.01) << h;
    EXPECT_LT((sinks + band) / total, 0.99) << h;
  }
}

TEST(PatternQuality, DenseLosesNothing) {
  const PatternQuality dense = Measure({"dense"}, {.tokens = 1000, .heads = 3})[0];
  EXPECT_NEAR(dense.coverage, 1, 1e-5);
  EXPECT_LT(dense.relative_error, 1e-5);
  EXPECT_GT(dense.oracle_density, 0);
}

TEST(PatternQuality, MoreBlocksLoseLess) {
  const std::vector<PatternQuality> all =
      Measure({"window:sinks=64,window=64", "window:sinks=64,window=2000",
               "window:sinks=64,window=6000", "window:sinks=0,window=64", "window:block=128"},
              {.tokens = 8000, .heads = 3});
  EXPECT_LT(all[0].coverage, all[1].coverage);
  EXPECT_LT(all[1].coverage, all[2].coverage);
  EXPECT_GT(all[0].relative_error, all[1].relative_error);
  EXPECT_GT(all[1].relative_error, all[2].relative_error);
  EXPECT_GT(all[0].coverage, all[3].coverage + 0.1);  // without the sinks
  // The oracle knows the rows, not the policy; larger blocks hold more that is not wanted.
  EXPECT_EQ(all[0].oracle_density, all[2].oracle_density);
  EXPECT_GT(all[4].oracle_density, all[0].oracle_density);
}

TEST(PatternQuality, DilatedBranchesMixByTheirDenominators) {
  const std::vector<PatternQuality> all = Measure(
      {"dense", "dilated:segments=2048/2048,rates=1/1", "dilated:segments=1024/2048,rates=1/2"},
      {.tokens = 2000, .heads = 3});
  // Two branches that keep everything are one, however often a key counts.
  EXPECT_NEAR(all[1].relative_error, all[0].relative_error, 1e-5);
  EXPECT_NEAR(all[1].coverage, 1, 1e-5);
  EXPECT_LT(all[2].coverage, 0.99);
  EXPECT_GT(all[2].relative_error, 0.01);
}

TEST(PatternQuality, TheStructureIsSparse) {
  if (kThreadSanitizer) GTEST_SKIP() << "about numbers; other cases run the same threads";
  for (const uint32_t seed : {1u, 2u}) {
    const QualityOptions options{
        .tokens = 65'536, .heads = 3, .seed = seed, .query_blocks = 5, .rows = 2};
    const double density = Measure({"window"}, options)[0].oracle_density;
    EXPECT_GT(density, 0.05) << seed;
    EXPECT_LT(density, 0.1) << seed;
  }
}

}  // namespace
}  // namespace annulus::bench
