#ifndef ANNULUS_KERNELS_CUDA_COMMON_GRID_H_
#define ANNULUS_KERNELS_CUDA_COMMON_GRID_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/stream_handle.h"

namespace annulus::cuda {

// The shape of a launch. The number of threads per block must be a multiple of 32.
struct Grid {
  int64_t x = 1;  // at most 2^31 - 1
  int64_t y = 1;  // at most 65535
  int threads = 0;
  size_t shared_bytes = 0;
  int other_device = -1;  // whose memory the kernel also reaches; -1: none
  bool overlaps = false;  // may begin before the kernel in front has ended: see overlap.h

  bool operator==(const Grid&) const = default;
};

// Enqueues the kernel on the stream's device, which must be the calling thread's, or holds it back
// if the stream does so. The `bytes` bytes of `arguments`, its only argument, are copied before
// this returns. Returns 0 or CUDA's error number; an empty grid does nothing. Implemented together
// with runtime.h.
int LaunchKernel(StreamHandle stream, const void* kernel, const Grid& grid, const void* arguments,
                 size_t bytes);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_GRID_H_
