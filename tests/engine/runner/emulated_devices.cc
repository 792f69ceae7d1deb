#include "kernels/cuda/cuda_backend.h"
#include "tests/engine/runner/device_fixture.h"
#include "tests/support/cuda/emulated_device.h"
#include "tests/support/cuda/emulated_memory.h"
#include "tests/support/cuda/emulated_streams.h"

namespace annulus::testing {

using cuda::EmulatedDevice;
using cuda::EmulatedStreams;

absl::StatusOr<std::unique_ptr<Backend>> OpenDevices(int devices,
                                                     const CudaBackendOptions& options) {
  EmulatedDevice::Get().guarded = true;
  EmulatedStreams::Get().set_late(true);
  EmulatedDevice::Get().devices = devices;
  return CreateCudaBackends(devices, options).value();
}

void CloseDevices() {
  EmulatedDevice& device = EmulatedDevice::Get();
  if (device.hangs) EmulatedStreams::Get().Forget();
  EmulatedStreams::Get().set_late(false);
  device.guarded = false;
  device.devices = 1;
  device.odd_device = -1;
  device.reach = true;
  device.between_microseconds = 0;
  device.image_error = 0;
  device.allocate_error = 0;
  device.event_error = 0;
  device.hangs_of = -1;
  device.wait_error = 0;
  device.wait_error_of = -1;
  device.graph_build_error = 0;
  device.graph_run_error = 0;
}

void AllowHostAccess() { EmulatedDevice::Get().guarded = false; }

bool IsDeviceMemory(const void* address) {
  return cuda::PlaceOf(address).kind == cuda::MemoryPlace::Kind::kDevice;
}

std::optional<int64_t> GraphRuns() { return EmulatedDevice::Get().graph_runs; }

std::vector<int> RingSizes() { return {1, 3}; }

}  // namespace annulus::testing
