#ifndef ANNULUS_KERNELS_CUDA_CAPABILITIES_H_
#define ANNULUS_KERNELS_CUDA_CAPABILITIES_H_

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "kernels/cuda/runtime.h"

namespace annulus::cuda {

// Far more rows than are needed to fill a GPU's multiprocessors with blocks, so that the start and
// end of each product hardly matter. Also all the rows of most steps.
inline constexpr int64_t kWideRows = 4096;

// What the driver takes after a process has its context: kernel code when first launched, graphs,
// the library's own memory. An estimate, because CUDA does not report any of it.
inline constexpr size_t kMostReserved = size_t{512} << 20;
inline constexpr size_t kReservedShare = 16;

// The capabilities of such a GPU, whether it is present or only planned.
inline BackendCapabilities CapabilitiesOf(const DeviceInfo& device) {
  BackendCapabilities capabilities;
  capabilities.name = "cuda";
  capabilities.description =
      absl::StrCat(device.name, ", compute capability ", device.major, ".", device.minor);
  capabilities.memory_bytes = device.memory_bytes;
  capabilities.reserved_bytes = std::min(kMostReserved, device.memory_bytes / kReservedShare);
  capabilities.wide_rows = kWideRows;
  capabilities.host_accessible = false;
  return capabilities;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_CAPABILITIES_H_
