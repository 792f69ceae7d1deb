#include "engine/memory/step_arena.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/memory/poison.h"
#include "kernels/base/check.h"

namespace annulus {

StepArena::StepArena(DeviceBuffer buffer, bool host_accessible)
    : buffer_(std::move(buffer)),
      host_accessible_(host_accessible),
      capacity_(buffer_.size() - buffer_.size() % kMemoryAlignment) {
  if (host_accessible_) ForbidAccess(buffer_.data(), capacity_);
}

StepArena::~StepArena() {
  if (host_accessible_) AllowAccess(buffer_.data(), capacity_);
}

void StepArena::Rewind(Position position) {
  ANNULUS_CHECK(position.used <= used_)
      << "rewind to " << position.used << " bytes, used are " << used_;
  if (host_accessible_) {
    ForbidAccess(buffer_.data() + position.used, used_ - position.used);
  }
  used_ = position.used;
}

std::byte* StepArena::TakeBytes(size_t bytes) {
  std::byte* data = buffer_.data() + used_;
  if (host_accessible_) AllowAccess(data, bytes);
  used_ += AlignUp(bytes);
  high_water_ = std::max(high_water_, used_);
  return data;
}

absl::Status StepArena::Full(size_t count, size_t value_bytes) const {
  return absl::ResourceExhaustedError(absl::StrCat("step arena: asked for ", count, " values of ",
                                                   value_bytes, " bytes, ", used_, " of ",
                                                   capacity_, " bytes are used"));
}

}  // namespace annulus
