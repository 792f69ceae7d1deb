#ifndef ANNULUS_ENGINE_BASE_HEARTBEAT_H_
#define ANNULUS_ENGINE_BASE_HEARTBEAT_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "engine/base/clock.h"

namespace annulus {

// The time at which any of a group of workers last made progress. Whoever waits for work of unknown
// length goes on waiting as long as this time moves: the limit is on time without progress, not on
// the length of the work. Whoever watches from another process, by another clock, looks at how
// often they made progress. Thread-safe, lock-free.
class Heartbeat {
 public:
  // Says, as long as it lives, that one of the workers waits for another.
  class Waiting {
   public:
    explicit Waiting(Heartbeat& heartbeat) : heartbeat_(heartbeat) {
      heartbeat_.waiting_.fetch_add(1, std::memory_order_relaxed);
    }
    ~Waiting() { heartbeat_.waiting_.fetch_sub(1, std::memory_order_relaxed); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Heartbeat& heartbeat_;
  };

  // `clock` must outlive the heartbeat.
  explicit Heartbeat(const Clock& clock = Clock::Real()) : clock_(clock) { Beat(); }

  void Beat() {
    own_.store(clock_.Now().time_since_epoch().count(), std::memory_order_relaxed);
    beats_.fetch_add(1, std::memory_order_relaxed);
  }
  // Those with whom the workers work have made progress at `when`, which one thread at a time says.
  void BeatElsewhere(SteadyTime when) {
    if (when > Read(elsewhere_)) {
      elsewhere_.store(when.time_since_epoch().count(), std::memory_order_relaxed);
    }
  }
  SteadyTime last() const { return std::max(Read(own_), Read(elsewhere_)); }
  // Of the workers alone.
  SteadyTime last_own() const { return Read(own_); }
  // How often the workers themselves have made progress.
  uint64_t beats() const { return beats_.load(std::memory_order_relaxed); }
  // How many of the workers wait for another.
  int waiting() const { return waiting_.load(std::memory_order_relaxed); }
  // Whoever waits for the workers waits by this clock.
  const Clock& clock() const { return clock_; }

 private:
  using Ticks = std::atomic<SteadyTime::duration::rep>;

  static SteadyTime Read(const Ticks& ticks) {
    return SteadyTime(SteadyTime::duration(ticks.load(std::memory_order_relaxed)));
  }

  const Clock& clock_;
  Ticks own_;
  std::atomic<uint64_t> beats_{0};
  std::atomic<int> waiting_{0};
  Ticks elsewhere_{SteadyTime::min().time_since_epoch().count()};
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_HEARTBEAT_H_
