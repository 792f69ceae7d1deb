#ifndef ANNULUS_ENGINE_MEMORY_ALIGN_H_
#define ANNULUS_ENGINE_MEMORY_ALIGN_H_

#include <cstddef>

namespace annulus {

// Alignment in bytes of everything that the pool, the pages and the step arena return: a cache
// line, which is also the width of the widest vector.
inline constexpr size_t kMemoryAlignment = 64;

// The bytes that an allocation of `bytes` actually takes. Requires bytes <= SIZE_MAX - 63.
constexpr size_t AlignUp(size_t bytes) {
  return (bytes + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
}

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_ALIGN_H_
