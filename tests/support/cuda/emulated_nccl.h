#ifndef ANNULUS_TESTS_SUPPORT_CUDA_EMULATED_NCCL_H_
#define ANNULUS_TESTS_SUPPORT_CUDA_EMULATED_NCCL_H_

#include <atomic>
#include <cstdint>

namespace annulus::cuda {

// The library behind kernels/cuda/nccl/nccl.h where this is linked: ranks of one process on
// emulated devices, whose streams must be late (emulated_streams.h). As in NCCL, a group ends once
// every peer's group with the other half of each transfer has begun, and groups of one rank come
// one after the other: ranks whose groups do not fit together wait for ever. Faults on demand.
struct EmulatedNccl {
  std::atomic<bool> library{true};    // whether it can be loaded
  std::atomic<bool> opens{true};      // else the ranks never find each other
  std::atomic<int> silent_rank{-1};   // whose groups never begin; -1: none
  std::atomic<int> failing_rank{-1};  // which is told that a peer is gone
  std::atomic<int> groups{0};         // that have begun and ended
  std::atomic<int64_t> transfers{0};  // sends and receives asked for

  static EmulatedNccl& Get();
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_SUPPORT_CUDA_EMULATED_NCCL_H_
