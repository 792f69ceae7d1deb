#ifndef ANNULUS_TESTS_SUPPORT_CUDA_EMULATED_DEVICE_H_
#define ANNULUS_TESTS_SUPPORT_CUDA_EMULATED_DEVICE_H_

#include <atomic>
#include <cstddef>

#include "kernels/cuda/runtime.h"
#include "tests/support/cuda/guarded_memory.h"

namespace annulus::cuda {

// The device behind runtime.h where this library is linked instead of CUDA: host memory, streams
// that finish at once, and faults on demand. One per process. Thread-safe.
struct EmulatedDevice {
  std::atomic<int> find_error{0};  // numbers of cudaError_t; 0: none
  std::atomic<int> allocate_error{0};
  std::atomic<int> copy_error{0};
  std::atomic<int> wait_error{0};
  std::atomic<int> major{9};
  std::atomic<int> multiprocessors{4};  // few: small tests then leave units whole, and split them
  std::atomic<size_t> allocated{0};     // bytes of device memory in use

  std::atomic<bool> products{false};  // whether there is a library: see kernels/cuda/products.h
  // Device memory allocated from now on is out of the host's reach (guarded_memory.h), as a GPU's
  // is. Otherwise tests may look at it. Pinned memory is always within reach.
  std::atomic<bool> guarded{false};

  static EmulatedDevice& Get();
  static constexpr size_t kMemoryBytes = size_t{1} << 30;
  GuardedMemory memory{kMemoryBytes};
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_SUPPORT_CUDA_EMULATED_DEVICE_H_
