#ifndef ANNULUS_ENGINE_TEXT_INCREMENTAL_DETOKENIZER_H_
#define ANNULUS_ENGINE_TEXT_INCREMENTAL_DETOKENIZER_H_

#include <cstdint>
#include <string>

#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace annulus {

// Turns the ids of one text, as they come, into pieces of valid UTF-8, each of whole characters.
//
// All the pieces together are Tokenizer::Decode of all the ids with each maximal ill-formed
// subsequence replaced by U+FFFD (see Utf8Sanitizer). At most three bytes are held back: bytes that
// can no longer become a character are replaced at once. Not thread-safe.
class IncrementalDetokenizer {
 public:
  // `tokenizer` must outlive the object.
  explicit IncrementalDetokenizer(const Tokenizer* tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // What `id` adds; may be empty. An id without a token adds nothing: a model's head can be larger
  // than its vocabulary.
  std::string Push(int32_t id);

  const Tokenizer& tokenizer() const { return *tokenizer_; }

  // Ends the text: what was held back, replaced. The object then starts a new text.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  DecodeState state_;
  Utf8Sanitizer sanitizer_;
};

// The text of one token by itself: Tokenizer::Decode of `id` alone, special tokens included, with
// bytes of incomplete characters replaced by U+FFFD. Empty for an id without a token.
std::string TokenText(const Tokenizer& tokenizer, int32_t id);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_INCREMENTAL_DETOKENIZER_H_
