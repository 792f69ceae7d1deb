#include "engine/tiers/host_mapping.h"

#include <sys/mman.h>

#include "absl/strings/str_cat.h"

namespace annulus {

absl::StatusOr<DeviceBuffer> MapHostMemory(size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the system refused ", bytes, " bytes of memory for pages; lower --kv-host"));
  }
  return DeviceBuffer(static_cast<std::byte*>(data), bytes,
                      [bytes](std::byte* block) { munmap(block, bytes); });
}

}  // namespace annulus
