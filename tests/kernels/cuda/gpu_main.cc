// The differential tests over the kernels of a real GPU. The heap of this program is pinned memory,
// which the device reads and writes at the same addresses, over the bus and without page faults;
// the emulation refuses what is not of a heap. Without a GPU it says why and exits with 77, which
// ctest shows as skipped.
#include <cuda_runtime_api.h>

#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cuda/which_gpu.h"

namespace {

// Blocks of powers of two out of one pinned allocation; a block's first 64 bytes say how large it
// is. What is asked for before there is an arena comes from the heap; what is beyond it is refused.
class PinnedArena {
 public:
  static constexpr size_t kBytes = size_t{4} << 30;
  static constexpr size_t kHeader = 64;

  // Called once, when the GPU has been found.
  bool Open() {
    void* memory = nullptr;
    if (cudaHostAlloc(&memory, kBytes, cudaHostAllocMapped) != cudaSuccess) return false;
    begin_ = static_cast<std::byte*>(memory);
    return true;
  }

  void* Allocate(size_t bytes) {
    if (begin_ == nullptr) return std::malloc(bytes);
    const int level = std::bit_width(bytes + kHeader - 1);
    const std::lock_guard lock(mutex_);
    if (free_[level] != nullptr) {
      std::byte* const block = free_[level];
      std::memcpy(&free_[level], block + kHeader, sizeof(std::byte*));
      return block + kHeader;
    }
    const size_t whole = size_t{1} << level;
    if (whole > kBytes - used_) return nullptr;
    std::byte* const block = begin_ + used_;
    used_ += whole;
    std::memcpy(block, &level, sizeof(level));
    return block + kHeader;
  }

  void Free(void* memory) {
    auto* const data = static_cast<std::byte*>(memory);
    if (begin_ == nullptr || data < begin_ || data >= begin_ + kBytes) {
      std::free(memory);
      return;
    }
    int level = 0;
    std::memcpy(&level, data - kHeader, sizeof(level));
    const std::lock_guard lock(mutex_);
    std::memcpy(data, &free_[level], sizeof(std::byte*));
    free_[level] = data - kHeader;
  }

 private:
  std::mutex mutex_;
  std::byte* begin_ = nullptr;
  size_t used_ = 0;
  std::array<std::byte*, 64> free_{};
};

PinnedArena arena;

}  // namespace

void* operator new(size_t bytes) {
  void* const memory = arena.Allocate(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new[](size_t bytes) { return operator new(bytes); }
void operator delete(void* memory) noexcept { arena.Free(memory); }
void operator delete[](void* memory) noexcept { arena.Free(memory); }
void operator delete(void* memory, size_t) noexcept { arena.Free(memory); }
void operator delete[](void* memory, size_t) noexcept { arena.Free(memory); }

namespace annulus::testing {

bool IsRealGpu() { return true; }

}  // namespace annulus::testing

int main(int argc, char** argv) {
  // Ops return before the device has finished; tests look at once.
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  const auto gpu = annulus::CreateCudaBackend(0);
  if (!gpu.ok()) {
    std::printf("skipped: %s\n", std::string(gpu.status().message()).c_str());
    return 77;
  }
  if (!arena.Open()) {
    std::printf("%zu bytes of host memory cannot be pinned\n", PinnedArena::kBytes);
    return 1;
  }
  std::printf("%s\n", (*gpu)->capabilities().description.c_str());
  testing::InitGoogleTest(&argc, argv);
  const int result = RUN_ALL_TESTS();
  // At exit CUDA may take the arena back before the last objects that lie in it have ended.
  std::fflush(nullptr);
  std::_Exit(result);
}
