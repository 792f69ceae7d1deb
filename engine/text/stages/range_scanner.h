#ifndef ANNULUS_ENGINE_TEXT_STAGES_RANGE_SCANNER_H_
#define ANNULUS_ENGINE_TEXT_STAGES_RANGE_SCANNER_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Divides texts, given in parts, into matches and the gaps between them. Not thread-safe.
class RangeScanner {
 public:
  // Receives a whole match, or a part of a gap (consecutive parts form one gap). Never empty.
  using Sink = absl::FunctionRef<absl::Status(absl::string_view range, bool is_match)>;

  virtual ~RangeScanner() = default;

  // Takes the next part of a text, in whole characters. `end`: this is the last part; the next call
  // starts a new text. Calls `sink` for ranges that cover the text in order. Stops at an error,
  // after which the scanner must not be used.
  virtual absl::Status Push(absl::string_view text, bool end, Sink sink) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STAGES_RANGE_SCANNER_H_
