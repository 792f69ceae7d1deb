#ifndef ANNULUS_ENGINE_TEXT_RANGE_SCANNER_H_
#define ANNULUS_ENGINE_TEXT_RANGE_SCANNER_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Divides texts that come in parts into matches of something and the gaps between them. Not
// thread-safe.
class RangeScanner {
 public:
  // A match, always whole, or a part of a gap: parts between two matches belong to one gap. None is
  // empty.
  using Sink = absl::FunctionRef<absl::Status(absl::string_view range, bool is_match)>;

  virtual ~RangeScanner() = default;

  // The next part of a text, whole characters; `end` with the last one, behind which a new text
  // starts. Calls `sink` for ranges that cover the text in order and stops at an error, after which
  // the scanner must not be used.
  virtual absl::Status Push(absl::string_view text, bool end, Sink sink) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_RANGE_SCANNER_H_
