#ifndef ANNULUS_ENGINE_BASE_CLOCK_H_
#define ANNULUS_ENGINE_BASE_CLOCK_H_

#include <atomic>
#include <chrono>

#include "engine/base/steady_time.h"

namespace annulus {

// The steady clock, behind an interface so that tests can set the time. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual SteadyTime Now() const = 0;
};

class RealClock final : public Clock {
 public:
  SteadyTime Now() const override { return std::chrono::steady_clock::now(); }
};

// A clock that only Advance moves. Starts at the steady clock's zero.
class ManualClock final : public Clock {
 public:
  SteadyTime Now() const override {
    return SteadyTime(SteadyTime::duration(ticks_.load(std::memory_order_acquire)));
  }
  // `step` >= 0.
  void Advance(SteadyTime::duration step) {
    ticks_.fetch_add(step.count(), std::memory_order_acq_rel);
  }

 private:
  std::atomic<SteadyTime::duration::rep> ticks_{0};
};

// Seconds from `start` to `end`; negative if `end` is earlier.
inline double SecondsBetween(SteadyTime start, SteadyTime end) {
  return std::chrono::duration<double>(end - start).count();
}

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_CLOCK_H_
