#ifndef ANNULUS_TESTS_SUPPORT_CUDA_BLOCK_RUNNER_H_
#define ANNULUS_TESTS_SUPPORT_CUDA_BLOCK_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/cuda/common/launch.h"
#include "tests/support/cuda/async_work.h"
#include "tests/support/cuda/fiber.h"

namespace annulus::cuda {

class ClusterRunner;

// Runs a block, and then another one of the same grid; its threads are fibers of the calling
// thread, which change only where they wait for each other. ClusterRunner decides which block runs
// when. What real hardware would let pass by luck ends the process with a message: a collective
// that not all lanes reach, a barrier that not all threads reach, asynchronous copies and products
// that nobody waited for, and accesses by the wrappers of common/ beyond the shared memory. Plain
// accesses beyond it are found by guard bytes at the end of the block, and by the address sanitizer
// at once; a thread of a kernel that overlaps and does not wait for earlier ones. Shared memory
// starts as NaN. Asynchronous copies and products happen as late as they
// may: those of a thread or warp when it waits for them, those of the copy engine one by one when
// no thread can go on, in either order. Every second block runs its warps, and the lanes of each,
// backwards.
class BlockRunner {
 public:
  BlockRunner(const Grid& grid, absl::FunctionRef<void()> kernel, ClusterRunner& cluster);
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;

  // Starts the block at (x, y) of the grid: its threads are ready to run.
  void Begin(int64_t x, int64_t y);
  // Runs all warps, each until none of its lanes can go on; whether any did.
  bool RunWarps();
  // One copy of the engine, the oldest or, in every second block, the youngest; whether there was
  // one.
  bool RunEngine();
  // Whether all threads have ended; shared memory is NaN again then.
  bool ended() const { return ended_; }
  // Checks what the block leaves behind. All its threads have ended.
  void End();
  // Ends the process, with what a thread waits for that cannot come.
  [[noreturn]] void FailWaiting() const;

  // The runner of the calling fiber. Only inside of a kernel.
  static BlockRunner& Current();

  const Grid& grid() const { return grid_; }
  int64_t block_x() const { return block_x_; }
  int64_t block_y() const { return block_y_; }
  int thread() const { return running_; }
  std::byte* shared() const { return shared_; }
  ClusterRunner& cluster() const { return cluster_; }

  // Waits until all lanes of the calling warp are here with the same `operation`, then runs
  // `compute(operands of the 32 lanes)` once.
  void WarpCollective(const char* operation, void* operands, void (*compute)(void* const* lanes));
  // Waits for all threads of the block; whether `predicate` was true for any of them.
  bool BlockBarrier(const char* operation, bool predicate);

  // The same for `threads` threads that meet at barrier `id` (1 to 15), of which those with `wait`
  // stay until all are there.
  bool SomeBarrier(int id, int threads, bool wait, bool predicate);
  // Waits for what was enqueued before the kernel.
  void WaitForEarlier();
  // Leaves the calling thread until `done`.
  void WaitUntil(const char* operation, absl::FunctionRef<bool()> done);
  // Work of the copy engine.
  void QueueEngine(std::function<void()> work) { engine_.push_back(std::move(work)); }
  // Products of the calling warp.
  AsyncProducts& products() { return warps_[running_ / kWarp].products; }

  void QueueCopy(void* to, const void* from);  // from = null: zeros
  void CommitCopies();
  void WaitForCopies(int pending_groups);

  // Ends the process unless [at, at + bytes) is shared memory of this block, at a multiple of
  // `alignment`.
  void CheckShared(const void* at, size_t bytes, size_t alignment, const char* operation) const;

 private:
  enum class State : uint8_t { kReady, kAtWarp, kAtBlock, kWaiting, kEnded };
  struct Copy {
    void* to;
    const void* from;
  };
  struct Thread {
    std::unique_ptr<Fiber> fiber;
    State state = State::kReady;
    const char* waits_at = nullptr;
    bool waited = false;                              // for earlier kernels
    const absl::FunctionRef<bool()>* done = nullptr;  // while kWaiting
    std::vector<Copy> copies;
    std::vector<size_t> groups;  // ends of the committed groups in `copies`
  };
  struct Warp {
    int arrived = 0;
    const char* operation = nullptr;
    void* operands[kWarp];
    AsyncProducts products;
  };
  struct Some {
    int threads = 0;
    int arrived = 0;
    uint64_t meetings = 0;
    bool any = false;
    bool any_result = false;
  };

  bool Backwards() const { return (block_x_ + block_y_) % 2 != 0; }
  bool RunWarp(int warp);
  void CheckProducts() const;
  void Body(int thread);

  const Grid grid_;
  const absl::FunctionRef<void()> kernel_;
  ClusterRunner& cluster_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::byte* shared_ = nullptr;
  size_t guard_begin_ = 0;
  int64_t block_x_ = 0;
  int64_t block_y_ = 0;
  int running_ = 0;
  bool stop_ = false;
  bool ended_ = true;
  int at_barrier_ = 0;
  const char* barrier_ = nullptr;
  bool any_ = false;
  bool any_result_ = false;
  std::vector<Some> some_{16};
  std::deque<std::function<void()>> engine_;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_SUPPORT_CUDA_BLOCK_RUNNER_H_
