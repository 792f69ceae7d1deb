#include "engine/request/auto_policy.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;

AttentionPolicy Auto(double coverage = 0) {
  AttentionPolicy policy;
  policy.kind = PolicyKind::kAuto;
  policy.coverage = coverage;
  return policy;
}

int64_t Nothing(const AttentionPolicy&) { return 0; }

// A request of 65,536 tokens that took so long, and how dense it was.
AttentionReport Took(double attend, double estimate, double density) {
  AttentionReport report;
  report.attend_seconds = attend;
  report.estimate_seconds = estimate;
  report.density = density;
  return report;
}

TEST(AutoPolicy, LengthHardwareAndContractDecide) {
  const AutoPolicy able(AutoSetting{}, AttentionGeometry{});
  EXPECT_EQ(able.Choose(Auto(), 1000, Nothing).policy.kind, PolicyKind::kDense);
  EXPECT_THAT(able.Choose(Auto(), 1000, Nothing).reason,
              HasSubstr("1000 tokens are fewer than 2048"));
  const AutoPolicy::Choice taken = able.Choose(Auto(), 65'536, Nothing);
  EXPECT_EQ(taken.policy.kind, PolicyKind::kAdaptive);
  EXPECT_EQ(taken.policy.coverage, kAutoCoverage);
  EXPECT_THAT(taken.reason, HasSubstr("auto: adaptive; expected: dense "));
  EXPECT_EQ(able.Choose(Auto(0.8), 65'536, Nothing).policy.coverage, 0.8);
  EXPECT_EQ(able.Choose(Auto(1), 65'536, Nothing).policy.kind, PolicyKind::kDense);
  AutoSetting unable;
  unable.scores = false;
  EXPECT_EQ(AutoPolicy(unable, {}).Choose(Auto(), 65'536, Nothing).policy.kind, PolicyKind::kDense);
  // Gates are cheap, and are used where they are.
  AutoSetting gates;
  gates.gates = true;
  EXPECT_EQ(AutoPolicy(gates, {}).Choose(Auto(), 65'536, Nothing).policy.kind,
            PolicyKind::kLearned);
}

TEST(AutoPolicy, WhatWasMeasuredDecides) {
  AutoPolicy policy(AutoSetting{}, AttentionGeometry{});
  const AttentionPolicy first = policy.Choose(Auto(), 65'536, Nothing).policy;
  ASSERT_EQ(first.estimator, Estimator::kAntidiagonal);
  // Contracts that end dense make the other estimator worth a trial, then dense.
  policy.Learn(first, 65'536, 0, Took(10, 1, 1));
  const AttentionPolicy second = policy.Choose(Auto(), 65'536, Nothing).policy;
  ASSERT_EQ(second.kind, PolicyKind::kAdaptive);
  EXPECT_EQ(second.estimator, Estimator::kPooled);
  policy.Learn(second, 65'536, 0, Took(10, 1, 1));
  EXPECT_EQ(policy.Choose(Auto(), 65'536, Nothing).policy.kind, PolicyKind::kDense);
  // The same holds nearby, and not where another length is known.
  EXPECT_EQ(policy.Choose(Auto(), 40'000, Nothing).policy.kind, PolicyKind::kDense);
  policy.Learn(first, 1'000'000, 0, Took(500, 20, 0.05));
  EXPECT_EQ(policy.Choose(Auto(), 1'000'000, Nothing).policy.estimator, Estimator::kAntidiagonal);
  EXPECT_EQ(policy.Choose(Auto(), 65'536, Nothing).policy.kind, PolicyKind::kDense);
}

// A document that was read under one policy is not read again for a slightly better one.
TEST(AutoPolicy, WhatIsCachedDecides) {
  AutoPolicy policy(AutoSetting{}, AttentionGeometry{});
  const AttentionPolicy first = policy.Choose(Auto(), 65'536, Nothing).policy;
  policy.Learn(first, 65'536, 0, Took(10, 1, 1));
  ASSERT_NE(policy.Choose(Auto(), 65'536, Nothing).policy, first);
  const AutoPolicy::Choice again = policy.Choose(
      Auto(), 65'536,
      [&](const AttentionPolicy& asked) -> int64_t { return asked == first ? 65'000 : 0; });
  EXPECT_EQ(again.policy, first);
  EXPECT_THAT(again.reason, HasSubstr("for 536 of 65536 tokens"));
  // Dense pages serve every policy.
  const auto all = [](const AttentionPolicy&) -> int64_t { return 65'000; };
  EXPECT_EQ(policy.Choose(Auto(), 65'536, all).policy,
            policy.Choose(Auto(), 65'536, Nothing).policy);
}

TEST(AutoPolicy, SlowEstimatesLoseToDense) {
  AutoPolicy policy(AutoSetting{}, AttentionGeometry{});
  for (int i = 0; i < 20; ++i) {
    const AttentionPolicy taken = policy.Choose(Auto(), 65'536, Nothing).policy;
    if (taken.kind == PolicyKind::kDense) return;
    policy.Learn(taken, 65'536, 0, Took(1, 20, 0.1));
  }
  FAIL() << "still not dense";
}

}  // namespace
}  // namespace annulus
