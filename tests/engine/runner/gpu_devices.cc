#include "kernels/cuda/cuda_backend.h"
#include "tests/engine/runner/device_fixture.h"

namespace annulus::testing {

absl::StatusOr<std::unique_ptr<Backend>> OpenDevices(int devices,
                                                     const CudaBackendOptions& options) {
  return CreateCudaBackends(devices, options);
}

void CloseDevices() {}

std::vector<int> RingSizes() { return {1, 2, 4, 8}; }

}  // namespace annulus::testing
