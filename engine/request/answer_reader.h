#ifndef ANNULUS_ENGINE_REQUEST_ANSWER_READER_H_
#define ANNULUS_ENGINE_REQUEST_ANSWER_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/api/answer.h"
#include "engine/api/result.h"
#include "engine/text/answer/answer_parser.h"
#include "engine/text/incremental_detokenizer.h"

namespace annulus {

// Reads the tokens of one answer with an AnswerParser. Not thread-safe.
class AnswerReader {
 public:
  static constexpr size_t kMostBroken = 64;  // reasons that are kept of calls that are none

  // `reading` must have a format.
  explicit AnswerReader(const AnswerReading& reading);

  // Takes a token. `detokenizer` has read the tokens before it. What it adds to the answer joins
  // the last of `parts`, which must have one, as far as a Delta's order allows; then more are
  // appended.
  void Push(int32_t id, IncrementalDetokenizer& detokenizer, std::vector<Delta>& parts);
  // The same for a token that ends the answer: it has no text, but may be a mark.
  void PushEnd(int32_t id, IncrementalDetokenizer& detokenizer, std::vector<Delta>& parts);
  // Ends the answer, unless it has ended.
  void Finish(IncrementalDetokenizer& detokenizer, std::vector<Delta>& parts);

  // Whether the answer ends here, behind its only call.
  bool has_only_call() const { return one_call_ && parser_.calls() > 0; }
  int64_t reasoning_tokens() const { return reasoning_tokens_; }
  // Heap bytes, besides some KiB that any answer takes, and what a token adds for its delta.
  size_t bytes() const { return kept_bytes_ + parser_.held_bytes(); }
  // All calls so far, and why what looked like one is none, or is not complete.
  const std::vector<ToolCall>& calls() const { return calls_; }
  const std::vector<std::string>& broken() const { return broken_; }

 private:
  bool IsMark(int32_t id, const Tokenizer& tokenizer) const;
  void PushMark(int32_t id, IncrementalDetokenizer& detokenizer);
  void Collect(std::vector<Delta>& parts);
  void KeepArguments(absl::string_view bytes);

  AnswerParser parser_;
  const bool one_call_;
  std::vector<AnswerEvent> events_;  // of the token that is being read
  int64_t reasoning_tokens_ = 0;
  std::vector<ToolCall> calls_;
  std::vector<std::string> broken_;
  size_t kept_bytes_ = 0;  // of calls_
  bool finished_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_REQUEST_ANSWER_READER_H_
