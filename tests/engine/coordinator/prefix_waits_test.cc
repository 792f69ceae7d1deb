#include "engine/coordinator/admission/prefix_waits.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/engine/coordinator/engine_parts.h"

namespace annulus::testing {
namespace {

class PrefixWaitsTest : public ::testing::Test, protected EngineParts {};

TEST_F(PrefixWaitsTest, WaitsUntilTheBeginningIsComputedAndThenReusesIt) {
  const Request& first = Start(Spec(300, 8));
  Request& second = Add(Spec(304, 8));
  EXPECT_TRUE(prefix_waits_.Waits(second));
  for (int step = 0; step < 100 && prefix_waits_.Waits(second); ++step) Step();
  EXPECT_GE(first.sequence()->computed, 288);
  EXPECT_FALSE(ended_.contains(first.id())) << "it still runs";
  ASSERT_TRUE(starter_.TryStart(second, nullptr).ok());
  EXPECT_EQ(second.cached_tokens(), 288) << "whole pages of the other's prompt";
}

TEST_F(PrefixWaitsTest, AnotherBeginningIsNotWaitedFor) {
  Start(Spec(300));
  EXPECT_FALSE(prefix_waits_.Waits(Add(Spec(300, 4, 'y'))));
  // Less than half of it, and of 1,024 tokens.
  RequestSpec longer = Spec(700, 4, 'y');
  std::fill_n(longer.prompt.begin(), 300, 'x');
  EXPECT_FALSE(prefix_waits_.Waits(Add(std::move(longer))));
  RequestSpec ignores = Spec(300);
  ignores.ignore_cache = true;
  EXPECT_FALSE(prefix_waits_.Waits(Add(std::move(ignores))));
  RequestSpec others = Spec(300);
  others.tenant = *TenantId::FromName("others");
  EXPECT_FALSE(prefix_waits_.Waits(Add(std::move(others))));
}

TEST_F(PrefixWaitsTest, NobodyWaitsForOneThatIsParkedOrStandsStill) {
  Start(Spec(300));
  Request& second = Add(Spec(300));
  Sequence& running = *ledger_.state().running[0];
  running.paused = true;
  EXPECT_FALSE(prefix_waits_.Waits(second));
  running.paused = false;
  EXPECT_TRUE(prefix_waits_.Waits(second));
  ledger_.state().step += Standstill::kSteps;
  clock_.Advance(Standstill::kTime);
  EXPECT_FALSE(prefix_waits_.Waits(second)) << "it has not advanced in all that time";
  Step();
  EXPECT_TRUE(prefix_waits_.Waits(second));
}

TEST_F(PrefixWaitsTest, NobodyWaitsForACheck) {
  Start(Spec(300));
  ledger_.state().running[0]->owner.kind = PageOwner::Kind::kCheck;
  EXPECT_FALSE(prefix_waits_.Waits(Add(Spec(300))));
  ledger_.state().running[0]->owner.kind = PageOwner::Kind::kRequest;
}

TEST_F(PrefixWaitsTest, AnEarlyEndEndsTheWait) {
  const RequestId first = Start(Spec(300)).id();
  Request& second = Add(Spec(300));
  EXPECT_TRUE(prefix_waits_.Waits(second));
  Leave(first);
  EXPECT_FALSE(prefix_waits_.Waits(second));
}

}  // namespace
}  // namespace annulus::testing
