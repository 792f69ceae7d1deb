#ifndef ANNULUS_ENGINE_REQUEST_READER_PACE_H_
#define ANNULUS_ENGINE_REQUEST_READER_PACE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "engine/base/steady_time.h"

namespace annulus {

// Decides whether a client reads its answer fast enough for the parked request to keep its pages.
// There are two rules. The request must not be parked for `most_silence` seconds without a break.
// And if it was parked for most of a span ten times as long, it must have produced a token a second
// in that span, so that a reader who takes one token just before each time limit cannot keep the
// pages for as long as it likes. Not thread-safe.
class ReaderPace {
 public:
  static constexpr double kSilencesInSpan = 10;
  static constexpr double kLeastTokensPerSecond = 1;

  // Checks the reader. Call often, since `has_room` counts for all the time since the last call.
  // `has_room`: TokenSink::HasRoom now. `tokens`: the answer's tokens so far. RESOURCE_EXHAUSTED,
  // with numbers and kLimitPayload "reader", once the reader has broken a rule.
  absl::Status Check(bool has_room, int64_t tokens, double most_silence, SteadyTime now);

 private:
  std::optional<SteadyTime> still_since_;  // absent: it had room at the last look
  // The span that is being watched; absent before the first look.
  struct Span {
    SteadyTime begun;
    SteadyTime looked;
    int64_t tokens = 0;        // the answer's tokens when it began
    double still_seconds = 0;  // how long the sink had no room in it
  };
  std::optional<Span> span_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_REQUEST_READER_PACE_H_
