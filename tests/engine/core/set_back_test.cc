// Requests that are set back because a step failed, over simulated ranks: from where, under what
// policy and beside whom they go on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>

#include "tests/engine/core/coordinator_fixture.h"
#include "tests/support/simulated_ranks.h"

namespace annulus::testing {
namespace {

using ::testing::HasSubstr;

class SetBackTest : public CoordinatorFixture {};

// It goes on under the policy that it began with, and from the pages that this policy computed.
TEST_F(SetBackTest, ARequestThatIsSetBackKeepsItsPolicy) {
  Make();
  ranks_.HoldSteps();
  RequestSpec spec;
  spec.prompt.assign(200, 'p');
  spec.sampling.max_tokens = 20;
  spec.attention =
      AttentionPolicy{.kind = PolicyKind::kWindow, .block = kPageTokens, .window = 2 * kPageTokens};
  const Asked asked = Ask(std::move(spec));
  size_t step = 1;
  for (; asked.sink->ids().size() < 3; ++step) {
    ASSERT_TRUE(ranks_.WaitBegun(step));
    ranks_.Allow(1);
  }
  ranks_.FailNext(absl::InternalError("a rank stumbled"));
  ranks_.Allow();
  EXPECT_EQ(Outcome(asked), "");
  EXPECT_EQ(asked.sink->ids().size(), 20u);
  const Completion done = *asked.sink->Wait();
  EXPECT_EQ(done.timings.recovered, 1);
  EXPECT_THAT(done.attention.policy, HasSubstr("window"));
  int begun = 0;
  for (const StepPlan& plan : ranks_.plans()) {
    for (const SequenceUpdate& update : plan.updates) {
      if (!update.terms.has_value()) continue;
      EXPECT_EQ(AssignmentText(update.terms->attention.value_or(AttentionAssignment())),
                done.attention.policy);
      if (++begun == 1) continue;
      ASSERT_FALSE(plan.items.empty());
      EXPECT_GE(plan.items[0].begin, 192) << "pages under the policy were not found";
    }
  }
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(PagesHeld(), 0);
}

}  // namespace
}  // namespace annulus::testing
