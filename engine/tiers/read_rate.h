#ifndef ANNULUS_ENGINE_TIERS_READ_RATE_H_
#define ANNULUS_ENGINE_TIERS_READ_RATE_H_

#include <optional>

#include "engine/base/steady_time.h"

namespace annulus {

// Estimates how fast a store reads pages, from about the latest 50 reads. Counts only the time in
// which the store was reading, not time in queues.
//
// Forgets the rate if no read came for kForgetSeconds. Otherwise a store that was slow once would
// never be tried again, since nobody reads from a store that is expected to be slow. Not
// thread-safe.
class ReadRate {
 public:
  static constexpr double kForgetSeconds = 60;

  // Adds a measurement: the store was reading for `seconds` and returned `bytes`, which may be 0.
  void Add(double bytes, double seconds, SteadyTime now);

  // The expected seconds to read `bytes` bytes; infinity if all counted reads returned nothing.
  // Nothing if the rate is not known.
  std::optional<double> SecondsFor(double bytes, SteadyTime now) const;

 private:
  bool Known(SteadyTime now) const;

  double bytes_ = 0;
  double seconds_ = 0;
  SteadyTime latest_{};
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_READ_RATE_H_
