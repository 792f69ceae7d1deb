#include "engine/tiers/read_rate.h"

#include <algorithm>
#include <limits>

#include "engine/base/clock.h"

namespace annulus {
namespace {

// The weight of earlier reads after each new one. So about the last 50 reads count.
constexpr double kFading = 0.98;

}  // namespace

bool ReadRate::Known(SteadyTime now) const {
  return seconds_ > 0 && SecondsBetween(latest_, now) < kForgetSeconds;
}

void ReadRate::Add(double bytes, double seconds, SteadyTime now) {
  if (!Known(now)) bytes_ = seconds_ = 0;
  bytes_ = kFading * bytes_ + bytes;
  seconds_ = kFading * seconds_ + std::max(seconds, 1e-9);
  latest_ = now;
}

std::optional<double> ReadRate::SecondsFor(double bytes, SteadyTime now) const {
  if (!Known(now)) return std::nullopt;
  if (bytes <= 0) return 0;
  return bytes_ > 0 ? bytes / bytes_ * seconds_ : std::numeric_limits<double>::infinity();
}

}  // namespace annulus
