#include "engine/text/incremental_detokenizer.h"

namespace annulus {

std::string IncrementalDetokenizer::Push(int32_t id) {
  std::string text;
  if (skip_special_ && tokenizer_->IsSpecial(id)) return text;
  std::string bytes;
  tokenizer_->DecodeNext(id, &state_, &bytes);
  sanitizer_.Append(bytes, &text);
  return text;
}

std::string IncrementalDetokenizer::Flush() {
  std::string text;
  sanitizer_.Finish(&text);
  state_ = DecodeState();
  return text;
}

std::string TokenText(const Tokenizer& tokenizer, int32_t id) {
  return ToValidUtf8(TokenBytes(tokenizer, id));
}

std::string TokenBytes(const Tokenizer& tokenizer, int32_t id) {
  std::string bytes;
  DecodeState alone;
  tokenizer.DecodeNext(id, &alone, &bytes);
  return bytes;
}

}  // namespace annulus
