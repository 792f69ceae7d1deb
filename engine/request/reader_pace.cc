#include "engine/request/reader_pace.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/error_payloads.h"

namespace annulus {
namespace {

absl::Status SlowReader(absl::string_view message) {
  absl::Status status = absl::ResourceExhaustedError(message);
  status.SetPayload(kLimitPayload, absl::Cord("reader"));
  return status;
}

}  // namespace

absl::Status ReaderPace::Check(bool has_room, int64_t tokens, double most_silence, SteadyTime now) {
  if (has_room) {
    still_since_.reset();
  } else if (!still_since_.has_value()) {
    still_since_ = now;
  }
  if (still_since_.has_value() && SecondsBetween(*still_since_, now) > most_silence) {
    return SlowReader(absl::StrCat("the client read nothing for ", most_silence,
                                   " s while results were waiting; read faster"));
  }
  if (!span_.has_value()) span_ = Span{now, now, tokens};
  if (!has_room) span_->still_seconds += SecondsBetween(span_->looked, now);
  span_->looked = now;
  const double seconds = SecondsBetween(span_->begun, now);
  if (seconds < kSilencesInSpan * most_silence) return absl::OkStatus();
  const Span over = *span_;
  span_ = Span{now, now, tokens};
  const int64_t came = tokens - over.tokens;
  if (2 * over.still_seconds < seconds ||
      static_cast<double>(came) >= kLeastTokensPerSecond * seconds) {
    return absl::OkStatus();
  }
  return SlowReader(absl::StrCat("the client read ", came, " tokens in ", seconds,
                                 " s while more were waiting; read at least ",
                                 kLeastTokensPerSecond, " a second"));
}

}  // namespace annulus
