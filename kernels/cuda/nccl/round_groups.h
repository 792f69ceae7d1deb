#ifndef ANNULUS_KERNELS_CUDA_NCCL_ROUND_GROUPS_H_
#define ANNULUS_KERNELS_CUDA_NCCL_ROUND_GROUPS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/nccl/nccl.h"
#include "kernels/device_link.h"

namespace annulus::cuda {

// One group of a round: first its copies, which pack parts together, then its transfers.
struct RoundGroup {
  std::vector<DeviceCopy> packs;
  std::vector<NcclTransfer> sends;
  std::vector<NcclTransfer> receives;
};

// Plans how a round of member `rank` of `ranks` travels. A message of fewer than kFewestPulls parts
// takes one transfer per part. A longer message travels in the layout of the receiver's memory,
// gaps included, cut into pieces as large as the area's share for one peer. Piece n is in the group
// after that of piece n - 1. It is sent from where it lies if that is contiguous, else packed in
// the area first. So the area is bounded, and is free again when the stream reaches the next group.
//
// Both sides cut by the sizes of parts and of the area, which both know, so the groups of a round
// match one by one between two ranks. INTERNAL if the area has less than kPartAlignment bytes per
// peer.
absl::StatusOr<std::vector<RoundGroup>> CutRound(std::span<const Communicator::Message> sends,
                                                 std::span<const Communicator::Message> receives,
                                                 std::span<std::byte> area, int rank, int ranks);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_NCCL_ROUND_GROUPS_H_
