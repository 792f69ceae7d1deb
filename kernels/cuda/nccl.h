#ifndef ANNULUS_KERNELS_CUDA_NCCL_H_
#define ANNULUS_KERNELS_CUDA_NCCL_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/common/stream_handle.h"

// What the backend needs of NCCL. A seam like products.h, with three implementations of which a
// binary links one: nccl_library.cc, without_nccl.cc where the build found no nccl.h, and the
// emulated one of tests/support/cuda/.

namespace annulus::cuda {

// An ncclComm_t.
using NcclHandle = void*;

// A send or a receive. `data` is of the communicator's device; only read where it is sent.
struct NcclTransfer {
  int peer = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;  // more than 0
};

// Sends and receives that the library takes in one group at most (NCCL user guide, "Group calls").
inline constexpr size_t kMostTransfers = 2048;

// The library. Thread-safe, but for calls about one communicator, which come one at a time. No call
// waits for another rank: what is not yet done is under way, and Settled tells when. Errors:
// UNAVAILABLE where a peer, the system or a device failed, INTERNAL where the library was used
// wrongly; messages say what the library says and what to do.
class Nccl {
 public:
  virtual ~Nccl() = default;

  // Begins to make one communicator for each device, rank r on ordinals[r].
  virtual absl::StatusOr<std::vector<NcclHandle>> Begin(std::span<const int> ordinals) = 0;

  // Enqueues sends and receives, kMostTransfers at most, as one group on a stream of the
  // communicator's device, which is the calling thread's. Nothing else may be asked of the
  // communicator, or enqueued behind the group, until it has settled.
  virtual absl::Status Exchange(NcclHandle communicator, StreamHandle stream,
                                std::span<const NcclTransfer> sends,
                                std::span<const NcclTransfer> receives) = 0;

  // Whether what was last asked of the communicator has been taken up. An error is also of what its
  // kernels met since.
  virtual absl::StatusOr<bool> Settled(NcclHandle communicator) = 0;

  // Ends all that is under way and the communicator itself.
  virtual void Abort(NcclHandle communicator) = 0;
};

// FAILED_PRECONDITION says what is missing and what to do.
absl::StatusOr<std::unique_ptr<Nccl>> OpenNccl();

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_NCCL_H_
