#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda_backend.h"
#include "tests/engine/runner/device_fixture.h"

namespace annulus::testing {

absl::StatusOr<std::unique_ptr<Backend>> OpenDevices(int devices,
                                                     const CudaBackendOptions& options) {
  return CreateCudaBackends(devices, options);
}

void CloseDevices() {}
void AllowHostAccess() {}

bool IsDeviceMemory(const void* address) {
  cudaPointerAttributes place{};
  return cudaPointerGetAttributes(&place, address) == cudaSuccess &&
         place.type == cudaMemoryTypeDevice;
}

std::optional<int64_t> GraphRuns() { return std::nullopt; }

std::vector<int> RingSizes() { return {1, 2, 4, 8}; }

}  // namespace annulus::testing
