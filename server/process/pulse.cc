#include "server/process/pulse.h"

namespace annulus::server {

void Pulse::Beat(Time now, bool sick, bool stuck) {
  std::lock_guard lock(mutex_);
  last_ = now;
  stuck_ = stuck;
  if (!sick) sick_since_.reset();
  if (sick && !sick_since_) sick_since_ = now;
}

bool Pulse::alive(Time now) const {
  std::lock_guard lock(mutex_);
  if (now - last_ > kLongestPause || stuck_) return false;
  return !sick_since_ || now - *sick_since_ <= kLongestSickness;
}

}  // namespace annulus::server
