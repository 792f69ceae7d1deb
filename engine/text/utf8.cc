#include "engine/text/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

enum class SequenceKind { kValid, kInvalid, kIncomplete };

struct Sequence {
  SequenceKind kind;
  size_t length;  // kInvalid: the maximal subpart; kIncomplete: all the bytes there are
};

// Examines the sequence at the start of `bytes`, which must not be empty.
Sequence Classify(absl::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {SequenceKind::kValid, 1};
  size_t length = 0;
  uint8_t low = 0x80;  // bounds of the second byte
  uint8_t high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {SequenceKind::kInvalid, 1};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {SequenceKind::kIncomplete, i};
    if (byte(i) < low || byte(i) > high) return {SequenceKind::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {SequenceKind::kValid, length};
}

// Number of bytes at the start of `text` that are ASCII, in steps of eight.
size_t AsciiPrefix(absl::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080ull) != 0) break;
  }
  return i;
}

}  // namespace

std::optional<size_t> FirstInvalidUtf8(absl::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    if (static_cast<uint8_t>(text[i]) < 0x80) {
      const size_t ascii = AsciiPrefix(text.substr(i));
      i += ascii > 0 ? ascii : 1;
      continue;
    }
    const Sequence sequence = Classify(text.substr(i));
    if (sequence.kind != SequenceKind::kValid) return i;
    i += sequence.length;
  }
  return std::nullopt;
}

size_t IncompleteUtf8Suffix(absl::string_view text) {
  for (size_t length = 1; length <= std::min<size_t>(3, text.size()); ++length) {
    const absl::string_view suffix = text.substr(text.size() - length);
    if (IsUtf8Continuation(suffix.front())) continue;
    const Sequence sequence = Classify(suffix);
    return sequence.kind == SequenceKind::kIncomplete ? length : 0;
  }
  return 0;
}

absl::Status InvalidUtf8Error(uint64_t offset) {
  return absl::InvalidArgumentError(
      absl::StrCat("the text is not valid UTF-8: bad byte at offset ", offset));
}

char32_t NextCodePoint(absl::string_view text, size_t* position) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[*position + i]); };
  const auto tail = [&](size_t i) { return static_cast<char32_t>(byte(i) & 0x3F); };
  const uint8_t lead = byte(0);
  char32_t code_point = lead;
  size_t length = 1;
  if (lead >= 0xF0) {
    code_point = (char32_t{lead} & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3);
    length = 4;
  } else if (lead >= 0xE0) {
    code_point = (char32_t{lead} & 0x0F) << 12 | tail(1) << 6 | tail(2);
    length = 3;
  } else if (lead >= 0xC0) {
    code_point = (char32_t{lead} & 0x1F) << 6 | tail(1);
    length = 2;
  }
  *position += length;
  return code_point;
}

char32_t LastCodePoint(absl::string_view text) {
  size_t position = text.size() - 1;
  while (IsUtf8Continuation(text[position])) --position;
  return NextCodePoint(text, &position);
}

absl::string_view TruncateUtf8(absl::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && IsUtf8Continuation(text[max_bytes])) --max_bytes;
  return text.substr(0, max_bytes);
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto push = [&](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    push(code_point);
  } else if (code_point < 0x800) {
    push(0xC0 | code_point >> 6);
    push(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    push(0xE0 | code_point >> 12);
    push(0x80 | (code_point >> 6 & 0x3F));
    push(0x80 | (code_point & 0x3F));
  } else {
    push(0xF0 | code_point >> 18);
    push(0x80 | (code_point >> 12 & 0x3F));
    push(0x80 | (code_point >> 6 & 0x3F));
    push(0x80 | (code_point & 0x3F));
  }
}

void Utf8Sanitizer::Append(absl::string_view bytes, std::string* out) {
  std::string joined;
  if (!pending_.empty()) {
    joined = pending_;
    joined.append(bytes.data(), bytes.size());
    bytes = joined;
    pending_.clear();
  }
  while (!bytes.empty()) {
    const Sequence sequence = Classify(bytes);
    switch (sequence.kind) {
      case SequenceKind::kValid:
        out->append(bytes.data(), sequence.length);
        break;
      case SequenceKind::kInvalid:
        out->append(kReplacementCharacter);
        break;
      case SequenceKind::kIncomplete:
        pending_.assign(bytes.data(), bytes.size());
        break;
    }
    bytes.remove_prefix(sequence.length);
  }
}

void Utf8Sanitizer::Finish(std::string* out) {
  if (!pending_.empty()) out->append(kReplacementCharacter);
  pending_.clear();
}

std::string ToValidUtf8(absl::string_view bytes) {
  std::string text;
  Utf8Sanitizer sanitizer;
  sanitizer.Append(bytes, &text);
  sanitizer.Finish(&text);
  return text;
}

}  // namespace annulus
