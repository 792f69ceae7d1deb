#ifndef ANNULUS_TESTS_SUPPORT_CUDA_GUARDED_MEMORY_H_
#define ANNULUS_TESTS_SUPPORT_CUDA_GUARDED_MEMORY_H_

#include <cstddef>
#include <map>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace annulus::cuda {

// Memory that the host may touch only while a kernel or a copy runs: at all other times its pages
// are forbidden, and a touch ends the process, as it would with a GPU's memory. With several
// threads a touch passes unseen while another thread's kernel runs. Thread-safe.
class GuardedMemory {
 public:
  explicit GuardedMemory(size_t capacity);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;

  // Aligned to 256 bytes; null where no gap is large enough.
  std::byte* Allocate(size_t bytes);
  // The bytes that were asked for.
  size_t Free(std::byte* block);
  bool Holds(const std::byte* address) const {
    return address >= base_ && address < base_ + capacity_;
  }

  // The bytes from there to the end of the block that the address is in; 0 where it is in none.
  size_t RoomAt(const std::byte* address);
  // Whether the address is in a block, or at the end of one.
  bool HoldsBlockAt(const std::byte* address);

  // Lets every thread touch the memory, if there is any, while any Access lives.
  class Access {
   public:
    explicit Access(GuardedMemory* memory) : memory_(memory) {
      if (memory_ != nullptr) memory_->Enter();
    }
    ~Access() {
      if (memory_ != nullptr) memory_->Leave();
    }
    Access(const Access&) = delete;

   private:
    GuardedMemory* const memory_;
  };

 private:
  void Enter();
  void Leave();

  const size_t capacity_;
  std::byte* base_ = nullptr;
  std::mutex mutex_;
  std::map<size_t, size_t> blocks_ ABSL_GUARDED_BY(mutex_);  // offset -> bytes
  int users_ ABSL_GUARDED_BY(mutex_) = 0;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_SUPPORT_CUDA_GUARDED_MEMORY_H_
