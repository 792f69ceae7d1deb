#ifndef ANNULUS_KERNELS_CPU_CPU_STREAM_H_
#define ANNULUS_KERNELS_CPU_CPU_STREAM_H_

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
#include "kernels/cpu/processors.h"

namespace annulus {

// Streams that lend each other idle threads. While `busy` threads of all of them compute, an op may
// take as many more as are left of `limit`: when it begins and, where it takes long, later on too.
struct ThreadGroup {
  explicit ThreadGroup(int threads) : limit(threads) {}
  const int limit;
  std::atomic<int> busy{0};
};

// A stream of the CPU backend: an op has finished when it returns, so Synchronize has nothing to
// wait for. It owns the workers that its ops can have at most, which spin after a job, lent ones
// for some microseconds and its own for about a tenth of a millisecond, and then sleep. Used by one
// thread at a time; that thread takes part in the work.
class CpuStream final : public Stream {
 public:
  // `threads` >= 1, else INVALID_ARGUMENT. RESOURCE_EXHAUSTED where the system refuses a thread.
  // Workers stay on `processors`; on any where there are none. With a group an op may have more
  // than `threads` while other streams of the group leave theirs idle.
  static absl::StatusOr<std::unique_ptr<CpuStream>> Create(
      int threads, Processors processors = {}, std::shared_ptr<ThreadGroup> group = nullptr);
  ~CpuStream() override;

  absl::Status Synchronize() override { return absl::OkStatus(); }
  void WillRead(std::span<const std::span<const std::byte>> ranges) override;
  void BindCaller() override { BindThread(processors_); }
  size_t workspace_bytes() const override {
    return op_scratch_.bytes() + outer_scratch_.bytes() + result_scratch_.bytes();
  }

  // Most that an op can have, the caller included.
  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task, thread) once for every task in [0, tasks), in any order and on any thread;
  // 0 <= thread < threads() names the one that runs it, so that each can have its own workspace.
  // Returns when all are done; what they wrote is then visible to the caller. With one thread and
  // no group, or one task, everything runs on the caller. `body` must not throw and must not call
  // the stream.
  void ParallelFor(int64_t tasks, absl::FunctionRef<void(int64_t task, int thread)> body);

  // As ParallelFor, but a thread takes neighbouring tasks one after the other, until others have
  // fallen behind: what it asks memory for ahead of one task is what it needs next.
  void ParallelRuns(int64_t tasks, absl::FunctionRef<void(int64_t task, int thread)> body);

  // Calls body(begin, end) over ranges that cover [0, rows), each worth waking a thread for.
  // `row_cost`: about how many elements a row reads and writes.
  void ParallelRows(int64_t rows, int64_t row_cost,
                    absl::FunctionRef<void(int64_t begin, int64_t end)> body);

  // Workspace of at least `bytes`, aligned to 64 bytes, kept and reused until the stream ends; its
  // contents are lost at the next call. RESOURCE_EXHAUSTED where there is no memory.
  absl::StatusOr<std::byte*> Scratch(size_t bytes) { return op_scratch_.AtLeast(bytes); }

  // The same for an op that is made of other ops, which use Scratch themselves.
  absl::StatusOr<std::byte*> OuterScratch(size_t bytes) { return outer_scratch_.AtLeast(bytes); }

  // The same for a result that such an op puts together while it uses both.
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
  // Ranges of bytes that the next op reads; nothing where there are none.
  struct Ahead {
    std::array<std::span<const std::byte>, kMostRanges> ranges;

    // Asks for the next few lines of a share, whose beginning is `at` bytes into all ranges.
    void Ask(size_t at) const;
    size_t bytes() const;
  };

  void Work(int thread);
  void Spin(uint64_t seen, int thread);
  int TakeHelpers(int64_t tasks);
  void RunJob(int64_t tasks, const Body& body, int helpers);
  void RunTasks(const Body& body, int64_t tasks, int thread);

  // Between two tasks. The caller's thread takes one more worker into a job that takes long, where
  // the group has an idle thread by now; true on such a worker when its owner computes again.
  bool Settle(int thread);
  void TakeLent();

  const int own_threads_;
  const Processors processors_;
  const std::shared_ptr<ThreadGroup> group_;  // may be null
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  // Guarded by mutex_. `body_` is null between jobs: a worker that wakes late finds nothing to
  // join.
  const Body* body_ = nullptr;
  int64_t tasks_ = 0;
  int places_ = 0;   // for further workers in the current job
  int lent_ = 0;     // of these, for lent ones
  int members_ = 0;  // workers that are in the job or have a place
  bool stop_ = false;
  Ahead ahead_;
  // Written under mutex_; read without it only to spin.
  std::atomic<uint64_t> job_{0};
  std::atomic<int> active_{0};     // workers inside the current job
  std::atomic<uint64_t> hint_{0};  // counts WillRead

  std::atomic<int64_t> next_task_{0};
  std::vector<std::thread> workers_;
  std::chrono::steady_clock::time_point job_start_;  // of the caller's thread
  std::vector<char> is_lent_;                        // [thread], each its thread's own
  Workspace op_scratch_;
  Workspace outer_scratch_;
  Workspace result_scratch_;
};

// The stream that every op of this backend is called with.
inline CpuStream& AsCpuStream(Stream& stream) { return static_cast<CpuStream&>(stream); }

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_CPU_STREAM_H_
