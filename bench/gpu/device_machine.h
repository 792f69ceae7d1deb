#ifndef ANNULUS_BENCH_GPU_DEVICE_MACHINE_H_
#define ANNULUS_BENCH_GPU_DEVICE_MACHINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "bench/model/bench_machine.h"
#include "kernels/base/activations.h"

namespace annulus {

struct DeviceMachineOptions {
  Activations activations = Activations::kFloat;  // of the model
  // Of the product that is the ceiling of a device. Inputs are rounded first, which counts: the
  // more outputs, the less it does.
  int64_t rows = 4096;
  int64_t in = 16384;
  int64_t out = 32768;
  size_t copied_bytes = size_t{1} << 30;
  double enough_seconds = 0.2;  // of one measurement
};

// A device that is not the host, and its kernels, of which the fastest table of the backend's name
// measures. Products ("fp8_products" where the model multiplies in fp8, else "bf16_products") are
// those of one large linear layer, over random numbers; memory ("copy") is a copy inside the
// device, bytes read and written. Both by the device's own events. RESOURCE_EXHAUSTED where the
// device has no memory for these, which stays taken.
absl::StatusOr<std::unique_ptr<BenchMachine>> OpenDeviceMachine(
    std::unique_ptr<Backend> backend, KernelRegistry kernels, const DeviceMachineOptions& options);

}  // namespace annulus

#endif  // ANNULUS_BENCH_GPU_DEVICE_MACHINE_H_
