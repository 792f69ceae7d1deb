#ifndef ANNULUS_KERNELS_CUDA_NCCL_COMMUNICATOR_H_
#define ANNULUS_KERNELS_CUDA_NCCL_COMMUNICATOR_H_

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/device_waits.h"
#include "kernels/device_link.h"

namespace annulus::cuda {

// Creates the members of an NCCL group, rank r on device ordinals[r]; all ordinals must differ.
// FAILED_PRECONDITION if NCCL cannot be loaded; DEADLINE_EXCEEDED if the ranks do not find each
// other within `timeout`; UNAVAILABLE if NCCL reports a failure or a device is lost.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> OpenNcclGroup(
    std::span<const int> ordinals, std::chrono::milliseconds timeout,
    std::shared_ptr<DeviceWaits> waits);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_NCCL_COMMUNICATOR_H_
