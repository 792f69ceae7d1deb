#ifndef ANNULUS_KERNELS_CPU_HOST_HOST_MEMORY_H_
#define ANNULUS_KERNELS_CPU_HOST_HOST_MEMORY_H_

// Large blocks of host memory, mapped from the system.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/device_buffer.h"

namespace annulus {

// Pages of 2 MiB or more, for blocks at least that large: they reduce TLB misses.
enum class HugePages : uint8_t {
  kOff,          // whatever the system does by itself
  kAuto,         // kTransparent if the system offers it, else kOff
  kTransparent,  // requested by madvise: the system uses them if it finds some
  kExplicit,     // from the pool that the administrator reserved; refused if it is empty
};

// What the system offers, in bytes; 0 means not available.
struct HugePageSupport {
  size_t transparent_bytes = 0;  // size of a page that madvise can ask for
  size_t explicit_bytes = 0;     // size of a page of the reserved pool
  size_t explicit_free = 0;      // bytes free in that pool
};

// `root` is prepended to /sys and /proc paths, for tests.
HugePageSupport ReadHugePageSupport(const std::string& root = "");

// Decides which kind to use; never returns kAuto. FAILED_PRECONDITION, with what to do, if `wanted`
// names a kind that this machine does not have.
absl::StatusOr<HugePages> ChooseHugePages(HugePages wanted, const HugePageSupport& support);

// The memory nodes that a block's pages should come from when they are first touched. Only a
// preference: if a node is full or the system refuses, they come from elsewhere.
struct NodeWish {
  enum class Kind : uint8_t { kNone, kPreferred, kInterleaved };
  Kind kind = Kind::kNone;
  std::vector<int> nodes;  // exactly one for kPreferred
};

// Maps `bytes` >= 1 of zeroed memory. Aligned to the system's pages, or to huge pages if those are
// used: transparent ones for blocks of at least one page, explicit ones if rounding up adds at most
// an eighth. Untouched bytes use no memory, except that explicit huge pages are taken at once.
// `huge_pages` must not be kAuto. RESOURCE_EXHAUSTED, with the size, if the system refuses.
absl::StatusOr<DeviceBuffer> MapHostMemory(size_t bytes, HugePages huge_pages,
                                           const HugePageSupport& support, const NodeWish& wish);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_HOST_HOST_MEMORY_H_
