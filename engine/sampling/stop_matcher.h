#ifndef ANNULUS_ENGINE_SAMPLING_STOP_MATCHER_H_
#define ANNULUS_ENGINE_SAMPLING_STOP_MATCHER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus {

// Finds stop strings in text that arrives in pieces. Passes text on as soon as it cannot be part of
// a stop string, and holds back the longest suffix that could begin one. The result does not depend
// on how the text is cut: the occurrence that ends first wins, and among those the longest.
//
// Uses one Knuth-Morris-Pratt automaton per stop string (SIAM J. Comput. 6(2), 1977): time is
// linear in the text times the number of stops, memory linear in the stops. Held-back text always
// equals the beginning of some stop, so no copy of it is kept.
//
// If pieces are whole UTF-8 characters and stops are UTF-8, so is the output. Not thread-safe; one
// instance per request.
class StopMatcher {
 public:
  // Every stop must have at least one byte. Without stops all text passes.
  explicit StopMatcher(std::vector<std::string> stops);

  struct Result {
    std::string text;                    // may be shown now; ends before the matched stop
    std::optional<std::string> matched;  // the stop that ended the text; later text is dropped
  };

  // Takes the next piece. Must not be called after a match or after Finish. Text produced before
  // min_tokens is not passed here: the caller shows it unmatched.
  Result Append(absl::string_view text);

  // Returns the held-back text, which can be part of no stop any more: what comes next does not
  // continue it. Must not be called after a match or after Finish.
  std::string Release();

  // Ends the text without a match. Returns the held-back text, which is now ordinary text.
  std::string Finish();

  // Number of bytes held back.
  size_t held() const;

 private:
  struct Pattern {
    std::string stop;
    std::vector<uint32_t> border;  // [i]: longest proper border of the first i + 1 bytes
    uint32_t matched = 0;          // length of the prefix of `stop` that the text ends with

    void Advance(char byte);
  };

  // The pattern with the longest prefix at the end of the text.
  const Pattern* LongestHeld() const;

  std::vector<Pattern> patterns_;
  bool ended_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SAMPLING_STOP_MATCHER_H_
