#include "engine/base/tokenize_memory.h"

#include <algorithm>
#include <cstdint>

namespace annulus {
namespace {

// Bytes for ids, mostly fewer than one id for each byte of text, in an array that doubles: while it
// moves, the old one exists too.
constexpr size_t kIdsPerByte = 3 * sizeof(int32_t);
// Bytes that a tokenizer takes for any text: its parts of 64 KiB in every stage.
constexpr size_t kTokenizer = size_t{1} << 20;
// Bytes for each byte of the longest stretch that is not cut. EncoderStream counts as much.
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
