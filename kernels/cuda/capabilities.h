#ifndef ANNULUS_KERNELS_CUDA_CAPABILITIES_H_
#define ANNULUS_KERNELS_CUDA_CAPABILITIES_H_

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "kernels/cuda/runtime.h"

namespace annulus::cuda {

// Far more than fill a GPU's multiprocessors with blocks of a product, so that what starts and ends
// a product is little beside it; and all the rows of most steps.
inline constexpr int64_t kWideRows = 4096;

// What the driver takes once a process has its context: code of kernels when they are first
// launched, graphs, the library's own memory. An estimate, as nothing of it can be asked for.
inline constexpr size_t kMostReserved = size_t{512} << 20;
inline constexpr size_t kReservedShare = 16;

// Of a GPU like this one, whether it is there or only planned. `threads` are the host's.
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
