#ifndef ANNULUS_ENGINE_PROMPT_TOKEN_PLACER_H_
#define ANNULUS_ENGINE_PROMPT_TOKEN_PLACER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/api/chat.h"

namespace annulus {

// Finds where the tokens of a text begin in it: TextStream::places. A tokenizer gives ids, not
// places, but nearly all spell the text as it stands, so a token begins where the one before it
// ended. A token whose bytes do not stand there (the tokenizer changes letters, drops blanks, or
// has no token for them) is looked for a little further on; if it is not there either, it begins
// where the last one ended. Not thread-safe.
class TokenPlacer {
 public:
  // The next bytes of the text, cut anywhere; before the tokens that they are in.
  void AddText(absl::string_view bytes) { text_.append(bytes.data(), bytes.size()); }
  // The next token, as it is decoded.
  void AddToken(absl::string_view bytes);
  // About all tokens of the text up to this byte have been added: where tokens begin that do not
  // spell it, the next one begins here at the earliest.
  void SkipTo(int64_t byte);
  // All tokens have been added.
  void Finish() { text_ = std::string(); }

  const std::vector<TokenPlace>& places() const { return places_; }
  // Heap bytes of text whose tokens are to come, or have just come.
  size_t memory_bytes() const { return text_.empty() ? 0 : text_.capacity(); }

 private:
  void MoveTo(size_t at);
  TokenPlace Place() const;

  std::string text_;  // from byte first_ on
  int64_t first_ = 0;
  size_t next_ = 0;         // in text_: where the next token should begin
  int64_t characters_ = 0;  // that begin before it
  int64_t tokens_ = 0;
  bool drifted_ = false;  // a token did not stand where it should
  std::vector<TokenPlace> places_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PROMPT_TOKEN_PLACER_H_
