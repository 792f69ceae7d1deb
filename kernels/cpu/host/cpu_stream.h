#ifndef ANNULUS_KERNELS_CPU_HOST_CPU_STREAM_H_
#define ANNULUS_KERNELS_CPU_HOST_CPU_STREAM_H_

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/host/processors.h"

namespace annulus {

// A group of streams that lend each other idle threads. As long as fewer than `limit` threads
// compute in all of them, an op may borrow the rest: when it begins and, if it runs long, later as
// well.
struct ThreadGroup {
  explicit ThreadGroup(int threads) : limit(threads) {}
  const int limit;
  // Threads that compute now, in all streams of the group.
  std::atomic<int> busy{0};
};

// A stream of the CPU backend. An op has finished when it returns, so Synchronize has nothing to
// wait for. The stream owns as many workers as an op can use at most. After a job they spin before
// they sleep: its own threads for about a tenth of a millisecond, lent ones for some microseconds.
// Used by one thread at a time, which takes part in the work.
class CpuStream final : public Stream {
 public:
  // `threads` >= 1, else INVALID_ARGUMENT. RESOURCE_EXHAUSTED if the system refuses a thread.
  // Workers run only on `processors`, or anywhere if it is empty. With a group, an op may use more
  // than `threads` threads while other streams of the group leave theirs idle.
  static absl::StatusOr<std::unique_ptr<CpuStream>> Create(
      int threads, Processors processors = {}, std::shared_ptr<ThreadGroup> group = nullptr);
  ~CpuStream() override;

  absl::Status Synchronize() override { return absl::OkStatus(); }
  void WillRead(std::span<const std::span<const std::byte>> ranges) override;
  void BindCaller() override { BindThread(processors_); }
  size_t workspace_bytes() const override {
    return op_scratch_.bytes() + outer_scratch_.bytes() + result_scratch_.bytes();
  }

  // The most threads an op can use, including the caller.
  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task, thread) once for every task in [0, tasks), in any order and on any thread.
  // `thread`, in [0, threads()), identifies the running thread, so that each can have its own
  // workspace. Returns when all tasks are done; the caller then sees everything they wrote. With a
  // single task, or with one thread and no group, runs everything on the caller. `body` must not
  // throw and must not call the stream.
  void ParallelFor(int64_t tasks, absl::FunctionRef<void(int64_t task, int thread)> body);

  // Like ParallelFor, but each thread takes consecutive tasks as long as no other falls behind, so
  // that it can prefetch data of its next task during the current one.
  void ParallelRuns(int64_t tasks, absl::FunctionRef<void(int64_t task, int thread)> body);

  // Calls body(begin, end) for ranges that cover [0, rows), each large enough to be worth waking a
  // thread. `row_cost` is roughly the number of elements that a row reads and writes.
  void ParallelRows(int64_t rows, int64_t row_cost,
                    absl::FunctionRef<void(int64_t begin, int64_t end)> body);

  // Workspace of at least `bytes`, aligned to 64, that the stream keeps and reuses. The next call
  // overwrites it. RESOURCE_EXHAUSTED if there is no memory.
  absl::StatusOr<std::byte*> Scratch(size_t bytes) { return op_scratch_.AtLeast(bytes); }

  // A second workspace, for ops made of other ops that use Scratch themselves.
  absl::StatusOr<std::byte*> OuterScratch(size_t bytes) { return outer_scratch_.AtLeast(bytes); }

  // A third workspace, for the result that such an op builds while it uses the other two.
  absl::StatusOr<std::byte*> ResultScratch(size_t bytes) { return result_scratch_.AtLeast(bytes); }

 private:
  using Body = absl::FunctionRef<void(int64_t task, int thread)>;

  class Workspace {
   public:
    absl::StatusOr<std::byte*> AtLeast(size_t bytes);
    size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

   private:
    struct Free {
      void operator()(std::byte* block) const;
    };
    std::unique_ptr<std::byte, Free> block_;
    std::atomic<size_t> bytes_{0};  // written by the thread that uses the stream
  };

  CpuStream(int threads, Processors processors, std::shared_ptr<ThreadGroup> group)
      : own_threads_(threads), processors_(std::move(processors)), group_(std::move(group)) {}
  // Consecutive tasks of one thread in ParallelRuns, on a cache line of its own.
  struct alignas(64) Run {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  // The byte ranges that the next op will read, from WillRead; empty if unknown.
  struct Ahead {
    std::array<std::span<const std::byte>, kMostRanges> ranges;

    // Prefetches the next few lines from offset `at`, counted over all ranges together.
    void Ask(size_t at) const;
    size_t bytes() const;
  };

  void Work(int thread);
  void Spin(uint64_t seen, int thread);
  int TakeHelpers(int64_t tasks);
  void RunJob(int64_t tasks, const Body& body, int helpers);
  void RunTasks(const Body& body, int64_t tasks, int thread);

  // Called between two tasks. On the caller's thread: borrows one more worker if the job runs long
  // and the group has an idle thread by now. On a borrowed worker: returns true if it must leave,
  // because its owner computes again.
  bool Settle(int thread);
  void TakeLent();

  const int own_threads_;
  const Processors processors_;
  const std::shared_ptr<ThreadGroup> group_;  // may be null
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  // Guarded by mutex_. `body_` is null between jobs, so a worker that wakes late finds nothing to
  // join.
  const Body* body_ = nullptr;
  int64_t tasks_ = 0;
  int places_ = 0;   // free places for workers in the current job
  int lent_ = 0;     // how many of `places_` are for lent workers
  int members_ = 0;  // workers that are in the job or have a place in it
  bool stop_ = false;
  Ahead ahead_;
  // Written under mutex_; read without it only while spinning.
  std::atomic<uint64_t> job_{0};
  std::atomic<int> active_{0};     // workers inside the current job
  std::atomic<uint64_t> hint_{0};  // counts WillRead calls

  std::atomic<int64_t> next_task_{0};
  std::vector<std::thread> workers_;
  std::chrono::steady_clock::time_point job_start_;  // used by the caller's thread only
  std::vector<char> is_lent_;  // [thread]; each entry is used by its own thread only
  std::vector<Run> runs_;      // [thread]
  Workspace op_scratch_;
  Workspace outer_scratch_;
  Workspace result_scratch_;
};

// The CpuStream behind the stream that an op of this backend receives.
inline CpuStream& AsCpuStream(Stream& stream) { return static_cast<CpuStream&>(stream); }

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_HOST_CPU_STREAM_H_
