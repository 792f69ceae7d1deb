#ifndef ANNULUS_ENGINE_TIERS_HOST_MAPPING_H_
#define ANNULUS_ENGINE_TIERS_HOST_MAPPING_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "kernels/base/device_buffer.h"

namespace annulus {

// So many bytes of the host's memory for pages, which the system provides as they are first used.
// RESOURCE_EXHAUSTED if it refuses.
absl::StatusOr<DeviceBuffer> MapHostMemory(size_t bytes);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_HOST_MAPPING_H_
