#include "engine/auto_policy.h"

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

// A request of 65,536 tokens that took so long, and how dense it was.
AttentionReport Took(double attend, double estimate, double density) {
  AttentionReport report;
  report.attend_seconds = attend;
  report.estimate_seconds = estimate;
  report.density = density;
  return report;
}

TEST(AutoPolicy, LengthHardwareAndContractDecide) {
  const AutoPolicy able{AutoSetting{}};
  EXPECT_EQ(able.Choose(Auto(), 1000, 0).policy.kind, PolicyKind::kDense);
  EXPECT_THAT(able.Choose(Auto(), 1000, 0).reason, HasSubstr("1000 tokens are fewer than 2048"));
  const AutoPolicy::Choice taken = able.Choose(Auto(), 65'536, 0);
  EXPECT_EQ(taken.policy.kind, PolicyKind::kAdaptive);
  EXPECT_EQ(taken.policy.coverage, kAutoCoverage);
  EXPECT_THAT(taken.reason, HasSubstr("auto: adaptive; expected were dense "));
  EXPECT_EQ(able.Choose(Auto(0.8), 65'536, 0).policy.coverage, 0.8);
  EXPECT_EQ(able.Choose(Auto(1), 65'536, 0).policy.kind, PolicyKind::kDense);
  AutoSetting unable;
  unable.scores = false;
  EXPECT_EQ(AutoPolicy(unable).Choose(Auto(), 65'536, 0).policy.kind, PolicyKind::kDense);
  // Gates are cheap, and are used where they are.
  AutoSetting gates;
  gates.gates = true;
  EXPECT_EQ(AutoPolicy(gates).Choose(Auto(), 65'536, 0).policy.kind, PolicyKind::kLearned);
}

TEST(AutoPolicy, WhatWasMeasuredDecides) {
  AutoPolicy policy{AutoSetting{}};
  const AttentionPolicy first = policy.Choose(Auto(), 65'536, 0).policy;
  ASSERT_EQ(first.estimator, Estimator::kAntidiagonal);
  // Contracts that end dense make the other estimator worth a trial, then dense.
  policy.Learn(first, 65'536, 0, Took(10, 1, 1));
  const AttentionPolicy second = policy.Choose(Auto(), 65'536, 0).policy;
  ASSERT_EQ(second.kind, PolicyKind::kAdaptive);
  EXPECT_EQ(second.estimator, Estimator::kPooled);
  policy.Learn(second, 65'536, 0, Took(10, 1, 1));
  EXPECT_EQ(policy.Choose(Auto(), 65'536, 0).policy.kind, PolicyKind::kDense);
  // The same holds nearby, and not where another length is known.
  EXPECT_EQ(policy.Choose(Auto(), 40'000, 0).policy.kind, PolicyKind::kDense);
  policy.Learn(first, 1'000'000, 0, Took(500, 20, 0.05));
  EXPECT_EQ(policy.Choose(Auto(), 1'000'000, 0).policy.estimator, Estimator::kAntidiagonal);
  EXPECT_EQ(policy.Choose(Auto(), 65'536, 0).policy.kind, PolicyKind::kDense);
}

TEST(AutoPolicy, SlowEstimatesLoseToDense) {
  AutoPolicy policy{AutoSetting{}};
  for (int i = 0; i < 20; ++i) {
    const AttentionPolicy taken = policy.Choose(Auto(), 65'536, 0).policy;
    if (taken.kind == PolicyKind::kDense) return;
    policy.Learn(taken, 65'536, 0, Took(1, 20, 0.1));
  }
  FAIL() << "still not dense";
}

}  // namespace
}  // namespace annulus
