#ifndef ANNULUS_KERNELS_CUDA_COMMON_STREAM_HANDLE_H_
#define ANNULUS_KERNELS_CUDA_COMMON_STREAM_HANDLE_H_

namespace annulus::cuda {

class LaunchLog;

// A stream as runtime.h opens it. Used by one thread at a time.
struct OpenedStream {
  void* native = nullptr;     // a cudaStream_t, whose type no header outside of common/ needs
  LaunchLog* held = nullptr;  // takes launches instead of the device; null: they go out at once
};
using StreamHandle = OpenedStream*;
// A cudaEvent_t, likewise.
using EventHandle = void*;
// Launches that were made one: see runtime.h.
using GraphHandle = void*;

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_STREAM_HANDLE_H_
