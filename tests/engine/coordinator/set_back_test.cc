// Requests that are set back because a step failed, over simulated ranks: from where, under what
// policy and beside whom they go on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "engine/runner/between_ranks.h"
#include "tests/engine/coordinator/coordinator_fixture.h"
#include "tests/support/simulated_ranks.h"

namespace annulus::testing {
namespace {

using ::testing::HasSubstr;

class SetBackTest : public CoordinatorFixture {
 protected:
  // Has a step fail once the request has tokens. Returns the plans from where it began again.
  std::vector<StepPlan> Fail(const Asked& asked) {
    for (size_t step = 1; asked.sink->ids().size() < 3; ++step) {
      if (!ranks_.WaitBegun(step)) return {};
      ranks_.Allow(1);
    }
    ranks_.FailNext(absl::InternalError("a rank stumbled"));
    ranks_.Allow();
    EXPECT_EQ(Outcome(asked), "");
    EXPECT_EQ(asked.sink->ids().size(), 20u);
    EXPECT_EQ(asked.sink->Wait()->timings.recovered, 1);
    std::vector<StepPlan> plans = ranks_.plans();
    const auto again = std::find_if(plans.rbegin(), plans.rend(), [](const StepPlan& plan) {
      return std::any_of(plan.updates.begin(), plan.updates.end(),
                         [](const SequenceUpdate& update) { return update.terms.has_value(); });
    });
    plans.erase(plans.begin(), std::prev(again.base()));
    return plans;
  }

  // The first row of the plans.
  static int32_t Begin(const std::vector<StepPlan>& plans) {
    int32_t begin = std::numeric_limits<int32_t>::max();
    for (const StepPlan& plan : plans) {
      for (const PlanItem& item : plan.items) begin = std::min(begin, item.begin);
    }
    return begin;
  }
};

// No request causes what fails between ranks, though only it ran.
TEST_F(SetBackTest, MessagesThatFailBetweenRanksEndNobodyUnlessTheyAlwaysFail) {
  Make();
  const absl::Status changed =
      BetweenRanks(absl::DataLossError("it came with other bytes than were sent"));
  for (const int times : {8, 9}) {
    ranks_.HoldSteps();
    const Asked asked = Ask(200, 20);
    ranks_.FailStepsOf(asked.id, changed, times);
    ranks_.Allow();
    if (times > 8) {
      EXPECT_THAT(Outcome(asked), HasSubstr("UNAVAILABLE: computing the answer failed; try again"));
      EXPECT_THAT(Outcome(asked), HasSubstr("with other bytes than were sent"));
      continue;
    }
    EXPECT_EQ(Outcome(asked), "");
    EXPECT_EQ(asked.sink->Wait()->timings.recovered, times);
  }
  EXPECT_EQ(PagesHeld(), 0);
}

// It goes on under the policy that it began with, and from the pages that this policy computed.
TEST_F(SetBackTest, KeepsItsPolicy) {
  Make();
  ranks_.HoldSteps();
  RequestSpec spec = Spec(200, 20);
  spec.attention =
      AttentionPolicy{.kind = PolicyKind::kWindow, .block = kPageTokens, .window = 2 * kPageTokens};
  const Asked asked = Ask(std::move(spec));
  const std::vector<StepPlan> again = Fail(asked);
  ASSERT_FALSE(again.empty());
  const std::string policy = asked.sink->Wait()->attention.policy;
  EXPECT_THAT(policy, HasSubstr("window"));
  const auto& attention = again[0].updates.at(0).terms->attention;
  EXPECT_EQ(AssignmentText(attention.value_or(AttentionAssignment())), policy);
  EXPECT_EQ(Begin(again), 192) << "pages under the policy were not found";
  EXPECT_EQ(PagesHeld(), 0);
}

// It ignores what others left in the cache, but not what it computed itself.
TEST_F(SetBackTest, GoesOnFromItsOwnPagesIfItIgnoresTheCache) {
  Make();
  EXPECT_EQ(Outcome(Ask(Spec(200, 20))), "");
  ranks_.HoldSteps();
  RequestSpec spec = Spec(200, 20);
  spec.ignore_cache = true;
  const Asked asked = Ask(std::move(spec));
  const std::vector<StepPlan> again = Fail(asked);
  EXPECT_EQ(Begin(again), 192);
  EXPECT_EQ(asked.sink->Wait()->usage.cached_tokens, 0);
  EXPECT_EQ(PagesHeld(), 0);
}

TEST_F(SetBackTest, PromptLogprobsThatWerePassedOnAreNotComputedAgain) {
  Make();
  ranks_.HoldSteps();
  RequestSpec spec = Spec(200, 20);
  spec.sampling.prompt_logprobs = 1;
  const Asked asked = Ask(std::move(spec));
  const std::vector<StepPlan> again = Fail(asked);
  EXPECT_EQ(Begin(again), 192);
  for (const StepPlan& plan : again) {
    for (const PlanItem& item : plan.items) EXPECT_FALSE(item.score.has_value());
  }
}

}  // namespace
}  // namespace annulus::testing
