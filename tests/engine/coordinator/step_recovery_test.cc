#include "engine/coordinator/step_recovery.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/engine/coordinator/tiered_parts.h"

namespace annulus::testing {
namespace {

class StepRecoveryTest : public ::testing::Test, protected TieredParts {
 protected:
  // The next step of the request, which runs alone on a ring of two, loses the pages of a rank.
  void LosePagesOf(const Request& request) {
    ASSERT_EQ(request.sequence()->ring.size(), 2u);
    const std::vector<int32_t> lost = {request.sequence()->ring[1]};
    ranks_.FailNext(absl::InternalError("a rank was lost"), RanksState::kUp, lost);
    const auto plan = BeginStep();
    ASSERT_FALSE(ranks_.Run(plan).ok());
    const StepPlan* const plans[] = {plan.get()};
    recovery_.Recover(plans, absl::InternalError("a rank was lost"), ranks_.TakeLost());
    ledger_.state().ended.clear();
  }

  StepRecovery recovery_{{options_, ledger_, serving_, growth_, checks_, metrics_,
                          [this](const Request& request) { tier().Forget(request.id()); },
                          [this](RequestId id, const absl::Status& status) {
                            ADD_FAILURE() << status;
                            Leave(id);
                          }}};
};

// How long reading takes was never measured.
TEST_F(StepRecoveryTest, WhatNoTierGivesSoonerIsRepaired) {
  Request& request = Start(Spec(140, 20));
  for (int step = 0; step < 6; ++step) Step();
  LosePagesOf(request);
  ASSERT_NE(request.sequence(), nullptr) << "it keeps its place";
  EXPECT_TRUE(request.sequence()->lost.has_value());
  EXPECT_EQ(request.timings().repaired, 1);
  EXPECT_EQ(metrics_.recovered_repaired.value(), 1);
  for (int step = 0; step < 20 && request.sequence()->lost.has_value(); ++step) Step();
  EXPECT_FALSE(request.sequence()->lost.has_value());
}

TEST_F(StepRecoveryTest, WhatATierGivesSoonerIsReadBack) {
  Save(128);
  Request& request = Add(Spec(140, 20));
  ASSERT_TRUE(Waits(request));
  ASSERT_TRUE(Eventually([&] {
    tier().Turn();
    return !Waits(request);
  }));
  ASSERT_TRUE(starter_.TryStart(request, nullptr).ok());
  for (int step = 0; step < 6; ++step) Step();
  LosePagesOf(request);
  EXPECT_EQ(request.sequence(), nullptr) << "it waits again";
  EXPECT_EQ(request.timings().recovered, 1);
  EXPECT_EQ(request.timings().repaired, 0);
  EXPECT_EQ(metrics_.recovered_set_back.value(), 1);
  EXPECT_TRUE(Waits(request)) << "for the tier";
}

}  // namespace
}  // namespace annulus::testing
