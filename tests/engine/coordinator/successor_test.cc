// Steps that ranks have before the step in front of them has ended.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/engine/coordinator/coordinator_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/simulated_ranks.h"

namespace annulus::testing {
namespace {

using ::testing::HasSubstr;

class SuccessorTest : public CoordinatorFixture {
 protected:
  static RequestSpec StopsAfterSix() {
    RequestSpec spec = Spec(20, 40);
    spec.sampling.stop = {std::string(1, static_cast<char>(SimulatedRanks::TokenAt(25)))};
    return spec;
  }
  // The first request: its prompt is read, and the ranks hold two steps that decode.
  Asked AskAndHoldTwoSteps() {
    ranks_.HoldSteps();
    const Asked asked = Ask(20, 40);
    ranks_.Allow(1);
    EXPECT_TRUE(ranks_.WaitBegun(3));
    return asked;
  }

  void WaitUntilNothingRuns() const {
    Eventually([&] { return coordinator_->snapshot().running == 0; });
  }
};

// Steps that decode are with the ranks before the step in front of them has ended, as its tokens
// are the ranks' own.
TEST_F(SuccessorTest, RanksHaveTheNextStepWhileOneRuns) {
  Make();
  ranks_.HoldSteps();
  const Asked asked = Ask(20, 40);
  ranks_.Allow(1);  // the prompt
  ASSERT_TRUE(ranks_.WaitBegun(3));
  const std::vector<StepPlan> begun = ranks_.plans();
  ASSERT_EQ(begun.size(), 3u);
  EXPECT_EQ(begun[1].items[0].tokens, std::vector<int32_t>{SimulatedRanks::TokenAt(20)});
  EXPECT_EQ(begun[2].items[0].tokens, std::vector<int32_t>{kLastSampled});
  EXPECT_EQ(begun[2].items[0].begin, begun[1].items[0].end);
  ranks_.Allow();
  EXPECT_EQ(Outcome(asked), "");
  std::vector<int32_t> expected;
  for (int32_t i = 20; i < 60; ++i) expected.push_back(SimulatedRanks::TokenAt(i));
  EXPECT_EQ(asked.sink->ids(), expected);
  // Nobody computes a row behind the last token that may come.
  EXPECT_EQ(StepsOf(asked.id).size(), 40u);
  EXPECT_EQ(PagesHeld(), 0);
}

// Whoever ends while the ranks have a row of it keeps its pages until they are done with that.
TEST_F(SuccessorTest, TheRowBehindAStopIsDropped) {
  Make();
  const Asked stopped = Ask(StopsAfterSix());
  EXPECT_EQ(Outcome(stopped), "");
  EXPECT_EQ(stopped.sink->ids().size(), 6u);
  EXPECT_EQ(StepsOf(stopped.id).size(), 7u);
  EXPECT_EQ(PagesHeld(), 0);
}

TEST_F(SuccessorTest, AnAnswerThatStopsDoesNotWaitForItsPages) {
  Make();
  ranks_.HoldSteps();
  const Asked stopped = Ask(StopsAfterSix());
  ranks_.Allow(6);
  EXPECT_EQ(Outcome(stopped), "");
  WaitUntilNothingRuns();
  EXPECT_GT(HeldNow(), 0);
  ranks_.Allow();
  EXPECT_EQ(PagesHeld(), 0);
}

TEST_F(SuccessorTest, CancelsWhileRanksHaveTwoSteps) {
  Make();
  const Asked gone = AskAndHoldTwoSteps();
  coordinator_->Cancel(gone.id);
  ranks_.Allow();
  EXPECT_THAT(Outcome(gone), HasSubstr("CANCELLED"));
  EXPECT_EQ(PagesHeld(), 0);
  EXPECT_EQ(Outcome(Ask(20, 4)), "");
  EXPECT_LE(ranks_.known(), 1u);
}

// Nobody is refused for pages that come back in the same turn.
TEST_F(SuccessorTest, ATenantsPagesCountUntilTheRanksAreDoneWithThem) {
  Make();
  RequestSpec spec = Spec(20, 40);
  spec.tenant_room.kv_bytes = 4 * 4096;  // the pages of one
  ranks_.HoldSteps();
  const Asked gone = Ask(spec);
  ranks_.Allow(1);
  ASSERT_TRUE(ranks_.WaitBegun(3));
  coordinator_->Cancel(gone.id);
  spec.prompt[0] = 'y';
  const Asked next = Ask(spec);
  ranks_.Allow();
  EXPECT_THAT(Outcome(gone), HasSubstr("CANCELLED"));
  EXPECT_EQ(Outcome(next), "");
  EXPECT_EQ(PagesHeld(), 0);
}

TEST_F(SuccessorTest, KeepsThePagesOfTwoStepsOfALostRank) {
  Make();
  const Asked running = AskAndHoldTwoSteps();
  ranks_.FailNext(absl::UnavailableError("rank 1 is silent"), RanksState::kLost);
  ranks_.Allow();
  EXPECT_THAT(Outcome(running), HasSubstr("restart the server"));
  WaitUntilNothingRuns();
  EXPECT_GT(HeldNow(), 0);
}

// With the step in front of it a step fails that the ranks have already.
TEST_F(SuccessorTest, GoesOnAfterTwoStepsThatFailed) {
  Make();
  const Asked failed = AskAndHoldTwoSteps();
  ranks_.FailNext(absl::InternalError("a rank stumbled"));
  ranks_.Allow();
  EXPECT_EQ(Outcome(failed), "");
  EXPECT_EQ(failed.sink->ids().size(), 40u);
  EXPECT_EQ(failed.sink->Wait()->timings.recovered, 1) << "the two steps failed together";
  EXPECT_EQ(PagesHeld(), 0);
  EXPECT_EQ(Outcome(Ask(20, 30)), "");
  EXPECT_LE(ranks_.known(), 1u);
}

}  // namespace
}  // namespace annulus::testing
