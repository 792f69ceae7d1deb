#include "bench/attention/density.h"

#include "engine/sparse/block_pattern.h"
#include "gtest/gtest.h"

namespace annulus::bench {
namespace {

TEST(WithDensity, ComesAsCloseAsOneBlockFromAbove) {
  for (const char* name : {"window", "global_local", "random"}) {
    const AttentionPolicy policy = *ParsePolicy(name);
    double last = 0;
    for (const double density : {0.1, 0.3, 0.7}) {
      const auto tuned = WithDensity(policy, density, 10'000, 2);
      ASSERT_TRUE(tuned.ok()) << tuned.status();
      const double reached = PolicyDensity(*tuned, 10'000, 2);
      EXPECT_GE(reached, density) << name;
      // One block more for each of the 157 query blocks is at most 2 / 157 of the causal pairs.
      EXPECT_LE(reached, density + 2.0 / 157) << name;
      EXPECT_GT(reached, last);
      last = reached;
    }
  }
}

TEST(WithDensity, FindsStridesAndRatesThatJustDo) {
  for (const char* name : {"strided:local=1", "dilated_blocks", "hierarchical"}) {
    for (const double density : {0.1, 0.2, 0.5}) {
      const auto tuned = WithDensity(*ParsePolicy(name), density, 40'000, 3);
      ASSERT_TRUE(tuned.ok()) << tuned.status();
      EXPECT_GE(PolicyDensity(*tuned, 40'000, 3), density) << PolicyText(*tuned);
      AttentionPolicy sparser = *tuned;
      ++sparser.stride;
      --sparser.near;
      const int32_t times = sparser.rates[0];
      for (int32_t& rate : sparser.rates) rate = rate / times * (times + 1);
      if (sparser.near == 0) continue;  // no sparser one is allowed
      EXPECT_LT(PolicyDensity(sparser, 40'000, 3), density) << PolicyText(sparser);
    }
  }
}

TEST(PolicyDensity, LooksAtSomeRowsOfALongSequence) {
  for (const char* name : {"window:block=16,window=3000", "random:block=16", "strided:block=16"}) {
    const AttentionPolicy policy = *ParsePolicy(name);
    const PairCount all =
        CountPairs(BuildBlockPattern(policy, ShapeFor(policy, 0, 50'000, 2)), 0, 50'000);
    EXPECT_NEAR(PolicyDensity(policy, 50'000, 2) / all.density(), 1, 0.02) << name;
  }
}

TEST(WithDensity, TakesWhatIsNearestWhereItCannotBeReached) {
  // The diagonal and the first block alone are more than a thousandth of ten blocks.
  const auto least = WithDensity(*ParsePolicy("window"), 0.001, 640, 1);
  ASSERT_TRUE(least.ok());
  EXPECT_EQ(least->window, least->block);
  EXPECT_EQ(PolicyDensity(*ParsePolicy("dense"), 640, 1), 1);
}

TEST(WithDensity, RefusesPoliciesWithoutAnExtent) {
  const auto refused = WithDensity(*ParsePolicy("adaptive"), 0.1, 1000, 1);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("window"), absl::string_view::npos);
}

}  // namespace
}  // namespace annulus::bench
