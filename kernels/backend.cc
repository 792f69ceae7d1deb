#include "kernels/backend.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace annulus {

absl::StatusOr<DeviceBuffer> Backend::AllocateHost(size_t bytes) {
  constexpr size_t kAlignment = 64;
  if (bytes == 0) return DeviceBuffer();
  void* const data =
      std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot allocate ", bytes, " bytes: the heap is exhausted"));
  }
  return DeviceBuffer(static_cast<std::byte*>(data), bytes,
                      [](std::byte* block) { std::free(block); });
}

}  // namespace annulus
