// The differential tests over the kernels of a real GPU. The heap of this program is pinned memory,
// which the device reads and writes at the same addresses, over the bus and without page faults;
// the emulation refuses what is not of a heap. Without a GPU it says why and exits with 77, which
// ctest shows as skipped.
#include <cuda_runtime_api.h>

#include <algorithm>
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

// Blocks of powers of two out of pinned regions, each opened when those before it are full: pinning
// takes long, and eight of these programs run at a time (bench/gpu/cases.sh). A block's first 64
// bytes say how large it is. What is asked for before there is an arena, or by CUDA while it opens
// a region, comes from the heap; what is beyond all regions is refused.
class PinnedArena {
 public:
  static constexpr size_t kRegion = size_t{256} << 20;
  static constexpr int kMostRegions = 16;
  static constexpr size_t kHeader = 64;

  // Called once, when the GPU has been found. False where nothing can be pinned.
  bool Open() {
    const std::lock_guard lock(mutex_);
    is_open_ = OpenRegion(kRegion);
    return is_open_;
  }

  void* Allocate(size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (!is_open_ || opening_) return std::malloc(bytes);
    const int level = std::bit_width(bytes + kHeader - 1);
    if (free_[level] != nullptr) {
      std::byte* const block = free_[level];
      std::memcpy(&free_[level], block + kHeader, sizeof(std::byte*));
      return block + kHeader;
    }
    const size_t whole = size_t{1} << level;
    if (whole > left_ && !OpenRegion(std::max(whole, kRegion))) return nullptr;
    std::byte* const block = next_;
    next_ += whole;
    left_ -= whole;
    std::memcpy(block, &level, sizeof(level));
    return block + kHeader;
  }

  void Free(void* memory) {
    auto* const data = static_cast<std::byte*>(memory);
    const std::lock_guard lock(mutex_);
    if (!Holds(data)) {
      std::free(memory);
      return;
    }
    int level = 0;
    std::memcpy(&level, data - kHeader, sizeof(level));
    std::memcpy(data, &free_[level], sizeof(std::byte*));
    free_[level] = data - kHeader;
  }

 private:
  struct Region {
    std::byte* begin;
    size_t bytes;
  };

  // What is left of the last region is given up.
  bool OpenRegion(size_t bytes) {
    if (count_ == kMostRegions) return false;
    void* memory = nullptr;
    opening_ = true;
    const cudaError_t error = cudaHostAlloc(&memory, bytes, cudaHostAllocMapped);
    opening_ = false;
    if (error != cudaSuccess) return false;
    next_ = static_cast<std::byte*>(memory);
    left_ = bytes;
    regions_[count_++] = {next_, bytes};
    return true;
  }

  bool Holds(const std::byte* data) const {
    for (int i = 0; i < count_; ++i) {
      if (data >= regions_[i].begin && data < regions_[i].begin + regions_[i].bytes) return true;
    }
    return false;
  }

  std::recursive_mutex mutex_;
  bool is_open_ = false;
  bool opening_ = false;  // by this thread: the mutex is held meanwhile
  std::array<Region, kMostRegions> regions_{};
  int count_ = 0;
  std::byte* next_ = nullptr;  // in the last region
  size_t left_ = 0;
  std::array<std::byte*, 64> free_{};
};

constinit PinnedArena arena;  // memory is asked for before anything is initialised

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
    std::printf("%zu bytes of host memory cannot be pinned\n", PinnedArena::kRegion);
    return 1;
  }
  std::printf("%s\n", (*gpu)->capabilities().description.c_str());
  testing::InitGoogleTest(&argc, argv);
  const int result = RUN_ALL_TESTS();
  // At exit CUDA may take the arena back before the last objects that lie in it have ended.
  std::fflush(nullptr);
  std::_Exit(result);
}
