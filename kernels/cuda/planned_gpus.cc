#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/gpu_kinds.h"
#include "kernels/cuda/capabilities.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/tuning/workspace_plan.h"
#include "kernels/planned_backend.h"

namespace annulus {

absl::StatusOr<std::unique_ptr<Backend>> PlanCudaBackends(absl::string_view kind,
                                                          size_t memory_bytes, int count) {
  const GpuKind* const found = FindGpuKind(kind);
  if (found == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown GPU type \"", kind, "\"; known are ", GpuKindNames(),
                     "; use a similar one, and set its memory with --memory"));
  }
  cuda::DeviceInfo device;
  device.name = found->description;
  device.major = found->major;
  device.minor = found->minor;
  device.multiprocessors = found->multiprocessors;
  device.shared_bytes = found->shared_bytes;
  device.memory_bytes = memory_bytes > 0 ? memory_bytes : found->memory_bytes;
  BackendCapabilities capabilities = cuda::CapabilitiesOf(device);
  capabilities.devices = count;
  return MakePlannedBackend(std::move(capabilities), [device](const WorkShape& most) {
    return cuda::PlanWorkspace(most, device, /*library=*/true);
  });
}

}  // namespace annulus
