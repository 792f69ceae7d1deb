#include "tests/support/cuda/block_runner.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kernels/base/check.h"
#include "tests/support/cuda/cluster_runner.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace annulus::cuda {
namespace {

constexpr size_t kGuardBytes = 4096;
constexpr auto kGuard = std::byte{0xa5};
constexpr auto kUnset = std::byte{0xff};  // NaN in every format
constexpr size_t kFrameAlignment = 1024;

thread_local BlockRunner* current_runner = nullptr;

}  // namespace

BlockRunner& BlockRunner::Current() {
  ANNULUS_CHECK(current_runner != nullptr) << "outside of a kernel";
  return *current_runner;
}

BlockRunner::BlockRunner(const Grid& grid, absl::FunctionRef<void()> kernel, ClusterRunner& cluster)
    : grid_(grid),
      kernel_(kernel),
      cluster_(cluster),
      threads_(grid.threads),
      warps_(grid.threads / kWarp) {
  ANNULUS_CHECK(grid.threads > 0 && grid.threads % kWarp == 0 && grid.threads <= 1024)
      << grid.threads << " threads per block";
  ANNULUS_CHECK(grid.x < (int64_t{1} << 31) && grid.y < 65536) << grid.x << " by " << grid.y;
  guard_begin_ = (grid.shared_bytes + kFrameAlignment - 1) / kFrameAlignment * kFrameAlignment;
  shared_ =
      static_cast<std::byte*>(std::aligned_alloc(kFrameAlignment, guard_begin_ + kGuardBytes));
  ANNULUS_CHECK(shared_ != nullptr);
  for (int i = 0; i < grid.threads; ++i) {
    threads_[i].fiber = std::make_unique<Fiber>([this, i] { Body(i); });
  }
}

BlockRunner::~BlockRunner() {
  stop_ = true;
  for (Thread& thread : threads_) thread.fiber->Enter();
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(shared_, guard_begin_ + kGuardBytes);
#endif
  std::free(shared_);
}

// A fiber lives for all blocks of the grid.
void BlockRunner::Body(int thread) {
  for (;;) {
    if (stop_) return;
    kernel_();
    ANNULUS_CHECK(threads_[thread].copies.empty())
        << "thread " << thread << " ended without waiting for its asynchronous copies";
    ANNULUS_CHECK(threads_[thread].waited || !grid_.overlaps)
        << "thread " << thread << " ended without waiting for earlier kernels";
    threads_[thread].groups.clear();
    threads_[thread].state = State::kEnded;
    threads_[thread].fiber->Leave();
  }
}

void BlockRunner::Begin(int64_t x, int64_t y) {
  block_x_ = x;
  block_y_ = y;
  ended_ = false;
  std::memset(shared_, static_cast<int>(kUnset), grid_.shared_bytes);
  std::byte* const guard = shared_ + grid_.shared_bytes;
  const size_t guard_bytes = guard_begin_ + kGuardBytes - grid_.shared_bytes;
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(guard, guard_bytes);
#else
  std::memset(guard, static_cast<int>(kGuard), guard_bytes);
#endif
  for (Thread& thread : threads_) {
    thread.state = State::kReady;
    thread.waited = false;
  }
}

bool BlockRunner::RunWarps() {
  if (ended_) return false;
  current_runner = this;
  const int warps = static_cast<int>(warps_.size());
  bool moved = false;
  for (int i = 0; i < warps; ++i) {
    moved |= RunWarp(Backwards() ? warps - 1 - i : i);
  }
  current_runner = nullptr;
  ended_ = std::all_of(threads_.begin(), threads_.end(),
                       [](const Thread& thread) { return thread.state == State::kEnded; });
  if (ended_) std::memset(shared_, static_cast<int>(kUnset), grid_.shared_bytes);
  return moved;
}

void BlockRunner::End() {
  ANNULUS_CHECK(engine_.empty()) << "the block ended before " << engine_.size()
                                 << " copies of the engine";
  CheckProducts();
  for (Some& some : some_) some = {};
#if !defined(__SANITIZE_ADDRESS__)
  const std::byte* const guard = shared_ + grid_.shared_bytes;
  const size_t guard_bytes = guard_begin_ + kGuardBytes - grid_.shared_bytes;
  for (size_t i = 0; i < guard_bytes; ++i) {
    ANNULUS_CHECK(guard[i] == kGuard)
        << "a write " << i << " bytes beyond the " << grid_.shared_bytes << " of shared memory";
  }
#endif
}

// Until no lane can go on; whether any did.
bool BlockRunner::RunWarp(int warp) {
  bool any = false;
  for (bool moved = true; moved;) {
    moved = false;
    for (int lane = 0; lane < kWarp; ++lane) {
      const int thread = warp * kWarp + (Backwards() ? kWarp - 1 - lane : lane);
      Thread& own = threads_[thread];
      if (own.state == State::kWaiting && (*own.done)()) own.state = State::kReady;
      if (own.state != State::kReady) continue;
      running_ = thread;
      own.fiber->Enter();
      moved = any = true;
    }
  }
  return any;
}

bool BlockRunner::RunEngine() {
  if (engine_.empty()) return false;
  current_runner = this;
  if (Backwards()) {
    engine_.back()();
    engine_.pop_back();
  } else {
    engine_.front()();
    engine_.pop_front();
  }
  current_runner = nullptr;
  return true;
}

void BlockRunner::CheckProducts() const {
  constexpr size_t kWarpsOfGroup = 4;
  for (size_t w = 0; w < warps_.size(); ++w) {
    const AsyncProducts& own = warps_[w].products;
    ANNULUS_CHECK(own.empty()) << "warp " << w << " ended without waiting for its products";
    const AsyncProducts& first = warps_[w / kWarpsOfGroup * kWarpsOfGroup].products;
    ANNULUS_CHECK(own.issued() == first.issued())
        << "warp " << w << " took part in " << own.issued()
        << " products, the first of its group in " << first.issued();
  }
}

void BlockRunner::FailWaiting() const {
  for (size_t i = 0; i < threads_.size(); ++i) {
    const Warp& warp = warps_[i / kWarp];
    ANNULUS_CHECK(threads_[i].state != State::kAtWarp)
        << "thread " << i << " waits at " << warp.operation << " for lanes that do not come";
    ANNULUS_CHECK(threads_[i].state != State::kAtBlock)
        << "thread " << i << " waits at " << barrier_ << " for threads that do not come";
    ANNULUS_CHECK(threads_[i].state != State::kWaiting)
        << "thread " << i << " waits at " << threads_[i].waits_at << " for what does not come";
  }
  std::abort();
}

void BlockRunner::WarpCollective(const char* operation, void* operands,
                                 void (*compute)(void* const* lanes)) {
  const int self = running_;
  Warp& warp = warps_[self / kWarp];
  ANNULUS_CHECK(warp.arrived == 0 || std::strcmp(warp.operation, operation) == 0)
      << "lanes of a warp are at " << warp.operation << " and at " << operation;
  warp.operation = operation;
  warp.operands[self % kWarp] = operands;
  if (++warp.arrived < kWarp) {
    threads_[self].state = State::kAtWarp;
    threads_[self].fiber->Leave();
    return;
  }
  compute(warp.operands);
  warp.arrived = 0;
  const int first = self / kWarp * kWarp;
  for (int i = first; i < first + kWarp; ++i) threads_[i].state = State::kReady;
}

bool BlockRunner::BlockBarrier(const char* operation, bool predicate) {
  const int self = running_;
  ANNULUS_CHECK(at_barrier_ == 0 || std::strcmp(barrier_, operation) == 0)
      << "threads of a block are at " << barrier_ << " and at " << operation;
  barrier_ = operation;
  any_ |= predicate;
  if (++at_barrier_ < grid_.threads) {
    threads_[self].state = State::kAtBlock;
    threads_[self].fiber->Leave();
    return any_result_;
  }
  at_barrier_ = 0;
  any_result_ = any_;
  any_ = false;
  for (Thread& thread : threads_) thread.state = State::kReady;
  return any_result_;
}

void BlockRunner::WaitUntil(const char* operation, absl::FunctionRef<bool()> done) {
  if (done()) return;
  Thread& own = threads_[running_];
  own.waits_at = operation;
  own.done = &done;
  own.state = State::kWaiting;
  own.fiber->Leave();
}

void BlockRunner::WaitForEarlier() {
  WaitUntil("the wait for earlier kernels", [this] { return cluster_.earlier_done(); });
  threads_[running_].waited = true;
}

bool BlockRunner::SomeBarrier(int id, int threads, bool wait, bool predicate) {
  ANNULUS_CHECK(id >= 1 && id < 16) << "barrier " << id;
  ANNULUS_CHECK(threads > 0 && threads % kWarp == 0 && threads <= grid_.threads)
      << "a barrier of " << threads << " threads";
  Some& some = some_[id];
  ANNULUS_CHECK(some.arrived == 0 || some.threads == threads)
      << "barrier " << id << " of " << some.threads << " and of " << threads << " threads";
  some.threads = threads;
  some.any |= predicate;
  const uint64_t meeting = some.meetings;
  if (++some.arrived == threads) {
    some.arrived = 0;
    some.any_result = some.any;
    some.any = false;
    ++some.meetings;
  }
  if (wait) WaitUntil("a barrier of some threads", [&] { return some.meetings != meeting; });
  return some.any_result;
}

void BlockRunner::QueueCopy(void* to, const void* from) {
  threads_[running_].copies.push_back({to, from});
}

void BlockRunner::CommitCopies() {
  Thread& thread = threads_[running_];
  thread.groups.push_back(thread.copies.size());
}

void BlockRunner::WaitForCopies(int pending_groups) {
  Thread& thread = threads_[running_];
  const int done = static_cast<int>(thread.groups.size()) - pending_groups;
  if (done <= 0) return;
  const size_t end = thread.groups[done - 1];
  for (size_t i = 0; i < end; ++i) {
    const Copy& copy = thread.copies[i];
    if (copy.from != nullptr) {
      std::memcpy(copy.to, copy.from, sizeof(Bytes16));
    } else {
      std::memset(copy.to, 0, sizeof(Bytes16));
    }
  }
  thread.copies.erase(thread.copies.begin(), thread.copies.begin() + end);
  thread.groups.erase(thread.groups.begin(), thread.groups.begin() + done);
  for (size_t& group : thread.groups) group -= end;
}

void BlockRunner::CheckShared(const void* at, size_t bytes, size_t alignment,
                              const char* operation) const {
  const auto* begin = static_cast<const std::byte*>(at);
  ANNULUS_CHECK(begin >= shared_ && begin + bytes <= shared_ + grid_.shared_bytes)
      << operation << " at " << begin - shared_ << " of " << grid_.shared_bytes
      << " bytes of shared memory";
  ANNULUS_CHECK(reinterpret_cast<uintptr_t>(at) % alignment == 0)
      << operation << " at " << begin - shared_ << ", not a multiple of " << alignment;
}

}  // namespace annulus::cuda
