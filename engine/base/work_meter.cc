#include "engine/base/work_meter.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace annulus {

const CancelFlag& CancelFlag::Never() {
  static const CancelFlag never;
  return never;
}

absl::Status WorkMeter::Check() {
  cancel_.MayPause();
  if (cancel_.cancelled()) return absl::CancelledError("the call was cancelled");
  if (steps_ > limit_) {
    return absl::InvalidArgumentError(absl::StrCat(what_, " takes more than ", limit_, " steps"));
  }
  // Each term may be near the largest integer.
  const int64_t left = limit_ - steps_;
  next_check_ = left < kStepsBetweenChecks ? limit_ : steps_ + kStepsBetweenChecks;
  return absl::OkStatus();
}

}  // namespace annulus
