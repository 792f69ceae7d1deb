#ifndef ANNULUS_ENGINE_TEXT_INCREMENTAL_DETOKENIZER_H_
#define ANNULUS_ENGINE_TEXT_INCREMENTAL_DETOKENIZER_H_

#include <cstdint>
#include <string>

#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace annulus {

// Converts the ids of one text, as they arrive, to valid UTF-8 in whole characters.
//
// The concatenated output equals Tokenizer::Decode of all ids with each maximal ill-formed
// subsequence replaced by U+FFFD (see Utf8Sanitizer). Holds back at most three bytes; bytes that
// can no longer become a character are replaced immediately. Not thread-safe.
class IncrementalDetokenizer {
 public:
  // `tokenizer` must outlive the object.
  explicit IncrementalDetokenizer(const Tokenizer* tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // Returns the text that `id` adds; may be empty. Ids without a token add nothing, since a model's
  // head can be larger than its vocabulary.
  std::string Push(int32_t id);

  const Tokenizer& tokenizer() const { return *tokenizer_; }

  // Ends the text and returns held-back bytes as U+FFFD. The object then starts a new text.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  DecodeState state_;
  Utf8Sanitizer sanitizer_;
};

// The text of a single token: Tokenizer::Decode of `id` alone, including special tokens, with
// incomplete characters replaced by U+FFFD. Empty if the id has no token.
std::string TokenText(const Tokenizer& tokenizer, int32_t id);

// The same as it is: bytes that need not be UTF-8.
std::string TokenBytes(const Tokenizer& tokenizer, int32_t id);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_INCREMENTAL_DETOKENIZER_H_
