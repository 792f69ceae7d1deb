#ifndef ANNULUS_KERNELS_CUDA_NCCL_NCCL_H_
#define ANNULUS_KERNELS_CUDA_NCCL_NCCL_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/common/stream_handle.h"

// The part of NCCL that the backend uses, behind an interface like products.h. A binary links one
// of three implementations: nccl_library.cc, without_nccl.cc (if the build found no nccl.h), or the
// emulation in tests/support/cuda/.

namespace annulus::cuda {

// An ncclComm_t.
using NcclHandle = void*;

// One send or receive. `data` is memory of the communicator's device; it is only read when sent.
struct NcclTransfer {
  int peer = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;  // greater than 0
};

// The most sends and receives that the library takes in one group (NCCL user guide, "Group calls").
inline constexpr size_t kMostTransfers = 2048;

// The library. Thread-safe, except that calls about one communicator must come one at a time. No
// call waits for another rank: work may still be under way when a call returns, and Settled tells
// when it is done. Errors carry the library's message and what to do: UNAVAILABLE if a peer, the
// system or a device failed, INTERNAL if the library was used wrongly.
class Nccl {
 public:
  virtual ~Nccl() = default;

  // Begins to create one communicator per device, rank r on ordinals[r].
  virtual absl::StatusOr<std::vector<NcclHandle>> Begin(std::span<const int> ordinals) = 0;

  // Enqueues at most kMostTransfers sends and receives as one group, on a stream of the
  // communicator's device; that device must be the calling thread's. Until the group has settled,
  // do not call anything else for this communicator and do not enqueue anything after the group.
  virtual absl::Status Exchange(NcclHandle communicator, StreamHandle stream,
                                std::span<const NcclTransfer> sends,
                                std::span<const NcclTransfer> receives) = 0;

  // Whether the communicator has taken up the last request. An error may also come from kernels
  // that it launched since.
  virtual absl::StatusOr<bool> Settled(NcclHandle communicator) = 0;

  // Ends everything under way, and destroys the communicator.
  virtual void Abort(NcclHandle communicator) = 0;
};

// FAILED_PRECONDITION if NCCL cannot be used, with what is missing and what to do.
absl::StatusOr<std::unique_ptr<Nccl>> OpenNccl();

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_NCCL_NCCL_H_
