#ifndef ANNULUS_SERVER_NET_ALLOWANCE_H_
#define ANNULUS_SERVER_NET_ALLOWANCE_H_

#include "engine/api.h"

namespace annulus::server {

// How much of something may come: a level that is taken from and that time raises evenly, up to a
// burst. Starts full. Not thread-safe.
class Allowance {
 public:
  Allowance(double burst, double per_second)
      : burst_(burst), per_second_(per_second), left_(burst) {}

  // Takes `amount`. Returns false, and takes nothing, if less is left.
  bool Take(double amount, SteadyTime now);
  // Adds `amount`, but not beyond the burst. Returns the rest.
  double Add(double amount);
  bool full(SteadyTime now);

 private:
  void Refill(SteadyTime now);

  const double burst_;
  const double per_second_;
  double left_;
  bool started_ = false;
  SteadyTime filled_;  // when time last raised the level
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_NET_ALLOWANCE_H_
