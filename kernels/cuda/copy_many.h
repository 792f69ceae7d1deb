#ifndef ANNULUS_KERNELS_CUDA_COPY_MANY_H_
#define ANNULUS_KERNELS_CUDA_COPY_MANY_H_

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "kernels/cuda/runtime.h"
#include "kernels/device_link.h"

namespace annulus::cuda {

// From so many copies on a kernel does what calls would.
inline constexpr size_t kFewestPulls = 4;

// Enqueues copies from memory of the device `from` to memory that kernels of the device `to` write:
// its own, or pinned memory where both are the same. Another device is one that `to` has been let
// reach. `stream` is one of `to`. Many go by one kernel, but for those that are not words of 16
// bytes; a few go by a call each, which takes no multiprocessor from others.
absl::Status CopyMany(StreamHandle stream, int to, int from, std::span<const DeviceCopy> copies);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COPY_MANY_H_
