#ifndef ANNULUS_ENGINE_TIERS_READ_RATE_H_
#define ANNULUS_ENGINE_TIERS_READ_RATE_H_

#include <optional>

#include "engine/base/steady_time.h"

namespace annulus {

// How fast a disk gives pages back, by the latest reads. Queues do not count: only the time in
// which the disk was reading does.
//
// A rate that nobody measured again for a while is forgotten. So a disk that was slow once is tried
// again, though nobody reads from a disk that is believed to be slow. Not thread-safe.
class ReadRate {
 public:
  static constexpr double kForgetSeconds = 60;

  // `bytes` came while the disk was reading for `seconds`. 0 bytes: it gave nothing in that time.
  void Add(double bytes, double seconds, SteadyTime now);

  // Seconds that so many bytes will take; nothing: the rate is not known.
  std::optional<double> SecondsFor(double bytes, SteadyTime now) const;

 private:
  bool Known(SteadyTime now) const;

  double bytes_ = 0;
  double seconds_ = 0;
  SteadyTime latest_{};
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_READ_RATE_H_
