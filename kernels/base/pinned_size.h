#ifndef ANNULUS_KERNELS_BASE_PINNED_SIZE_H_
#define ANNULUS_KERNELS_BASE_PINNED_SIZE_H_

#include <algorithm>
#include <bit>
#include <cstddef>

namespace annulus {

// The largest block of pinned host memory that devices keep for reuse.
inline constexpr size_t kMostPinnedKept = size_t{256} << 20;

// Bytes that are pinned for a block of so many, if the device has memory of its own. Blocks that
// may be kept are powers of two, so that they fit others; larger ones have exactly the size
// requested.
constexpr size_t PinnedSize(size_t bytes) {
  constexpr size_t kSmallest = 4096;
  return bytes > kMostPinnedKept ? bytes : std::bit_ceil(std::max(bytes, kSmallest));
}

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_PINNED_SIZE_H_
