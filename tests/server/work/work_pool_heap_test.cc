// A system without memory for a job's place: the job is queued whole or not at all. Each allocation
// fails in turn.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "server/work/fair_queue.h"
#include "server/work/work_pool.h"
#include "tests/support/counting_heap.h"

namespace annulus::server {
namespace {

using testing::FailAllocation;
using testing::TakeAllocationFailed;

constexpr char kClient[] = "a client whose name takes memory of its own";

// Runs `work` on another thread, whose allocation number `nth` fails. Whether it threw.
bool Throws(int nth, const std::function<void()>& work) {
  std::promise<void> go_on;
  bool threw = false;
  std::thread thread([&, ready = go_on.get_future()]() mutable {
    ready.wait();
    try {
      work();
    } catch (const std::bad_alloc&) {
      threw = true;
    }
  });
  FailAllocation(1, nth);
  go_on.set_value();
  thread.join();
  return threw;
}

TEST(FairQueueHeapTest, AJobIsQueuedOrNotThereAtAll) {
  const std::string client = kClient;
  int failed = 0;
  for (int nth = 0; nth < 100; ++nth) {
    SCOPED_TRACE(nth);
    FairQueue queue({.waiting = 1000, .running_of_client = 1000});
    for (JobId id = 1; id <= 64; ++id) ASSERT_TRUE(queue.Add(id, "other"));
    const bool threw = Throws(nth, [&] { EXPECT_TRUE(queue.Add(100, client)); });
    if (!TakeAllocationFailed()) {
      EXPECT_FALSE(threw);
      break;
    }
    ASSERT_TRUE(threw);
    ++failed;
    EXPECT_EQ(queue.waiting(), 64u);
    EXPECT_FALSE(queue.Remove(100));
    ASSERT_TRUE(queue.Add(100, client));
    int ran = 0;
    while (const auto id = queue.Next()) {
      queue.Ended(*id, 1);
      ++ran;
    }
    EXPECT_EQ(ran, 65);
  }
  EXPECT_GE(failed, 2);
}

// The caller ends the call of a job that it could not queue: if that job ran too, the call would be
// ended twice.
TEST(WorkPoolHeapTest, AJobThatCouldNotBeQueuedNeverRuns) {
  const std::string client = kClient;
  int failed = 0;
  for (int nth = 0; nth < 100; ++nth) {
    SCOPED_TRACE(nth);
    for (const size_t bytes : {size_t{1}, WorkPool::kShortBytes + 1}) {
      WorkPool pool({.short_jobs = 2, .long_jobs = 1, .begun = 4, .max_waiting = 100});
      std::atomic<int> ran{0};
      std::promise<void> worked;
      const auto work = [&](const WorkTurn&) {
        if (++ran == 1) worked.set_value();
      };
      bool accepted = false;
      const JobId id = pool.NewId();
      const bool threw = Throws(nth, [&] {
        accepted = pool.TryRun(id, {"test", client, bytes, work});
      });
      failed += TakeAllocationFailed();
      EXPECT_NE(accepted, threw);
      if (accepted) worked.get_future().wait();
      std::promise<void> done;  // of the client's next job, which would come behind it
      ASSERT_TRUE(pool.TryRun(pool.NewId(),
                              {"test", client, bytes, [&](const WorkTurn&) { done.set_value(); }}));
      done.get_future().wait();
      EXPECT_EQ(ran, threw ? 0 : 1);
    }
  }
  EXPECT_GE(failed, 8);
}

}  // namespace
}  // namespace annulus::server
