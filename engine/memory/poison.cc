#include "engine/memory/poison.h"

#include <algorithm>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace annulus {
namespace {

constexpr std::byte kFilling{0xff};

}  // namespace

void FillPoison(std::byte* data, size_t bytes, const PoisonHeader& header) {
  std::memcpy(data, &header, sizeof(header));
  std::fill(data + sizeof(header), data + bytes, kFilling);
}

bool PoisonIntact(const std::byte* data, size_t bytes, const PoisonHeader& header) {
  PoisonHeader found;
  std::memcpy(&found, data, sizeof(found));
  return found == header && std::all_of(data + sizeof(header), data + bytes,
                                        [](std::byte value) { return value == kFilling; });
}

#if defined(__SANITIZE_ADDRESS__)
void ForbidAccess(const std::byte* data, size_t bytes) { __asan_poison_memory_region(data, bytes); }
void AllowAccess(const std::byte* data, size_t bytes) {
  __asan_unpoison_memory_region(data, bytes);
}
#else
void ForbidAccess(const std::byte*, size_t) {}
void AllowAccess(const std::byte*, size_t) {}
#endif

}  // namespace annulus
