#include "engine/base/tokenize_memory.h"

#include <algorithm>
#include <cstdint>

namespace annulus {
namespace {

// Ids, mostly fewer than one for each byte, in an array that doubles: while it moves, the old one
// is there.
constexpr size_t kIdsPerByte = 3 * sizeof(int32_t);
// Of a tokenizer, whatever the text: its parts of 64 KiB in every stage.
constexpr size_t kTokenizer = size_t{1} << 20;
// Of the longest stretch that is not cut: the engine's streams count as much (EncoderStream).
constexpr size_t kStretchPerByte = 36;

}  // namespace

void TokenizeMemory::Add(absl::string_view text) {
  bytes_ += text.size();
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    if (space && !space_) now_ = 0;
    space_ = space;
    longest_ = std::max(longest_, ++now_);
  }
}

size_t TokenizeMemory::bytes() const {
  return std::min(bytes_ * 64, kTokenizer) + bytes_ * kIdsPerByte + longest_ * kStretchPerByte;
}

size_t TokenizeMemory::Of(absl::string_view text) {
  TokenizeMemory memory;
  memory.Add(text);
  return memory.bytes();
}

}  // namespace annulus
