#ifndef ANNULUS_KERNELS_CUDA_LINKS_H_
#define ANNULUS_KERNELS_CUDA_LINKS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/device_waits.h"
#include "kernels/cuda/runtime.h"
#include "kernels/device_link.h"

namespace annulus::cuda {

// Bytes of host memory that a staged copy passes through at a time; a link pins two such pieces,
// so that one is filled while the other is emptied.
inline constexpr size_t kStageBytes = size_t{1} << 20;

// A link from `from` to `to`, different devices. kPeer: FAILED_PRECONDITION where `to` does not
// reach memory of `from`.
absl::StatusOr<std::unique_ptr<DeviceLink>> OpenDeviceLink(const DeviceInfo& from,
                                                           const DeviceInfo& to, LinkKind kind,
                                                           std::shared_ptr<DeviceWaits> waits);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_LINKS_H_
