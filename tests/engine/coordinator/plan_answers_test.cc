#include "engine/coordinator/planning/plan_answers.h"

#include <gtest/gtest.h>

#include "tests/engine/coordinator/engine_parts.h"

namespace annulus::testing {
namespace {

class PlanAnswersTest : public ::testing::Test, protected EngineParts {};

// The answer says what admission does with the same request then.
TEST_F(PlanAnswersTest, SaysHowTheRequestWouldBegin) {
  RunAlone(Spec(48));
  const RequestPlan plan = answers_.Answer(Spec(60));
  EXPECT_EQ(plan.room, RoomFor::kNow);
  EXPECT_EQ(plan.cached_tokens, 48);
  EXPECT_EQ(plan.requests_ahead, 0);
  ASSERT_EQ(plan.ranks.size(), 1u);
  EXPECT_EQ(plan.ranks[0].cached_bytes, 3 * 4096);
  const Request& request = Start(Spec(60));
  EXPECT_EQ(request.cached_tokens(), plan.cached_tokens);
  EXPECT_EQ(request.sequence()->ring, std::vector<int32_t>{plan.ranks[0].rank});
}

TEST_F(PlanAnswersTest, TakesAndFreesNothing) {
  RunAlone(Spec(300));
  Start(Spec(200, 4, 'y'));
  const int64_t free = FreePages();
  const int64_t without_use = PagesWithoutUse();
  for (const int tokens : {10, 60, 300, 500}) {
    answers_.Answer(Spec(tokens));
    answers_.Answer(Spec(tokens, 4, 'y'));
    EXPECT_EQ(FreePages(), free) << tokens;
    EXPECT_EQ(PagesWithoutUse(), without_use) << tokens;
  }
  EXPECT_FALSE(ledger_.book().IsOpen({PageOwner::Kind::kPlan, 1}));
}

TEST_F(PlanAnswersTest, RoomThatOthersHoldComesLater) {
  const Request& running = Start(Spec(400));
  EXPECT_EQ(answers_.Answer(Spec(400, 4, 'y')).room, RoomFor::kLater);
  RequestSpec bounded = Spec(60);
  bounded.tenant = *TenantId::FromName("us");
  bounded.tenant_room.kv_bytes = 3 * 4096;
  EXPECT_EQ(answers_.Answer(bounded).room, RoomFor::kLater) << "its tenant may not have it";
  Leave(running.id());
  EXPECT_EQ(answers_.Answer(Spec(400, 4, 'y')).room, RoomFor::kNow);
  Add(Spec(10));
  EXPECT_EQ(answers_.Answer(Spec(400, 4, 'y')).requests_ahead, 1);
}

}  // namespace
}  // namespace annulus::testing
