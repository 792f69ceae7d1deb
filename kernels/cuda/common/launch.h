#ifndef ANNULUS_KERNELS_CUDA_COMMON_LAUNCH_H_
#define ANNULUS_KERNELS_CUDA_COMMON_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/device.h"
#include "kernels/cuda/common/stream_handle.h"

#if !defined(__CUDACC__)
#include <functional>

#include "absl/functional/function_ref.h"
#endif

namespace annulus::cuda {

// What a launch asks for. Threads per block are a multiple of 32.
struct Grid {
  int64_t x = 1;  // at most 2^31 - 1
  int64_t y = 1;  // at most 65535
  int threads = 0;
  size_t shared_bytes = 0;
  int other_device = -1;  // whose memory the kernel reaches besides its own; -1: none
};

#if defined(__CUDACC__)

// Enqueues `kKernel(arguments)`; 0 or the number of CUDA's error. An empty grid is no work.
template <auto kKernel, class Arguments>
int Launch(StreamHandle stream, const Grid& grid, const Arguments& arguments) {
  if (grid.x == 0 || grid.y == 0) return 0;
  constexpr size_t kWithoutAsking = 48 << 10;
  if (grid.shared_bytes > kWithoutAsking) {
    const cudaError_t error = cudaFuncSetAttribute(
        kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(grid.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  kKernel<<<dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y)), grid.threads,
            grid.shared_bytes, static_cast<cudaStream_t>(stream)>>>(arguments);
  return cudaGetLastError();
}

#else

// Runs `kernel` for every thread of the grid; 0.
int RunGrid(const Grid& grid, absl::FunctionRef<void()> kernel);
// Does so when the stream's turn has come.
int EnqueueGrid(StreamHandle stream, const Grid& grid, std::function<void()> kernel);

template <auto kKernel, class Arguments>
int Launch(StreamHandle stream, const Grid& grid, const Arguments& arguments) {
  return EnqueueGrid(stream, grid, [arguments] { kKernel(arguments); });
}

#endif

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_LAUNCH_H_
