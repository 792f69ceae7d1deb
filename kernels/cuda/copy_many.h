#ifndef ANNULUS_KERNELS_CUDA_COPY_MANY_H_
#define ANNULUS_KERNELS_CUDA_COPY_MANY_H_

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "kernels/cuda/runtime.h"
#include "kernels/device_link.h"

namespace annulus::cuda {

// With at least this many copies, one kernel makes them all instead of one call each.
inline constexpr size_t kFewestPulls = 4;

// Enqueues copies from memory of the device `from` to memory that kernels of the device `to` can
// write: its own or, if from == to, also pinned memory. If the devices differ, `to` must have been
// allowed to reach `from` (EnableReach). `stream` belongs to `to`. Many copies are made by one
// kernel, except those that are not whole words of 16 bytes. Each of a few copies is made by its
// own call, which takes no multiprocessor from other work.
absl::Status CopyMany(StreamHandle stream, int to, int from, std::span<const DeviceCopy> copies);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COPY_MANY_H_
