#ifndef ANNULUS_ENGINE_SCHEDULER_OUTPUT_GUIDE_H_
#define ANNULUS_ENGINE_SCHEDULER_OUTPUT_GUIDE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/grammar/matcher.h"

namespace annulus {

// What an output constraint says about guesses of tokens (see PromptLookup): which token must come,
// and which cannot. Follows the answer with a matcher of its own, as the home rank's belongs to
// another thread. If the constraint fails, it says that nothing can come, so that nothing is
// guessed; the home rank ends the request.
//
// One instance per sequence; not thread-safe.
class OutputGuide {
 public:
  // Of the cache that `matcher` has, which finds no masks.
  static constexpr size_t kCacheBytes = size_t{512} << 10;

  // `matcher`: at the beginning of the answer.
  explicit OutputGuide(GrammarMatcher matcher) : matcher_(std::move(matcher)) {}

  // Reads further tokens of the answer, at most `most` per call. `answer`: all so far; may only
  // grow. Returns whether all is read, without which nothing can be said.
  bool Read(std::span<const int32_t> answer, size_t most);

  // The tokens that come next without a choice, at most `most`. Empty where the model chooses or
  // may end the text.
  std::vector<int32_t> Forced(int most) const;

  // Takes out the first token of a draft that cannot come, and those behind it.
  void Cut(std::vector<int32_t>& draft) const;

 private:
  GrammarMatcher matcher_;
  size_t read_ = 0;  // tokens of the answer
  bool failed_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_OUTPUT_GUIDE_H_
