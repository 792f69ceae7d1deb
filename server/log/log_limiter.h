#ifndef ANNULUS_SERVER_LOG_LOG_LIMITER_H_
#define ANNULUS_SERVER_LOG_LOG_LIMITER_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus::server {

// Limits how often lines that clients cause are written: for each event, kBurst lines at once and
// kPerSecond in the long run. So a client that fails in a loop neither fills the disk nor hides
// other events. Thread-safe.
class LogLimiter {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr double kBurst = 200;
  static constexpr double kPerSecond = 50;
  static constexpr std::chrono::seconds kQuiet{1};

  struct Verdict {
    bool write = false;
    // If `write`: lines of this event that were suppressed since the last one that was written.
    uint64_t suppressed = 0;
  };
  // Whether a line of `event` may be written. There must be a bounded number of different events,
  // because each one is remembered forever.
  Verdict Ask(absl::string_view event, Time now);

  // Returns the events that have suppressed lines and have been quiet for kQuiet, each with the
  // number of suppressed lines, and resets these numbers. Without this, a number is reported only
  // with the event's next line, which may never come.
  std::vector<std::pair<std::string, uint64_t>> TakeQuiet(Time now);

  // Number of lines suppressed so far.
  uint64_t suppressed() const;

 private:
  struct Bucket {
    double tokens = kBurst;
    uint64_t suppressed = 0;
    Time last;
  };

  mutable std::mutex mutex_;
  std::map<std::string, Bucket, std::less<>> buckets_;
  uint64_t total_ = 0;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_LOG_LOG_LIMITER_H_
