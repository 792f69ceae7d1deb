#ifndef ANNULUS_SERVER_PULSE_H_
#define ANNULUS_SERVER_PULSE_H_

#include <chrono>
#include <mutex>
#include <optional>

namespace annulus {

// Tells whether the server is alive. It is while it loads, is busy, drains or has no device; it is
// not when a restart is the only remedy: its housekeeping stands still, or its engine has been sick
// for longer than ranks take to come back. Thread-safe.
class Pulse {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::seconds kLongestPause{10};      // between two beats
  static constexpr std::chrono::seconds kLongestSickness{300};  // of the engine, without a break

  explicit Pulse(Time start) : last_(start) {}

  // To be called every fraction of a second. `sick`: there is an engine, and it is not healthy.
  void Beat(Time now, bool sick);

  bool alive(Time now) const;

 private:
  mutable std::mutex mutex_;
  Time last_;
  std::optional<Time> sick_since_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_PULSE_H_
