#include "server/work/work_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace annulus::server {
namespace {

using ::testing::ElementsAre;

constexpr size_t kLong = WorkPool::kShortBytes + 1;

// A job that waits to be released.
class Gate {
 public:
  std::function<void(const WorkTurn&)> Job() {
    return [this](const WorkTurn&) {
      begun_.set_value();
      open_.get_future().wait();
    };
  }
  void WaitUntilBegun() { begun_.get_future().wait(); }
  void Open() { open_.set_value(); }

 private:
  std::promise<void> begun_;
  std::promise<void> open_;
};

// Waits beside its place until it is told to go on.
std::function<void(const WorkTurn&)> Aside(std::shared_future<void> go_on) {
  return [go_on](const WorkTurn& turn) { turn.WaitAside([&] { go_on.wait(); }); };
}

// Works in pieces of no length until others have had a turn, at least once.
void PauseOnce(const WorkTurn& turn) {
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < WorkPool::kTurn) std::this_thread::yield();
  turn.MayPause();
}

class WorkPoolTest : public ::testing::Test {
 protected:
  void Make(int short_jobs, int long_jobs, int begun, size_t max_waiting = 100) {
    pool_ = std::make_unique<WorkPool>(WorkPool::Options{.short_jobs = short_jobs,
                                                         .long_jobs = long_jobs,
                                                         .begun = begun,
                                                         .max_waiting = max_waiting});
  }
  // The name under which the job was taken; 0: it was refused.
  JobId Run(size_t bytes, std::function<void(const WorkTurn&)> run,
            const std::string& client = "a") {
    const JobId id = pool_->NewId();
    return pool_->TryRun(id, {"test", client, bytes, std::move(run)}) ? id : 0;
  }
  std::function<void(const WorkTurn&)> Note(const std::string& what) {
    return [this, what](const WorkTurn&) {
      std::lock_guard lock(mutex_);
      order_.push_back(what);
    };
  }
  size_t Noted() {
    std::lock_guard lock(mutex_);
    return order_.size();
  }
  // Once all jobs of both lanes that came before have ended, if each lane runs one at a time.
  void Drain(const std::string& client = "a") {
    for (const size_t bytes : {size_t{0}, kLong}) {
      const auto done = std::make_shared<std::promise<void>>();  // the job may outlast the wait
      ASSERT_NE(Run(
                    bytes, [done](const WorkTurn&) { done->set_value(); }, client),
                0u);
      done->get_future().wait();
    }
  }

  std::mutex mutex_;
  std::vector<std::string> order_;
  std::unique_ptr<WorkPool> pool_;
};

TEST_F(WorkPoolTest, RefusesWhatItCannotHoldAndRunsTheRest) {
  Make(1, 1, 1, 2);
  Gate gate;
  ASSERT_NE(Run(0, gate.Job()), 0u);
  gate.WaitUntilBegun();
  EXPECT_NE(Run(0, Note("1")), 0u);
  EXPECT_NE(Run(0, Note("2")), 0u);
  EXPECT_EQ(Run(0, Note("3")), 0u);
  EXPECT_EQ(Run(0, Note("3"), "b"), 0u);
  EXPECT_NE(Run(kLong, Note("long")), 0u) << "the other lane has room";
  gate.Open();
  while (Noted() < 3) std::this_thread::yield();
  pool_->Stop();
  EXPECT_EQ(Run(0, Note("4")), 0u);
  EXPECT_THAT(order_, ::testing::UnorderedElementsAre("1", "2", "long"));
}

TEST_F(WorkPoolTest, ShortWorkPassesAllLongWork) {
  Make(1, 2, 4);
  std::vector<Gate> gates(2);
  for (Gate& gate : gates) {
    ASSERT_NE(Run(kLong, gate.Job()), 0u);
    gate.WaitUntilBegun();
  }
  for (int i = 0; i < 20; ++i) ASSERT_NE(Run(kLong, Note("long")), 0u);
  std::promise<void> done;
  ASSERT_NE(Run(10, [&](const WorkTurn&) { done.set_value(); }), 0u);
  done.get_future().wait();
  EXPECT_THAT(order_, ElementsAre());
  for (Gate& gate : gates) gate.Open();
  pool_->Stop();  // before what its jobs use goes
}

// One long job after the other pauses, and the jobs of another client pass it.
TEST_F(WorkPoolTest, LongWorkTakesTurns) {
  Make(1, 1, 4);
  Gate gate;
  ASSERT_NE(Run(kLong, gate.Job(), "other"), 0u);
  gate.WaitUntilBegun();
  for (const std::string name : {"x", "y"}) {
    ASSERT_NE(Run(kLong,
                  [this, name](const WorkTurn& turn) {
                    for (const std::string part : {"1", "2", "3"}) {
                      Note(name + part)(turn);
                      PauseOnce(turn);
                    }
                  }),
              0u);
  }
  gate.Open();
  while (Noted() < 6) std::this_thread::yield();
  pool_->Stop();
  EXPECT_THAT(order_, ElementsAre("x1", "y1", "x2", "y2", "x3", "y3"));
}

// Short work that takes longer than its turn goes on as long work, where it holds no place of
// others.
TEST_F(WorkPoolTest, WorkThatOverrunsItsTurnLeavesTheShortLane) {
  Make(1, 1, 4);
  Gate gate;
  ASSERT_NE(Run(kLong, gate.Job()), 0u);
  gate.WaitUntilBegun();
  std::promise<void> over;
  ASSERT_NE(Run(1,
                [&](const WorkTurn& turn) {
                  PauseOnce(turn);  // until the gate opens
                  Note("overrun")(turn);
                  over.set_value();
                }),
            0u);
  std::promise<void> done;
  ASSERT_NE(Run(1, [&](const WorkTurn& turn) { Note("short")(turn), done.set_value(); }), 0u);
  done.get_future().wait();
  gate.Open();
  over.get_future().wait();
  EXPECT_THAT(order_, ElementsAre("short", "overrun"));
  pool_->Stop();  // before what its jobs use goes
}

TEST_F(WorkPoolTest, OneClientLeavesAPlaceOfTheShortLaneToOthers) {
  Make(3, 1, 1);
  std::vector<Gate> gates(3);
  for (Gate& gate : gates) ASSERT_NE(Run(1, gate.Job(), "greedy"), 0u);
  gates[0].WaitUntilBegun();
  gates[1].WaitUntilBegun();
  std::promise<void> done;
  ASSERT_NE(Run(
                1, [&](const WorkTurn&) { done.set_value(); }, "other"),
            0u);
  done.get_future().wait();
  for (Gate& gate : gates) gate.Open();
  gates[2].WaitUntilBegun();
  pool_->Stop();  // before what its jobs use goes
}

// At most so many long jobs are begun, so many threads there are for them.
TEST_F(WorkPoolTest, BegunJobsAreBounded) {
  Make(1, 1, 2);
  std::atomic<int> begun{0};
  std::atomic<int> most{0};
  std::atomic<int> ended{0};
  for (int i = 0; i < 8; ++i) {
    ASSERT_NE(Run(
                  i % 2 == 0 ? kLong : 1,
                  [&](const WorkTurn& turn) {
                    const int now = ++begun;
                    most = std::max(most.load(), now);
                    for (int part = 0; part < 3; ++part) PauseOnce(turn);
                    --begun;
                    ++ended;
                  },
                  std::to_string(i % 3)),
              0u);
  }
  while (ended < 8) std::this_thread::yield();
  EXPECT_LE(most, 3);  // two long ones, and one that is short still
  pool_->Stop();       // before what its jobs use goes
}

TEST_F(WorkPoolTest, ACancelledJobThatWaitsIsGoneAtOnceWithAllThatItHolds) {
  Make(1, 1, 2);
  Gate gate;
  ASSERT_NE(Run(1, gate.Job()), 0u);
  gate.WaitUntilBegun();
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = held;
  const JobId id =
      Run(1, [this, held = std::move(held)](const WorkTurn& turn) { Note("no")(turn); });
  ASSERT_NE(id, 0u);
  EXPECT_TRUE(pool_->Cancel(id));
  EXPECT_TRUE(watch.expired());
  EXPECT_FALSE(pool_->Cancel(id));
  gate.Open();
  Drain();
  EXPECT_THAT(order_, ElementsAre());
  pool_->Stop();  // before what its jobs use goes
}

TEST_F(WorkPoolTest, ACancelledJobThatHasBegunIsToldAndNotHeldUp) {
  Make(1, 1, 2);
  std::promise<void> begun;
  std::promise<void> ended;
  const JobId id = Run(kLong, [&](const WorkTurn& turn) {
    begun.set_value();
    while (!turn.cancelled()) turn.MayPause();
    ended.set_value();
  });
  begun.get_future().wait();
  Gate gate;  // holds the only place once the job has paused
  ASSERT_NE(Run(kLong, gate.Job(), "b"), 0u);
  gate.WaitUntilBegun();
  EXPECT_EQ(pool_->Begun().size(), 2u);
  EXPECT_FALSE(pool_->Cancel(id));
  ended.get_future().wait();
  gate.Open();
  pool_->Stop();  // before what its jobs use goes
}

// Long jobs keep their threads while they wait for their turn, so a client may not begin them all.
TEST_F(WorkPoolTest, OneClientBeginsHalfOfTheLongJobs) {
  Make(1, 1, 4);
  std::atomic<int> begun{0};
  const auto endless = [&](const WorkTurn& turn) {
    ++begun;
    while (!turn.cancelled()) turn.MayPause();
  };
  for (int i = 0; i < 6; ++i) ASSERT_NE(Run(kLong, endless, "greedy"), 0u);
  std::promise<void> done;
  ASSERT_NE(Run(
                kLong, [&](const WorkTurn&) { done.set_value(); }, "other"),
            0u);
  done.get_future().wait();
  EXPECT_LE(begun, 2);
  pool_->Stop();  // before what its jobs use goes
}

// A job that owes somebody a word can still say it.
TEST_F(WorkPoolTest, WhatHasNotBegunLearnsThatAllIsCancelled) {
  Make(1, 1, 2);
  Gate gate;
  ASSERT_NE(Run(1, gate.Job()), 0u);
  gate.WaitUntilBegun();
  std::promise<bool> told;
  ASSERT_NE(Run(1, [&](const WorkTurn& turn) { told.set_value(turn.cancelled()); }), 0u);
  pool_->CancelAll();
  EXPECT_EQ(Run(1, Note("no")), 0u);
  gate.Open();
  EXPECT_TRUE(told.get_future().get());
  pool_->Stop();  // before what its jobs use goes
}

TEST_F(WorkPoolTest, StoppingEndsWhatPausesAndDropsWhatWaits) {
  Make(1, 1, 2);
  std::atomic<int> begun{0};
  for (const char* client : {"a", "b"}) {
    const auto endless = [&](const WorkTurn& turn) {
      ++begun;
      while (!turn.cancelled()) turn.MayPause();
    };
    ASSERT_NE(Run(kLong, endless, client), 0u);
  }
  while (begun < 2) std::this_thread::yield();
  ASSERT_NE(Run(kLong, Note("no")), 0u);
  pool_->Stop();
  EXPECT_THAT(order_, ElementsAre());
  EXPECT_TRUE(pool_->Begun().empty());
}

TEST_F(WorkPoolTest, WhoWaitsAsideHoldsNoPlace) {
  Make(1, 1, 8);
  std::promise<void> go_on;
  const std::shared_future<void> told = go_on.get_future().share();
  for (int i = 0; i < 3; ++i) ASSERT_NE(Run(kLong, Aside(told)), 0u);
  Drain();                                                      // other long work goes on
  while (pool_->Begun().size() > 3) std::this_thread::yield();  // the last of it still ends
  EXPECT_EQ(pool_->Begun().size(), 3u);
  go_on.set_value();
  Drain();
  while (!pool_->Begun().empty()) std::this_thread::yield();
}

}  // namespace
}  // namespace annulus::server
