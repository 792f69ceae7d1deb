#ifndef ANNULUS_KERNELS_CUDA_COMMON_STREAM_HANDLE_H_
#define ANNULUS_KERNELS_CUDA_COMMON_STREAM_HANDLE_H_

namespace annulus::cuda {

class LaunchLog;

// A stream opened by runtime.h. Used by one thread at a time.
struct OpenedStream {
  void* native = nullptr;     // a cudaStream_t; headers outside common/ do not need its type
  LaunchLog* held = nullptr;  // collects launches instead of the device; null: they go out at once
  // Launches of kernels that can begin before the one in front has ended (overlap.h) do so. Only on
  // compute capability 9.0 and later.
  bool overlaps = false;
};
using StreamHandle = OpenedStream*;
// A cudaEvent_t, likewise.
using EventHandle = void*;
// A graph of launches: see runtime.h.
using GraphHandle = void*;

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_STREAM_HANDLE_H_
