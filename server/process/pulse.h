#ifndef ANNULUS_SERVER_PROCESS_PULSE_H_
#define ANNULUS_SERVER_PROCESS_PULSE_H_

#include <chrono>
#include <mutex>
#include <optional>

namespace annulus::server {

// Decides whether the server is alive. It is alive while it loads, is busy, drains or has no
// device. It is not alive if only a restart can help: if its housekeeping thread has stopped, if
// its engine has been unhealthy for longer than ranks need to recover, or if calls never end.
// Thread-safe.
class Pulse {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::seconds kLongestPause{10};      // between two beats
  static constexpr std::chrono::seconds kLongestSickness{300};  // how long it may be unhealthy

  explicit Pulse(Time start) : last_(start) {}

  // Call this several times a second. `sick`: there is an engine and it is not healthy. `stuck`:
  // there are calls that the transport does not end: see UnreadAnswers::HasStuck.
  void Beat(Time now, bool sick, bool stuck = false);

  bool alive(Time now) const;

 private:
  mutable std::mutex mutex_;
  Time last_;
  std::optional<Time> sick_since_;
  bool stuck_ = false;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_PROCESS_PULSE_H_
