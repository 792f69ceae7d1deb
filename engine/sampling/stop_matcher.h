#ifndef ANNULUS_ENGINE_SAMPLING_STOP_MATCHER_H_
#define ANNULUS_ENGINE_SAMPLING_STOP_MATCHER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus {

// Finds stop strings in text that arrives in pieces. Text is let through as soon as it cannot be
// part of a stop string; the longest suffix that could still begin one is held back. The result
// does not depend on how the text was cut: the occurrence that ends first wins, and of those that
// end together the longest.
//
// One Knuth-Morris-Pratt automaton per stop string (SIAM J. Comput. 6(2), 1977): time is linear in
// the text times the number of stops, memory linear in the stops. Text held back always equals the
// beginning of some stop, so no copy of it is kept.
//
// When pieces are whole UTF-8 characters and stops are UTF-8, what comes out is too.
// Not thread-safe; one per request.
class StopMatcher {
 public:
  // Every stop has at least one byte. No stops: all text passes.
  explicit StopMatcher(std::vector<std::string> stops);

  struct Result {
    std::string text;                    // may now be shown; ends before the matched stop
    std::optional<std::string> matched;  // the stop that ended the text; what follows is dropped
  };

  // Feeds the next piece. Not to be called after a match or after Finish. Text produced before
  // min_tokens is not fed: the caller shows it unmatched.
  Result Append(absl::string_view text);

  // The text ended without a match: what was held back, which is now ordinary text.
  std::string Finish();

  // Bytes held back now.
  size_t held() const;

 private:
  struct Pattern {
    std::string stop;
    std::vector<uint32_t> border;  // [i]: longest proper border of the first i + 1 bytes
    uint32_t matched = 0;          // bytes of `stop` that the text read so far ends with

    void Advance(char byte);
  };

  // The pattern of which the text ends with the most bytes.
  const Pattern* LongestHeld() const;

  std::vector<Pattern> patterns_;
  bool ended_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SAMPLING_STOP_MATCHER_H_
