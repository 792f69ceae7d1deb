#include "engine/ring/work_timer.h"

#include <chrono>
#include <utility>

#include "engine/base/clock.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::Status WorkTimer::Time(Stream& stream, absl::FunctionRef<absl::Status()> ops) {
  if (by_events_) {
    ANNULUS_RETURN_IF_ERROR(Mark(stream));
    ANNULUS_RETURN_IF_ERROR(ops());
    return Mark(stream);
  }
  const SteadyTime start = std::chrono::steady_clock::now();
  const absl::Status status = ops();
  seconds_ += SecondsBetween(start, std::chrono::steady_clock::now());
  return status;
}

// Call n of a step has the same events as call n of the step before, so that graphs stay the same.
absl::Status WorkTimer::Mark(Stream& stream) {
  if (used_ == events_.size()) {
    ANNULUS_ASSIGN_OR_RETURN(events_.emplace_back(), backend_.CreateEvent(/*timed=*/true));
  }
  return stream.Mark(*events_[used_++]);
}

absl::Status WorkTimer::Follow() {
  const size_t ahead = 2 * kAhead;
  return used_ > ahead ? backend_.WaitFor(*events_[used_ - ahead - 1]) : absl::OkStatus();
}

absl::StatusOr<double> WorkTimer::Take() {
  double seconds = std::exchange(seconds_, 0);
  const size_t used = std::exchange(used_, 0);
  for (size_t i = 0; i + 1 < used; i += 2) {
    ANNULUS_ASSIGN_OR_RETURN(const double between,
                             backend_.SecondsBetween(*events_[i], *events_[i + 1]));
    seconds += between;
  }
  return seconds;
}

void WorkTimer::Forget() {
  seconds_ = 0;
  used_ = 0;
}

}  // namespace annulus
