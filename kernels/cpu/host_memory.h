#ifndef ANNULUS_KERNELS_CPU_HOST_MEMORY_H_
#define ANNULUS_KERNELS_CPU_HOST_MEMORY_H_

// Memory of the host in large blocks, mapped from the system.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/device_buffer.h"

namespace annulus {

// Pages of 2 MiB or more for blocks that are as large: fewer misses when addresses are translated.
enum class HugePages : uint8_t {
  kOff,          // as the system does by itself
  kAuto,         // kTransparent where the system offers that, else kOff
  kTransparent,  // asked for by madvise: the system uses them where it finds some
  kExplicit,     // from the pool that the administrator reserved: refused where it is empty
};

// What the system offers, in bytes; 0: nothing.
struct HugePageSupport {
  size_t transparent_bytes = 0;  // size of one that madvise can ask for
  size_t explicit_bytes = 0;     // size of one of the reserved pool
  size_t explicit_free = 0;      // bytes free in that pool
};

// `root` is put before /sys and /proc paths, for tests.
HugePageSupport ReadHugePageSupport(const std::string& root = "");

// The kind to use, never kAuto. FAILED_PRECONDITION, with what to do, where one is asked for by
// name that this machine has not.
absl::StatusOr<HugePages> ChooseHugePages(HugePages wanted, const HugePageSupport& support);

// Where the pages of a block come from when they are first touched. A wish: where a node is full,
// or the system refuses, they come from elsewhere.
struct NodeWish {
  enum class Kind : uint8_t { kNone, kPreferred, kInterleaved };
  Kind kind = Kind::kNone;
  std::vector<int> nodes;  // one for kPreferred
};

// `huge_pages`: not kAuto. `bytes` >= 1 of zeroes, aligned to the system's pages, or to huge ones
// where they are used: transparent ones for blocks of at least one, explicit ones where rounding
// the block up adds an eighth at most. Bytes that nobody touches cost no memory, but explicit huge
// pages are taken at once. RESOURCE_EXHAUSTED with the bytes where the system refuses.
absl::StatusOr<DeviceBuffer> MapHostMemory(size_t bytes, HugePages huge_pages,
                                           const HugePageSupport& support, const NodeWish& wish);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_HOST_MEMORY_H_
