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

absl::StatusOr<std::unique_ptr<Event>> Backend::CreateEvent(bool /*timed*/) {
  return std::make_unique<Event>();
}

absl::StatusOr<std::unique_ptr<DeviceLink>> Backend::OpenLink(Backend&, LinkKind) {
  return absl::FailedPreconditionError(
      absl::StrCat("the backend ", capabilities().name, " has only one device, without links"));
}

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> Backend::OpenGroup(
    int, std::chrono::milliseconds) {
  return absl::FailedPreconditionError(
      absl::StrCat("the backend ", capabilities().name, " has no communication library"));
}

}  // namespace annulus
