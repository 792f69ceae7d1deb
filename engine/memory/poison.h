#ifndef ANNULUS_ENGINE_MEMORY_POISON_H_
#define ANNULUS_ENGINE_MEMORY_POISON_H_

// Poisons freed memory so that any later use is detected.

#include <cstddef>
#include <cstdint>

#include "engine/memory/page_owner.h"
#include "kernels/base/sanitizers.h"

namespace annulus {

// Whether freed pages are poisoned by default.
#if defined(NDEBUG)
inline constexpr bool kPoisonFreedPages = kAddressSanitizer;
#else
inline constexpr bool kPoisonFreedPages = true;
#endif

// Header of poisoned bytes. All bytes after it are 0xff, which is NaN in every floating-point
// storage format.
struct PoisonHeader {
  static constexpr uint64_t kMagic = 0xffffdeadfeed0badull;

  uint64_t magic = kMagic;
  PageOwner owner;          // last holder of the bytes
  uint32_t generation = 0;  // how often they were freed
  int32_t id = 0;           // page id

  bool operator==(const PoisonHeader&) const = default;
};

// Fills host memory with a header and 0xff. Requires bytes >= sizeof(PoisonHeader).
void FillPoison(std::byte* data, size_t bytes, const PoisonHeader& header);

// Whether the bytes are exactly as FillPoison wrote them.
bool PoisonIntact(const std::byte* data, size_t bytes, const PoisonHeader& header);

// Forbids or allows access under AddressSanitizer; otherwise no-ops. Host memory only. Operates on
// groups of 8 bytes: `data` must be aligned to 8.
void ForbidAccess(const std::byte* data, size_t bytes);
void AllowAccess(const std::byte* data, size_t bytes);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_POISON_H_
