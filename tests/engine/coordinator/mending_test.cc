// The coordinator while its ranks wait for another host: requests pause, and go on or end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/engine/coordinator/coordinator_fixture.h"

namespace annulus::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class MendingTest : public CoordinatorFixture {
 protected:
  bool IsHealthySoon(bool healthy) {
    return Eventually([&] { return coordinator_->snapshot().healthy == healthy; });
  }
  static std::vector<int32_t> Expected(int32_t from, int32_t count) {
    std::vector<int32_t> tokens;
    for (int32_t i = from; i < from + count; ++i) tokens.push_back(SimulatedRanks::TokenAt(i));
    return tokens;
  }
};

TEST_F(MendingTest, RequestsPauseUntilTheRingIsWhole) {
  Make();
  ranks_.HoldSteps();
  const Asked asked = Ask(100, 8);
  ASSERT_TRUE(ranks_.WaitBegun(1));
  const Asked cancelled = Ask(30, 8);
  ranks_.FailNext(absl::UnavailableError("a worker is lost"), RanksState::kMending, {1});
  ranks_.Allow();
  ASSERT_TRUE(IsHealthySoon(false));
  const size_t steps = ranks_.plans().size();
  const Asked later = Ask(50, 8);
  coordinator_->Cancel(cancelled.id);
  EXPECT_THAT(Outcome(cancelled), HasSubstr("CANCELLED"));
  EXPECT_EQ(ranks_.plans().size(), steps) << "a step began though no rank can run it";
  EXPECT_FALSE(asked.sink->Wait(0).has_value());
  ranks_.Become(RanksState::kUp);
  EXPECT_EQ(Outcome(asked), "");
  EXPECT_EQ(asked.sink->ids(), Expected(100, 8));
  EXPECT_EQ(asked.sink->Wait()->timings.recovered, 1);
  EXPECT_EQ(Outcome(later), "");
  EXPECT_EQ(later.sink->Wait()->timings.recovered, 0);
  EXPECT_TRUE(IsHealthySoon(true));
  EXPECT_EQ(PagesHeld(), 0);
  EXPECT_LE(ranks_.known(), 1u);
}

// The simulated ranks fail the test if a row reads a page that was lost.
TEST_F(MendingTest, WhatIsLostBetweenStepsIsReadByNobody) {
  Make();
  const std::vector<int32_t> prompt(300, 'p');  // on both ranks
  EXPECT_EQ(Outcome(Ask(prompt, 4)), "");
  const auto terms = TermsOf(1);
  ASSERT_EQ(terms->ring.size(), 2u);
  EXPECT_EQ(PagesHeld(), 0);
  // The step that tells them so would fail.
  ASSERT_TRUE(Eventually([&] { return ranks_.known() == 0; }));
  ranks_.Become(RanksState::kMending, {terms->ring[1]});
  const Asked again = Ask(prompt, 4);  // wakes the loop
  ASSERT_TRUE(ranks_.WaitTaken());
  ranks_.Become(RanksState::kUp);
  EXPECT_EQ(Outcome(again), "");
  EXPECT_EQ(again.sink->ids(), Expected(300, 4));
  EXPECT_GT(again.sink->Wait()->usage.cached_tokens, 0);
  EXPECT_EQ(metrics_.failed_steps.value(), 0);
}

TEST_F(MendingTest, WhatIsLostAgainWhileTheRingFormsIsRepairedToo) {
  Make();
  ranks_.HoldSteps();
  const Asked asked = Ask(300, 20);
  for (size_t step = 1; step <= 3; ++step) {
    ASSERT_TRUE(ranks_.WaitBegun(step));
    ranks_.Allow(1);
  }
  ASSERT_TRUE(ranks_.WaitBegun(4));
  ranks_.FailNext(absl::UnavailableError("a worker is lost"), RanksState::kMending, {1});
  ranks_.Allow();
  ASSERT_TRUE(IsHealthySoon(false));
  for (const std::vector<int32_t>& lost : {std::vector<int32_t>{0}, {1}, {0, 1}}) {
    ASSERT_TRUE(ranks_.WaitTaken());
    ranks_.Become(RanksState::kMending, lost);
  }
  ASSERT_TRUE(ranks_.WaitTaken());
  ranks_.Become(RanksState::kUp);
  EXPECT_EQ(Outcome(asked), "");
  EXPECT_EQ(asked.sink->ids(), Expected(300, 20));
  EXPECT_EQ(PagesHeld(), 0);
}

TEST_F(MendingTest, WhoeverHasWaitedTooLongIsToldHowToGoOn) {
  Make();
  ranks_.HoldSteps();
  const Asked asked = Ask(20, 50);
  for (size_t step = 1; step <= 3; ++step) {
    ASSERT_TRUE(ranks_.WaitBegun(step));
    ranks_.Allow(1);
  }
  ASSERT_TRUE(asked.sink->WaitTokens(2));
  ranks_.FailNext(absl::UnavailableError("a worker is lost"), RanksState::kMending, {1});
  ranks_.Allow();
  ASSERT_TRUE(IsHealthySoon(false));
  ranks_.Become(RanksState::kFailed, {}, "a host for rank 1");
  EXPECT_THAT(Outcome(asked), AllOf(HasSubstr("UNAVAILABLE: the ring has waited too long for a host"
                                              " for rank 1"),
                                    HasSubstr("its seed was 1")));
  EXPECT_THAT(Outcome(Ask(20, 2)), HasSubstr("send the request again when the server is ready"));
  ranks_.Become(RanksState::kUp);
  EXPECT_EQ(Outcome(Ask(20, 2)), "");
  EXPECT_EQ(PagesHeld(), 0);
}

TEST_F(MendingTest, ACoordinatorWhoseRanksWaitEndsAtOnce) {
  Make();
  ranks_.FailNext(absl::UnavailableError("a worker is lost"), RanksState::kMending, {1});
  const Asked asked = Ask(100, 8);
  ASSERT_TRUE(IsHealthySoon(false));
  coordinator_.reset();
  EXPECT_THAT(Outcome(asked), HasSubstr("the server is shutting down"));
}

}  // namespace
}  // namespace annulus::testing
