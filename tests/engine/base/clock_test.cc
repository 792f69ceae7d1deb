#include "engine/base/clock.h"

#include <gtest/gtest.h>

namespace annulus {
namespace {

TEST(Clock, TheManualClockMovesOnlyWhenTold) {
  ManualClock clock;
  const SteadyTime start = clock.Now();
  EXPECT_EQ(clock.Now(), start);
  clock.Advance(std::chrono::milliseconds(1500));
  EXPECT_EQ(clock.Now() - start, std::chrono::milliseconds(1500));
  EXPECT_DOUBLE_EQ(SecondsBetween(start, clock.Now()), 1.5);
  EXPECT_DOUBLE_EQ(SecondsBetween(clock.Now(), start), -1.5);
}

TEST(Clock, TheRealClockIsTheSteadyClock) {
  const SteadyTime before = std::chrono::steady_clock::now();
  const SteadyTime now = RealClock().Now();
  EXPECT_LE(before, now);
  EXPECT_LE(now, std::chrono::steady_clock::now());
}

}  // namespace
}  // namespace annulus
