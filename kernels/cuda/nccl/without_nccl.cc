// nccl.h of kernels/cuda in a build that found no header of NCCL.
#include "kernels/cuda/nccl/nccl.h"

namespace annulus::cuda {

absl::StatusOr<std::unique_ptr<Nccl>> OpenNccl() {
  return absl::FailedPreconditionError(
      "this build has no NCCL; build where nccl.h is installed (Debian and Ubuntu: libnccl-dev), "
      "or "
      "use --ring-transport auto, peer or staged");
}

}  // namespace annulus::cuda
