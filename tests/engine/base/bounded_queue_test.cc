#include "engine/base/bounded_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/manual_clock.h"

namespace annulus {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using testing::ManualClock;

const SteadyTime kNow = SteadyTime::min();
const SteadyTime kForever = SteadyTime::max();

TEST(BoundedQueue, IsFirstInFirstOut) {
  BoundedQueue<int> queue(3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.TryPush(i));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(queue.Pop(kNow), i);
  EXPECT_EQ(queue.Pop(kNow), std::nullopt);
}

TEST(BoundedQueue, RefusesWhenFullAndTakesAgainAfterAPop) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.TryPush(1));
  EXPECT_TRUE(queue.TryPush(2));
  EXPECT_FALSE(queue.TryPush(3));
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(queue.Pop(kNow), 1);
  EXPECT_TRUE(queue.TryPush(4));
}

TEST(BoundedQueue, DrainTakesAllInOrderAndKeepsWhatTheVectorHeld) {
  BoundedQueue<int> queue(4);
  for (int i = 1; i <= 3; ++i) queue.TryPush(i);
  std::vector<int> out = {0};
  EXPECT_EQ(queue.DrainInto(out), 3u);
  EXPECT_EQ(out, (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(queue.DrainInto(out), 0u);
}

TEST(BoundedQueue, CarriesThingsThatOnlyMove) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  EXPECT_TRUE(queue.TryPush(std::make_unique<int>(5)));
  EXPECT_FALSE(queue.TryPush(std::make_unique<int>(6)));
  EXPECT_EQ(**queue.Pop(kNow), 5);
}

TEST(BoundedQueue, PopEndsAtItsDeadline) {
  ManualClock clock;
  BoundedQueue<int> queue(1, clock);
  const SteadyTime deadline = clock.Now() + hours(1);
  std::thread consumer([&] {
    EXPECT_EQ(queue.Pop(deadline), std::nullopt);
    EXPECT_EQ(clock.Now(), deadline);
  });
  ASSERT_TRUE(clock.WaitForWaiters(1));
  clock.Advance(hours(1) - milliseconds(1));
  ASSERT_TRUE(clock.WaitForWaiters(1));
  clock.Advance(milliseconds(1));
  consumer.join();
}

TEST(BoundedQueue, APushWakesAPopWithoutDeadline) {
  ManualClock clock;
  BoundedQueue<int> queue(1, clock);
  std::thread consumer([&queue] { EXPECT_EQ(queue.Pop(kForever), 9); });
  ASSERT_TRUE(clock.WaitForWaiters(1));
  queue.TryPush(9);
  consumer.join();
}

TEST(BoundedQueue, CloseRefusesPushesAndLetsTheRestBeTaken) {
  BoundedQueue<int> queue(2);
  queue.TryPush(1);
  queue.Close();
  queue.Close();
  EXPECT_TRUE(queue.closed());
  EXPECT_FALSE(queue.TryPush(2));
  EXPECT_EQ(queue.Pop(kForever), 1);
  EXPECT_EQ(queue.Pop(kForever), std::nullopt);
}

TEST(BoundedQueue, CloseWakesEveryWaiter) {
  ManualClock clock;
  BoundedQueue<int> queue(1, clock);
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&queue] { EXPECT_EQ(queue.Pop(kForever), std::nullopt); });
  }
  ASSERT_TRUE(clock.WaitForWaiters(3));
  queue.Close();
  for (std::thread& waiter : waiters) waiter.join();
}

TEST(BoundedQueue, ManyThreadsLoseNothingAndKeepEachProducersOrder) {
  constexpr int kProducers = 3, kConsumers = 2, kItems = 5000;
  BoundedQueue<std::pair<int, int>> queue(16);
  std::vector<std::thread> producers, consumers;
  std::vector<std::vector<std::pair<int, int>>> taken(kConsumers);
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&queue, p] {
      for (int i = 0; i < kItems; ++i) {
        while (!queue.TryPush({p, i})) std::this_thread::yield();
        EXPECT_LE(queue.size(), 16u);
      }
    });
  }
  for (int c = 0; c < kConsumers; ++c) {
    consumers.emplace_back([&queue, &mine = taken[c]] {
      while (auto item = queue.Pop(kForever)) {
        mine.push_back(*item);
        queue.DrainInto(mine);
      }
    });
  }
  for (std::thread& producer : producers) producer.join();
  queue.Close();
  for (std::thread& consumer : consumers) consumer.join();

  std::vector<int> count(kProducers);
  for (const auto& mine : taken) {
    std::vector<int> last(kProducers, -1);
    for (const auto& [producer, item] : mine) {
      EXPECT_GT(item, last[producer]);
      last[producer] = item;
      ++count[producer];
    }
  }
  EXPECT_EQ(count, std::vector<int>(kProducers, kItems));
}

}  // namespace
}  // namespace annulus
