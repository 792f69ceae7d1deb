#ifndef ANNULUS_ENGINE_MEMORY_POISON_H_
#define ANNULUS_ENGINE_MEMORY_POISON_H_

// Marks of freed memory, so that its use after the end is loud.

#include <cstddef>
#include <cstdint>

#include "kernels/base/sanitizers.h"

namespace annulus {

// Whether freed pages are poisoned unless the caller says otherwise.
#if defined(NDEBUG)
inline constexpr bool kPoisonFreedPages = kAddressSanitizer;
#else
inline constexpr bool kPoisonFreedPages = true;
#endif

// Stands at the start of poisoned bytes; every byte after it is 0xff, which is NaN in every
// floating-point storage format.
struct PoisonHeader {
  static constexpr uint64_t kMagic = 0xffffdeadfeed0badull;

  uint64_t magic = kMagic;
  uint64_t owner = 0;       // who held the bytes last
  uint32_t generation = 0;  // how often they have been freed
  int32_t id = 0;           // of the page

  bool operator==(const PoisonHeader&) const = default;
};

// Fills host memory; requires bytes >= sizeof(PoisonHeader).
void FillPoison(std::byte* data, size_t bytes, const PoisonHeader& header);

// Whether the bytes are exactly what FillPoison left.
bool PoisonIntact(const std::byte* data, size_t bytes, const PoisonHeader& header);

// Forbid and allow any access under AddressSanitizer; elsewhere they do nothing. Host memory only.
// Works on whole groups of 8 bytes: data must be a multiple of 8.
void ForbidAccess(const std::byte* data, size_t bytes);
void AllowAccess(const std::byte* data, size_t bytes);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_POISON_H_
