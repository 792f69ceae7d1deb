#ifndef ANNULUS_ENGINE_BASE_HEARTBEAT_H_
#define ANNULUS_ENGINE_BASE_HEARTBEAT_H_

#include <algorithm>
#include <atomic>

#include "engine/base/clock.h"

namespace annulus {

// The time at which any of a group of workers last made progress. Whoever waits for work of unknown
// length goes on waiting as long as this time moves: the limit is on time without progress, not on
// the length of the work. Thread-safe, lock-free.
class Heartbeat {
 public:
  // `clock` must outlive the heartbeat.
  explicit Heartbeat(const Clock& clock = Clock::Real()) : clock_(clock) { Beat(); }

  void Beat() { own_.store(clock_.Now().time_since_epoch().count(), std::memory_order_relaxed); }
  // Those with whom the workers work have made progress at `when`, which one thread at a time says.
  void BeatElsewhere(SteadyTime when) {
    if (when > Read(elsewhere_)) {
      elsewhere_.store(when.time_since_epoch().count(), std::memory_order_relaxed);
    }
  }
  SteadyTime last() const { return std::max(Read(own_), Read(elsewhere_)); }
  // Of the workers alone.
  SteadyTime last_own() const { return Read(own_); }
  // Whoever waits for the workers waits by this clock.
  const Clock& clock() const { return clock_; }

 private:
  using Ticks = std::atomic<SteadyTime::duration::rep>;

  static SteadyTime Read(const Ticks& ticks) {
    return SteadyTime(SteadyTime::duration(ticks.load(std::memory_order_relaxed)));
  }

  const Clock& clock_;
  Ticks own_;
  Ticks elsewhere_{SteadyTime::min().time_since_epoch().count()};
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_HEARTBEAT_H_
