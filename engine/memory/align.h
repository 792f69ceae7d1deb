#ifndef ANNULUS_ENGINE_MEMORY_ALIGN_H_
#define ANNULUS_ENGINE_MEMORY_ALIGN_H_

#include <cstddef>

namespace annulus {

// Everything that the pool, the pages and the step arena hand out starts on a multiple of this many
// bytes: one cache line, and the width of the widest vector.
inline constexpr size_t kMemoryAlignment = 64;

// The bytes that an allocation of `bytes` really takes. Requires bytes <= SIZE_MAX - 63.
constexpr size_t AlignUp(size_t bytes) {
  return (bytes + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
}

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_ALIGN_H_
