#ifndef ANNULUS_SERVER_LOG_LIMITER_H_
#define ANNULUS_SERVER_LOG_LIMITER_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus {

// How often lines that clients cause may be written: per event, kBurst at once and kPerSecond in
// the long run. So a client that fails in a loop fills no disk and hides no other event.
// Thread-safe.
class LogLimiter {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr double kBurst = 200;
  static constexpr double kPerSecond = 50;
  static constexpr std::chrono::seconds kQuiet{1};

  struct Verdict {
    bool write = false;
    uint64_t suppressed = 0;  // if it may: lines of this event held back since the last that might
  };
  // `event` is one of a bounded set, as kinds of events by tenant: each is remembered for good.
  Verdict Ask(absl::string_view event, Time now);

  // Events of which lines were held back and none came for kQuiet, with how many: nobody would say
  // so otherwise. They count anew from then on.
  std::vector<std::pair<std::string, uint64_t>> TakeQuiet(Time now);

  // Lines held back so far.
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

}  // namespace annulus

#endif  // ANNULUS_SERVER_LOG_LIMITER_H_
