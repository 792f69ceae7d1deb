#include "engine/prompt/token_placer.h"

#include <algorithm>

namespace annulus {
namespace {

// How far a token is looked for: few bytes, as short tokens are found by chance.
constexpr size_t kWindow = 32;
// Text before the next token is dropped once there is so much of it, but for a character's bytes.
constexpr size_t kDropBytes = 4096;
constexpr size_t kCharacterBytes = 4;
constexpr size_t kMostSlack = size_t{64} << 10;

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

void TokenPlacer::AddToken(absl::string_view bytes) {
  const absl::string_view ahead = absl::string_view(text_).substr(next_, kWindow + bytes.size());
  const size_t found = bytes.empty() ? absl::string_view::npos : ahead.find(bytes);
  if (!bytes.empty() && found != 0) drifted_ = true;
  if (found != absl::string_view::npos) MoveTo(next_ + found);
  if (tokens_ % kPlaceTokens == 0) places_.push_back(Place());
  ++tokens_;
  if (found != absl::string_view::npos) MoveTo(next_ + bytes.size());
}

void TokenPlacer::SkipTo(int64_t byte) {
  const int64_t next = first_ + static_cast<int64_t>(next_);
  if (drifted_ && byte > next)
    MoveTo(std::min(next_ + static_cast<size_t>(byte - next), text_.size()));
  if (next_ < kDropBytes + kCharacterBytes) return;
  const size_t dropped = next_ - kCharacterBytes;
  text_.erase(0, dropped);
  first_ += static_cast<int64_t>(dropped);
  next_ -= dropped;
  if (text_.capacity() > kMostSlack + 4 * text_.size()) text_.shrink_to_fit();
}

void TokenPlacer::MoveTo(size_t at) {
  for (; next_ < at; ++next_) characters_ += IsContinuation(text_[next_]) ? 0 : 1;
}

// Of the character that the next token begins with or in.
TokenPlace TokenPlacer::Place() const {
  size_t at = next_;
  int64_t character = characters_;
  if (at < text_.size() && IsContinuation(text_[at])) {
    while (at > 0 && IsContinuation(text_[at])) --at;
    --character;
  }
  return {first_ + static_cast<int64_t>(at), character};
}

}  // namespace annulus
