#ifndef ANNULUS_ENGINE_BASE_HEARTBEAT_H_
#define ANNULUS_ENGINE_BASE_HEARTBEAT_H_

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

  void Beat() { last_.store(clock_.Now().time_since_epoch().count(), std::memory_order_relaxed); }
  SteadyTime last() const {
    return SteadyTime(SteadyTime::duration(last_.load(std::memory_order_relaxed)));
  }
  // Whoever waits for the workers waits by this clock.
  const Clock& clock() const { return clock_; }

 private:
  const Clock& clock_;
  std::atomic<SteadyTime::duration::rep> last_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_HEARTBEAT_H_
