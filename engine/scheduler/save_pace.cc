#include "engine/scheduler/save_pace.h"

#include <chrono>
#include <iterator>

#include "engine/base/clock.h"

namespace annulus {

void SavePace::Computed(int32_t end, SteadyTime now) {
  unsaved_.push_back(end);
  if (!begun_.has_value()) begun_ = now;
}

void SavePace::Saved(int32_t end) {
  while (!unsaved_.empty() && unsaved_.front() <= end) unsaved_.pop_front();
}

bool SavePace::Waits(SteadyTime now) {
  if (due_.has_value()) waited_ += SecondsBetween(since_, now);
  due_.reset();
  if (std::ssize(unsaved_) < kMostChunks) return false;
  const double left = kMostSeconds + kMostShare * SecondsBetween(*begun_, now) - waited_;
  if (left <= 0) return false;
  since_ = now;
  // What may be waited grows by kMostShare of the wait itself.
  due_ = now + std::chrono::duration_cast<SteadyTime::duration>(
                   std::chrono::duration<double>(left / (1 - kMostShare)));
  return true;
}

}  // namespace annulus
