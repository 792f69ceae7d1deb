#include "engine/scheduler/save_pace.h"

#include <gtest/gtest.h>

#include <chrono>

#include "engine/base/clock.h"

namespace annulus {
namespace {

using std::chrono::milliseconds;

constexpr double kNanosecond = 1e-9;

TEST(SavePaceTest, TheThirdChunkWaitsUntilTheFirstIsSaved) {
  SavePace pace;
  SteadyTime now{};
  EXPECT_FALSE(pace.Waits(now)) << "nothing is computed";
  pace.Computed(64, now);
  EXPECT_FALSE(pace.Waits(now));
  pace.Computed(128, now);
  EXPECT_TRUE(pace.Waits(now));
  now += milliseconds(20);
  pace.Saved(63);
  EXPECT_TRUE(pace.Waits(now)) << "a page of the first chunk is not saved";
  now += milliseconds(20);
  pace.Saved(64);
  EXPECT_FALSE(pace.Waits(now));
  EXPECT_FALSE(pace.due().has_value());
  EXPECT_NEAR(pace.waited(), 0.04, kNanosecond);
  now += milliseconds(500);
  EXPECT_FALSE(pace.Waits(now));
  EXPECT_NEAR(pace.waited(), 0.04, kNanosecond) << "it computed in this time";
}

TEST(SavePaceTest, ADiskThatIsFastEnoughHoldsNobody) {
  SavePace pace;
  SteadyTime now{};
  for (int32_t chunk = 1; chunk <= 1000; ++chunk) {
    pace.Computed(64 * chunk, now);
    EXPECT_FALSE(pace.Waits(now)) << chunk;
    pace.Saved(64 * chunk - 1);  // the last page is being written
    now += milliseconds(10);
    pace.Saved(64 * chunk);
  }
  EXPECT_EQ(pace.waited(), 0);
}

// By the due time that it tells, whatever the prompt did before.
TEST(SavePaceTest, ADiskThatHangsCostsNoMoreThanItsShare) {
  SavePace pace;
  const SteadyTime begun = SteadyTime(milliseconds(12'345));
  SteadyTime now = begun;
  double computing = 0;
  for (int32_t chunk = 1; chunk <= 500; ++chunk) {
    pace.Computed(64 * chunk, now);
    if (pace.Waits(now)) {
      ASSERT_TRUE(pace.due().has_value());
      ASSERT_GE(*pace.due(), now);
      now = *pace.due() + milliseconds(1);
      EXPECT_FALSE(pace.Waits(now)) << chunk;
    }
    const double allowed =
        SavePace::kMostSeconds + SavePace::kMostShare * SecondsBetween(begun, now);
    EXPECT_LE(pace.waited(), allowed + 0.001) << chunk;
    now += milliseconds(10);
    computing += 0.01;
  }
  EXPECT_GT(pace.waited(), SavePace::kMostSeconds);
  const double all = SecondsBetween(begun, now);
  EXPECT_NEAR(pace.waited() + computing, all, 1e-6) << "it waits or computes";
  EXPECT_LE(all, (computing + SavePace::kMostSeconds) / (1 - SavePace::kMostShare) + 0.002);
}

// A disk that stood still and goes on is waited for again.
TEST(SavePaceTest, WhatWasNotWaitedIsLeftForLater) {
  SavePace pace;
  SteadyTime now{};
  pace.Computed(64, now);
  pace.Computed(128, now);
  EXPECT_TRUE(pace.Waits(now));
  now = *pace.due() + milliseconds(1);
  EXPECT_FALSE(pace.Waits(now)) << "it goes on, two chunks ahead";
  pace.Computed(192, now);
  pace.Saved(192);
  now += milliseconds(10'000);
  pace.Computed(256, now);
  EXPECT_FALSE(pace.Waits(now));
  pace.Computed(320, now);
  EXPECT_TRUE(pace.Waits(now));
  EXPECT_NEAR(SecondsBetween(now, *pace.due()), 1 / (1 - SavePace::kMostShare), 0.01);
}

}  // namespace
}  // namespace annulus
