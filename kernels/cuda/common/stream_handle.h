#ifndef ANNULUS_KERNELS_CUDA_COMMON_STREAM_HANDLE_H_
#define ANNULUS_KERNELS_CUDA_COMMON_STREAM_HANDLE_H_

namespace annulus::cuda {

// A cudaStream_t, whose type no header outside of common/ needs.
using StreamHandle = void*;
// A cudaEvent_t, likewise.
using EventHandle = void*;

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_STREAM_HANDLE_H_
