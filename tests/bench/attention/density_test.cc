#include "bench/attention/density.h"

#include "gtest/gtest.h"

namespace annulus {
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

TEST(WithDensity, TakesWhatIsNearestWhereItCannotBeReached) {
  // The diagonal and the first block alone are more than a thousandth of ten blocks.
  const auto least = WithDensity(*ParsePolicy("window"), 0.001, 640, 1);
  ASSERT_TRUE(least.ok());
  EXPECT_EQ(least->window, least->block);
  EXPECT_EQ(PolicyDensity(*ParsePolicy("dense"), 640, 1), 1);
}

TEST(WithDensity, RefusesPoliciesWithoutAnExtent) {
  const auto refused = WithDensity(*ParsePolicy("strided"), 0.1, 1000, 1);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("window"), absl::string_view::npos);
}

}  // namespace
}  // namespace annulus
