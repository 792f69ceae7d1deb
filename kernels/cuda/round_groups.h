#ifndef ANNULUS_KERNELS_CUDA_ROUND_GROUPS_H_
#define ANNULUS_KERNELS_CUDA_ROUND_GROUPS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/nccl.h"
#include "kernels/device_link.h"

namespace annulus::cuda {

// What one group of a round does: first the copies, which put parts together, then its transfers.
struct RoundGroup {
  std::vector<DeviceCopy> packs;
  std::vector<NcclTransfer> sends;
  std::vector<NcclTransfer> receives;
};

// How a round of member `rank` of `ranks` travels. A message of fewer than kFewestPulls parts has a
// transfer for each. One of more travels as it lies in the receiver's memory, what is between parts
// included, in pieces of as many bytes as the area has for each peer: piece n in a group behind
// that of piece n - 1, from where it lies if that is one place, else put together in the area. So
// the area is bounded, and is free again when the next group's turn comes in the stream.
//
// Both sides cut by what both know, sizes of parts and of the area; between two ranks the groups of
// a round meet one by one. INTERNAL where the area has less than kPartAlignment bytes for each
// peer.
absl::StatusOr<std::vector<RoundGroup>> CutRound(std::span<const Communicator::Message> sends,
                                                 std::span<const Communicator::Message> receives,
                                                 std::span<std::byte> area, int rank, int ranks);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_ROUND_GROUPS_H_
