#ifndef ANNULUS_ENGINE_BASE_CLOCK_H_
#define ANNULUS_ENGINE_BASE_CLOCK_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "engine/base/steady_time.h"

namespace annulus {

// Tells the time, and wakes who waits for it. Code that decides by time (deadlines, timeouts, times
// to live, paces) takes a clock, so that a test can set the time: testing::ManualClock. Code that
// only measures how long the machine takes reads the steady clock. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual SteadyTime Now() const = 0;

  // Blocks until `done()` is true or `deadline` has come; returns whether it is true. `lock` must
  // be held; it is released while blocked, and held for each call of `done`. Whoever may make
  // `done()` true must notify `changed` afterwards.
  template <typename Done>
  bool WaitUntil(SteadyTime deadline, std::unique_lock<std::mutex>& lock,
                 std::condition_variable& changed, const Done& done) const {
    while (!done()) {
      if (Now() >= deadline) return false;
      Wait(deadline, lock, changed);
    }
    return true;
  }

  // The machine's steady clock.
  static const Clock& Real();

 protected:
  // Blocks until `changed` is notified or `deadline` has come; may return earlier.
  virtual void Wait(SteadyTime deadline, std::unique_lock<std::mutex>& lock,
                    std::condition_variable& changed) const = 0;
};

// Waits by std::condition_variable, because it waits on the steady clock. absl::Mutex converts a
// timeout to wall-clock time, and a jump of that clock would lengthen the wait.
class RealClock final : public Clock {
 public:
  SteadyTime Now() const override { return std::chrono::steady_clock::now(); }

 protected:
  void Wait(SteadyTime deadline, std::unique_lock<std::mutex>& lock,
            std::condition_variable& changed) const override {
    changed.wait_until(lock, deadline);
  }
};

inline const Clock& Clock::Real() {
  static const RealClock real;
  return real;
}

// Seconds from `start` to `end`; negative if `end` is earlier.
inline double SecondsBetween(SteadyTime start, SteadyTime end) {
  return std::chrono::duration<double>(end - start).count();
}

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_CLOCK_H_
