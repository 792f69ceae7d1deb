#ifndef ANNULUS_KERNELS_CUDA_SM80_PULL_H_
#define ANNULUS_KERNELS_CUDA_SM80_PULL_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/stream_handle.h"

namespace annulus::cuda {

// One of the copies that a launch makes. `from` is memory of the launching device, or of another
// one that it can reach; `to` is memory of the launching device, or pinned memory of the host.
// Addresses and sizes are multiples of kPullAlignment.
struct Pull {
  std::byte* to;
  const std::byte* from;
  int64_t bytes;
};
inline constexpr size_t kPullAlignment = 16;
inline constexpr int kMostPulls = 128;  // a launch's arguments may take 4 KiB

inline constexpr int kOwnDevice = -1;

struct PullArguments {
  int from_device;  // the device of all `from`, or kOwnDevice
  int count;
  Pull pulls[kMostPulls];
};
static_assert(sizeof(PullArguments) <= 4096);

// Launches the copies on a stream of the writing device. Returns 0 or CUDA's error number.
int LaunchPull(StreamHandle stream, const PullArguments& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_PULL_H_
