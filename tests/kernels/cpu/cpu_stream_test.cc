#include "kernels/cpu/host/cpu_stream.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/eventually.h"

namespace annulus {
namespace {

using testing::Eventually;

std::unique_ptr<CpuStream> Make(int threads) { return CpuStream::Create(threads).value(); }

TEST(CpuStream, RunsEveryTaskExactlyOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    const auto stream = Make(threads);
    EXPECT_EQ(stream->threads(), threads);
    for (const int64_t tasks : {0, 1, 2, 3, 7, 64, 1000}) {
      SCOPED_TRACE(::testing::Message() << threads << " threads, " << tasks << " tasks");
      std::vector<int> runs(tasks, 0);
      const auto body = [&](int64_t task, int thread) {
        ASSERT_GE(thread, 0);
        ASSERT_LT(thread, threads);
        ++runs[task];
      };
      stream->ParallelFor(tasks, body);
      EXPECT_EQ(runs, std::vector<int>(tasks, 1));
      stream->ParallelRuns(tasks, body);
      EXPECT_EQ(runs, std::vector<int>(tasks, 2));
    }
  }
}

TEST(CpuStream, OneThreadRunsInlineInOrder) {
  const auto stream = Make(1);
  const std::thread::id caller = std::this_thread::get_id();
  std::vector<int64_t> order;
  stream->ParallelFor(5, [&](int64_t task, int thread) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(thread, 0);
    order.push_back(task);
  });
  EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

TEST(CpuStream, AThreadKeepsToItsRunOfTasks) {
  const auto stream = Make(2);
  // Two tasks at a time: each waits for the other thread's, so neither takes over a run.
  std::atomic<int> begun{0};
  std::vector<int> threads(20, -1);
  stream->ParallelRuns(20, [&](int64_t task, int thread) {
    threads[task] = thread;
    const int pair = begun.fetch_add(1) / 2;
    while (begun.load() < 2 * (pair + 1)) std::this_thread::yield();
  });
  for (int task = 1; task < 10; ++task) EXPECT_EQ(threads[task], threads[0]) << task;
  for (int task = 11; task < 20; ++task) EXPECT_EQ(threads[task], threads[10]) << task;
  EXPECT_NE(threads[0], threads[10]);
}

TEST(CpuStream, AThreadIndexIsHeldByOneThreadAtATime) {
  const auto stream = Make(4);
  std::atomic<int> inside[4] = {};
  std::atomic<bool> clash{false};
  stream->ParallelFor(2000, [&](int64_t, int thread) {
    if (inside[thread].fetch_add(1) != 0) clash = true;
    inside[thread].fetch_sub(1);
  });
  EXPECT_FALSE(clash);
}

// Runs `tasks` that wait for each other, so that as many threads must come. Whether they did.
bool Meet(CpuStream& stream, size_t tasks) {
  std::mutex mutex;
  std::condition_variable came;
  std::set<std::thread::id> threads;
  stream.ParallelFor(static_cast<int64_t>(tasks), [&](int64_t, int thread) {
    EXPECT_LT(thread, stream.threads());
    std::unique_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
    came.notify_all();
    came.wait_for(lock, std::chrono::seconds(30), [&] { return threads.size() == tasks; });
  });
  return threads.size() == tasks;
}

TEST(CpuStream, WorkersTakePart) { EXPECT_TRUE(Meet(*Make(2), 2)); }

// The caller runs out of tasks long before the worker ends its own.
TEST(CpuStream, ReturnsOnlyWhenTheSlowestWorkerHasEnded) {
  const auto stream = Make(2);
  for (int round = 0; round < 5; ++round) {
    std::atomic<bool> worker_began{false};
    std::atomic<bool> worker_ended{false};
    stream->ParallelFor(2, [&](int64_t, int thread) {
      if (thread == 0) {
        while (!worker_began) std::this_thread::yield();
        return;
      }
      worker_began = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      worker_ended = true;
    });
    ASSERT_TRUE(worker_ended);
  }
}

// Short jobs one after the other: a worker that wakes late must not touch the next job's body, and
// the caller must see all that was written.
TEST(CpuStream, ManySmallJobs) {
  const auto stream = Make(3);
  for (int job = 0; job < 5000; ++job) {
    int64_t results[4] = {};
    stream->ParallelFor(4, [&](int64_t task, int) { results[task] = job + task; });
    for (int64_t task = 0; task < 4; ++task) ASSERT_EQ(results[task], job + task);
  }
}

std::unique_ptr<CpuStream> MakeIn(const std::shared_ptr<ThreadGroup>& group, int threads) {
  return CpuStream::Create(threads, {}, group).value();
}

TEST(CpuStream, TakesThreadsThatItsGroupLeavesIdle) {
  const auto group = std::make_shared<ThreadGroup>(3);
  const auto first = MakeIn(group, 1);
  const auto second = MakeIn(group, 1);
  EXPECT_EQ(first->threads(), 3);
  EXPECT_TRUE(Meet(*first, 3));
  EXPECT_TRUE(Meet(*second, 3));
  EXPECT_TRUE(Meet(*first, 3));
  EXPECT_EQ(group->busy.load(), 0);
}

TEST(CpuStream, KeepsItsOwnThreadsWhateverTheGroupDoes) {
  const auto group = std::make_shared<ThreadGroup>(2);
  const auto first = MakeIn(group, 2);
  const auto second = MakeIn(group, 2);
  std::atomic<bool> began{false};
  std::atomic<bool> done{false};
  std::thread other([&] {
    first->ParallelFor(2, [&](int64_t, int) {
      began = true;
      while (!done) std::this_thread::yield();
    });
  });
  while (!began) std::this_thread::yield();
  EXPECT_TRUE(Meet(*second, 2));
  done = true;
  other.join();
}

TEST(CpuStream, TakesNoneOfABusyGroup) {
  const auto group = std::make_shared<ThreadGroup>(2);
  const auto first = MakeIn(group, 1);
  const auto second = MakeIn(group, 1);
  // The first's caller and one more are all that the group has.
  first->ParallelFor(1, [&](int64_t, int) {
    std::set<std::thread::id> threads;
    second->ParallelFor(100, [&](int64_t, int thread) {
      EXPECT_EQ(thread, 0);
      threads.insert(std::this_thread::get_id());
    });
    EXPECT_EQ(threads.size(), 1u);
  });
  EXPECT_TRUE(Meet(*second, 2));
}

// Four streams of one group at work together.
template <class Work>
void WorkTogether(const Work& work) {
  const auto group = std::make_shared<ThreadGroup>(3);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      const auto stream = MakeIn(group, 1 + caller % 2);
      work(*stream, caller);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(group->busy.load(), 0);
}

// Helpers come and go with every job.
TEST(CpuStream, ManySmallJobsOfAGroup) {
  std::atomic<int> wrong{0};
  WorkTogether([&](CpuStream& stream, int) {
    for (int job = 0; job < 1000; ++job) {
      int64_t results[5] = {};
      stream.ParallelFor(5, [&](int64_t task, int) { results[task] = job + task; });
      for (int64_t task = 0; task < 5; ++task) wrong += results[task] != job + task;
    }
  });
  EXPECT_EQ(wrong.load(), 0);
}

// Holds a thread of the group until it is told to let go.
class Holder {
 public:
  explicit Holder(CpuStream& stream)
      : thread_([this, &stream] {
          stream.ParallelFor(1, [this](int64_t, int) {
            holds_ = true;
            lets_go_.wait(false);
          });
        }) {
    while (!holds_) std::this_thread::yield();
  }
  ~Holder() {
    LetGo();
    thread_.join();
  }
  void LetGo() {
    lets_go_ = true;
    lets_go_.notify_all();
  }

 private:
  std::atomic<bool> holds_{false};
  std::atomic<bool> lets_go_{false};
  std::thread thread_;
};

TEST(CpuStream, ALongOpGetsThreadsThatOthersLeaveMeanwhile) {
  const auto group = std::make_shared<ThreadGroup>(2);
  const auto first = MakeIn(group, 1);
  const auto second = MakeIn(group, 1);
  for (const bool runs : {false, true}) {
    SCOPED_TRACE(runs ? "runs" : "tasks");
    Holder holder(*second);
    std::atomic<bool> helped{false};
    const auto body = [&](int64_t task, int thread) {
      if (thread > 0) helped = true;
      if (task == 0) holder.LetGo();
      if (task == 30) Eventually([&] { return helped.load(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    runs ? first->ParallelRuns(64, body) : first->ParallelFor(64, body);
    EXPECT_TRUE(helped.load());
  }
  EXPECT_EQ(group->busy.load(), 0);
}

TEST(CpuStream, ALentThreadGoesBackWhenItsOwnerComputesAgain) {
  const auto group = std::make_shared<ThreadGroup>(2);
  const auto first = MakeIn(group, 1);
  const auto second = MakeIn(group, 1);
  std::atomic<bool> began{false};
  std::atomic<bool> helped{false};
  std::atomic<bool> stop{false};
  auto holder = std::make_unique<Holder>(*second);
  std::thread caller([&] {
    first->ParallelRuns(int64_t{1} << 20, [&](int64_t, int thread) {
      if (stop) return;
      began = true;
      if (thread > 0) helped = true;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
  });
  EXPECT_TRUE(Eventually([&] { return began.load(); }));
  holder.reset();
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_TRUE(Eventually([&] { return helped.load(); })) << turn;
    holder = std::make_unique<Holder>(*second);
    EXPECT_TRUE(Eventually([&] { return group->busy.load() == 2; })) << turn;
    helped = false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_FALSE(helped) << turn;
    holder.reset();
  }
  stop = true;
  caller.join();
  EXPECT_EQ(group->busy.load(), 0);
}

// Ops of all lengths, of which some get threads in their middle and some give them back.
TEST(CpuStream, LongAndShortJobsOfAGroup) {
  std::atomic<int> wrong{0};
  WorkTogether([&](CpuStream& stream, int caller) {
    for (int job = 0; job < 100; ++job) {
      std::vector<int> results(20, 0);
      const auto body = [&](int64_t task, int) {
        ++results[task];
        std::this_thread::sleep_for(std::chrono::microseconds(job * (caller + 1) % 7 * 20));
      };
      job % 2 == 0 ? stream.ParallelFor(20, body) : stream.ParallelRuns(20, body);
      wrong += results != std::vector<int>(20, 1);
    }
  });
  EXPECT_EQ(wrong.load(), 0);
}

TEST(CpuStream, IdleWorkersSleep) {
  const auto stream = Make(4);
  stream->ParallelFor(16, [](int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double busy = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(busy, 0.1) << "seconds of CPU time in 0.2 s of rest";
}

// Hints come between jobs that are under way, and what they name may be gone.
TEST(CpuStream, HintsChangeNoJob) {
  const auto stream = Make(3);
  for (int job = 0; job < 2000; ++job) {
    {
      const std::vector<std::byte> first(job % 7 * 1000);
      const std::vector<std::byte> second(1000000);
      const std::span<const std::byte> ranges[] = {first, second};
      stream->WillRead(std::span(ranges).first(job % 3));
    }
    int64_t results[5] = {};
    stream->ParallelFor(5, [&](int64_t task, int) { results[task] = job + task; });
    for (int64_t task = 0; task < 5; ++task) ASSERT_EQ(results[task], job + task);
  }
}

TEST(CpuStream, StartsAndEndsWithoutAJob) {
  for (int i = 0; i < 50; ++i) Make(1 + i % 4);
}

TEST(CpuStream, RowRangesCoverEveryRowOnce) {
  const auto stream = Make(3);
  for (const int64_t rows : {0, 1, 5, 1000}) {
    for (const int64_t cost : {0, 1, 1000, 1 << 20}) {
      std::vector<int> runs(rows, 0);
      stream->ParallelRows(rows, cost, [&](int64_t begin, int64_t end) {
        ASSERT_LE(end, rows);
        for (int64_t r = begin; r < end; ++r) ++runs[r];
      });
      EXPECT_EQ(runs, std::vector<int>(rows, 1)) << rows << " rows of cost " << cost;
    }
  }
}

TEST(CpuStream, ScratchGrowsAndStaysAligned) {
  const auto stream = Make(1);
  std::byte* last = nullptr;
  for (const size_t bytes : {size_t{1}, size_t{100}, size_t{1} << 20}) {
    const absl::StatusOr<std::byte*> scratch = stream->Scratch(bytes);
    ASSERT_TRUE(scratch.ok()) << scratch.status();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*scratch) % 64, 0u);
    std::memset(*scratch, 1, bytes);
    last = *scratch;
  }
  EXPECT_EQ(*stream->Scratch(5), last);
}

TEST(CpuStream, ScratchBeyondMemoryIsRefused) {
  const auto stream = Make(1);
  EXPECT_EQ(stream->Scratch(~size_t{0}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(stream->Scratch(64).ok());
}

}  // namespace
}  // namespace annulus
