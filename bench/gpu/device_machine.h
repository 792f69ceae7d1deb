#ifndef ANNULUS_BENCH_GPU_DEVICE_MACHINE_H_
#define ANNULUS_BENCH_GPU_DEVICE_MACHINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "bench/model/bench_machine.h"
#include "kernels/base/activations.h"

namespace annulus::bench {

struct DeviceMachineOptions {
  Activations activations = Activations::kFloat;  // the model's
  // The shape of the product that serves as the device's ceiling. Its time includes rounding the
  // inputs; with more outputs that matters less.
  int64_t rows = 4096;
  int64_t in = 16384;
  int64_t out = 32768;
  size_t copied_bytes = size_t{1} << 30;
  double enough_seconds = 0.2;  // duration of one measurement
};

// Opens a device other than the host, with its kernels. Its ceilings are measured with the
// backend's fastest kernels and timed by the device's own events:
// - of products ("fp8_products" if the model multiplies in fp8, else "bf16_products"): one large
//   linear layer over random numbers;
// - of memory ("copy"): a copy inside the device, counting bytes read and written.
// FAILED_PRECONDITION if there are no kernels for the device. RESOURCE_EXHAUSTED, here or in
// ChooseProducts, if it has no memory for these; the memory stays allocated.
absl::StatusOr<std::unique_ptr<BenchMachine>> OpenDeviceMachine(
    std::unique_ptr<Backend> backend, KernelRegistry kernels, const DeviceMachineOptions& options);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_GPU_DEVICE_MACHINE_H_
