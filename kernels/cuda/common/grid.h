#ifndef ANNULUS_KERNELS_CUDA_COMMON_GRID_H_
#define ANNULUS_KERNELS_CUDA_COMMON_GRID_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/stream_handle.h"

namespace annulus::cuda {

// What a launch asks for. Threads per block are a multiple of 32.
struct Grid {
  int64_t x = 1;  // at most 2^31 - 1
  int64_t y = 1;  // at most 65535
  int threads = 0;
  size_t shared_bytes = 0;
  int other_device = -1;  // whose memory the kernel reaches besides its own; -1: none

  bool operator==(const Grid&) const = default;
};

// The kernel with `bytes` bytes as its only argument, which are taken before this returns: enqueued
// on the stream's device, which is the calling thread's, or held back where the stream does so. 0
// or the number of CUDA's error; an empty grid is no work. Implemented with runtime.h.
int LaunchKernel(StreamHandle stream, const void* kernel, const Grid& grid, const void* arguments,
                 size_t bytes);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_GRID_H_
