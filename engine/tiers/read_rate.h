#ifndef ANNULUS_ENGINE_TIERS_READ_RATE_H_
#define ANNULUS_ENGINE_TIERS_READ_RATE_H_

#include <optional>

#include "engine/base/steady_time.h"

namespace annulus {

// How fast a disk reads pages, by the latest reads. Only the time in which the disk was reading
// counts, not the time in queues.
//
// A rate that was not measured again for kForgetSeconds is forgotten. Otherwise a disk that was
// slow once would never be tried again, as nobody reads from a disk that is believed to be slow.
// Not thread-safe.
class ReadRate {
 public:
  static constexpr double kForgetSeconds = 60;

  // `bytes` came while the disk was reading for `seconds`. 0 bytes: it gave nothing in that time.
  void Add(double bytes, double seconds, SteadyTime now);

  // Seconds that reading `bytes` bytes will take; nothing: the rate is not known.
  std::optional<double> SecondsFor(double bytes, SteadyTime now) const;

 private:
  bool Known(SteadyTime now) const;

  double bytes_ = 0;
  double seconds_ = 0;
  SteadyTime latest_{};
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_READ_RATE_H_
