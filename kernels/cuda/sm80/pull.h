#ifndef ANNULUS_KERNELS_CUDA_SM80_PULL_H_
#define ANNULUS_KERNELS_CUDA_SM80_PULL_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/stream_handle.h"

namespace annulus::cuda {

// Copies that one launch makes. `from` is memory of the launching device, or of another one that it
// reaches; `to` is its own memory, or pinned memory of the host. Addresses and bytes are multiples
// of kPullAlignment.
struct Pull {
  std::byte* to;
  const std::byte* from;
  int64_t bytes;
};
inline constexpr size_t kPullAlignment = 16;
inline constexpr int kMostPulls = 128;  // arguments of a launch have room for 4 KiB

inline constexpr int kOwnDevice = -1;

struct PullArguments {
  int from_device;  // kOwnDevice, or that of all copies
  int count;
  Pull pulls[kMostPulls];
};
static_assert(sizeof(PullArguments) <= 4096);

// Launches on a stream of the device that writes. 0 or the number of CUDA's error.
int LaunchPull(StreamHandle stream, const PullArguments& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_PULL_H_
