#ifndef ANNULUS_KERNELS_CUDA_SM80_PULL_H_
#define ANNULUS_KERNELS_CUDA_SM80_PULL_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/stream_handle.h"

namespace annulus::cuda {

// Copies that one launch makes. `from` is memory of another device, which the launching one
// reaches; addresses and bytes are multiples of kPullAlignment.
struct Pull {
  std::byte* to;
  const std::byte* from;
  int64_t bytes;
};
inline constexpr size_t kPullAlignment = 16;
inline constexpr int kMostPulls = 128;  // arguments of a launch have room for 4 KiB

struct PullArguments {
  int from_device;
  int count;
  Pull pulls[kMostPulls];
};
static_assert(sizeof(PullArguments) <= 4096);

// Launches on a stream of the receiving device. 0 or the number of CUDA's error.
int LaunchPull(StreamHandle stream, const PullArguments& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_PULL_H_
