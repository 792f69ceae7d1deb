#ifndef ANNULUS_KERNELS_CUDA_NCCL_LINKS_H_
#define ANNULUS_KERNELS_CUDA_NCCL_LINKS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/device_waits.h"
#include "kernels/cuda/runtime.h"
#include "kernels/device_link.h"

namespace annulus::cuda {

// Size of the host buffer that a staged copy passes through. A link pins two, so that one fills
// while the other empties.
inline constexpr size_t kStageBytes = size_t{1} << 20;

// Opens a link from `from` to `to`, which must be different devices. For kPeer, FAILED_PRECONDITION
// if `to` cannot reach memory of `from`.
absl::StatusOr<std::unique_ptr<DeviceLink>> OpenDeviceLink(const DeviceInfo& from,
                                                           const DeviceInfo& to, LinkKind kind,
                                                           std::shared_ptr<DeviceWaits> waits);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_NCCL_LINKS_H_
