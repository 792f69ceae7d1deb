// Calls wait if they come faster than answers, and nobody else's do.

#include "server/net/call_pace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

namespace annulus::server {
namespace {

int Begun(CallPace& pace, SteadyTime now) {
  int begun = 0;
  while (begun < 1'000'000 && pace.Begin(now)) ++begun;
  return begun;
}

TEST(CallPaceTest, AClientMayBeginAllThatItMayHaveOpen) {
  CallPace pace(CallPace::OfAddress());
  EXPECT_GE(Begun(pace, SteadyTime()), 1'024);
}

TEST(CallPaceTest, AFloodWaitsAndAnswersOfOthersDoNot) {
  const auto address = CallPace::OfAddress();
  CallPace flood(address);
  SteadyTime now;
  Begun(flood, now);
  CallPace again(address);
  EXPECT_LE(Begun(again, now), CallPace::kFirst) << "a new connection is no new allowance";
  CallPace good(address);
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_TRUE(good.Begin(now)) << i;
    good.Answered();
  }
  now += std::chrono::seconds(1);
  EXPECT_NEAR(Begun(flood, now), CallPace::kPerSecond, 1);
}

TEST(CallPaceTest, AnswersAllowMoreAtATimeUpToALimit) {
  const auto address = CallPace::OfAddress();
  CallPace flood(address);
  const SteadyTime now;
  Begun(flood, now);
  CallPace pace(address);
  for (int i = 0; i < 1'000; ++i) {
    ASSERT_TRUE(pace.Begin(now));
    pace.Answered();
    pace.Answered();  // of one that it began before
  }
  EXPECT_EQ(Begun(pace, now), CallPace::kMostOwn);
}

}  // namespace
}  // namespace annulus::server
