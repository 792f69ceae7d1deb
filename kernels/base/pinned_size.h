#ifndef ANNULUS_KERNELS_BASE_PINNED_SIZE_H_
#define ANNULUS_KERNELS_BASE_PINNED_SIZE_H_

#include <algorithm>
#include <bit>
#include <cstddef>

namespace annulus {

// The largest block of pinned host memory, in bytes, that devices keep for reuse after it is freed.
inline constexpr size_t kMostPinnedKept = size_t{256} << 20;

// Returns how many bytes a request for `bytes` of pinned host memory takes, if the device has
// memory of its own. A block that may be kept is rounded up to a power of two, at least 4096, so
// that later requests can reuse it. A larger one has exactly the size requested.
constexpr size_t PinnedSize(size_t bytes) {
  constexpr size_t kSmallest = 4096;
  return bytes > kMostPinnedKept ? bytes : std::bit_ceil(std::max(bytes, kSmallest));
}

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_PINNED_SIZE_H_
