#ifndef ANNULUS_ENGINE_READER_PACE_H_
#define ANNULUS_ENGINE_READER_PACE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "engine/base/steady_time.h"

namespace annulus {

// Whether the reader of an answer takes it fast enough for the request to keep its pages while it
// is parked. Two rules: a reader must not let the request stand still for `most_silence` seconds
// without a break; and over ten times as long, a request that stood still for most of it must have
// come on by a token a second, so that a reader who takes one token just before each time limit
// does not keep the pages for as long as it likes. Not thread-safe.
class ReaderPace {
 public:
  static constexpr double kSilencesInSpan = 10;
  static constexpr double kLeastTokensPerSecond = 1;

  // Called at each look at the reader. `has_room`: whether it would take more now; `tokens`: how
  // many the answer has. RESOURCE_EXHAUSTED with figures once it has broken a rule.
  absl::Status Look(bool has_room, int64_t tokens, double most_silence, SteadyTime now);

 private:
  std::optional<SteadyTime> still_since_;  // absent: it had room at the last look
  // The span that is being watched; absent before the first look.
  struct Span {
    SteadyTime begun;
    SteadyTime looked;
    int64_t tokens = 0;        // at its begin
    double still_seconds = 0;  // without room
  };
  std::optional<Span> span_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_READER_PACE_H_
