#include "engine/base/clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/manual_clock.h"

namespace annulus {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using testing::ManualClock;

TEST(Clock, TheManualClockMovesOnlyWhenTold) {
  ManualClock clock;
  const SteadyTime start = clock.Now();
  EXPECT_EQ(clock.Now(), start);
  clock.Advance(milliseconds(1500));
  EXPECT_EQ(clock.Now() - start, milliseconds(1500));
  EXPECT_DOUBLE_EQ(SecondsBetween(start, clock.Now()), 1.5);
  EXPECT_DOUBLE_EQ(SecondsBetween(clock.Now(), start), -1.5);
}

TEST(Clock, TheRealClockIsTheSteadyClock) {
  const SteadyTime before = std::chrono::steady_clock::now();
  const SteadyTime now = Clock::Real().Now();
  EXPECT_LE(before, now);
  EXPECT_LE(now, std::chrono::steady_clock::now());
}

// Both clocks: a wait ends with its condition, or at its deadline without it.
TEST(Clock, AWaitThatIsOverDoesNotBlock) {
  const ManualClock manual;
  for (const Clock* const clock : {static_cast<const Clock*>(&manual), &Clock::Real()}) {
    std::mutex mutex;
    std::condition_variable changed;
    std::unique_lock lock(mutex);
    EXPECT_TRUE(clock->WaitUntil(clock->Now(), lock, changed, [] { return true; }));
    EXPECT_FALSE(clock->WaitUntil(clock->Now(), lock, changed, [] { return false; }));
    EXPECT_TRUE(lock.owns_lock());
  }
}

TEST(Clock, TheRealClockWaitsForTheDeadline) {
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_lock lock(mutex);
  const SteadyTime deadline = Clock::Real().Now() + milliseconds(20);
  EXPECT_FALSE(Clock::Real().WaitUntil(deadline, lock, changed, [] { return false; }));
  EXPECT_GE(Clock::Real().Now(), deadline);
}

TEST(Clock, AdvancingWakesWhoIsDueAndNobodyElse) {
  ManualClock clock;
  const SteadyTime start = clock.Now();
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<int> woken{0};
  std::vector<std::thread> waiters;
  for (const int due : {1, 2, 3}) {
    waiters.emplace_back([&, due] {
      std::unique_lock lock(mutex);
      EXPECT_FALSE(clock.WaitUntil(start + hours(due), lock, changed, [] { return false; }));
      EXPECT_GE(clock.Now(), start + hours(due));
      ++woken;
    });
  }
  ASSERT_TRUE(clock.WaitForWaiters(3));
  clock.Advance(hours(1) - milliseconds(1));
  ASSERT_TRUE(clock.WaitForWaiters(3));
  EXPECT_EQ(woken, 0);
  clock.Advance(milliseconds(1));
  waiters[0].join();
  EXPECT_EQ(woken, 1);
  clock.Advance(hours(2));
  waiters[1].join();
  waiters[2].join();
}

TEST(Clock, ANotifiedWaiterOfTheManualClockLooks) {
  ManualClock clock;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::thread waiter([&] {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(clock.WaitUntil(SteadyTime::max(), lock, changed, [&] { return done; }));
  });
  ASSERT_TRUE(clock.WaitForWaiters(1));
  {
    std::lock_guard lock(mutex);
    done = true;
  }
  changed.notify_all();
  waiter.join();
}

// No wake-up is lost, whoever comes first.
TEST(Clock, ManyWaitsEndWhileTheTimeMoves) {
  ManualClock clock;
  constexpr int kWaiters = 4;
  std::atomic<int> left{kWaiters};
  std::vector<std::thread> waiters;
  for (int i = 0; i < kWaiters; ++i) {
    waiters.emplace_back([&] {
      std::mutex mutex;
      std::condition_variable changed;
      std::unique_lock lock(mutex);
      for (int turn = 0; turn < 500; ++turn) {
        clock.WaitUntil(clock.Now() + milliseconds(1), lock, changed, [] { return false; });
      }
      --left;
    });
  }
  while (left > 0) clock.Advance(milliseconds(1));
  for (std::thread& waiter : waiters) waiter.join();
}

}  // namespace
}  // namespace annulus
