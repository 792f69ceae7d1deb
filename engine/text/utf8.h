#ifndef ANNULUS_ENGINE_TEXT_UTF8_H_
#define ANNULUS_ENGINE_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// UTF-8 as defined by the Unicode Standard (section 3.9, table 3-7): no surrogates, no overlong
// forms, nothing above U+10FFFF. All functions are thread-safe.

namespace annulus {

inline constexpr char kReplacementCharacter[] = "\xEF\xBF\xBD";  // U+FFFD

// Offset of the first byte that is not part of a well-formed sequence; nothing for valid text.
std::optional<size_t> FirstInvalidUtf8(absl::string_view text);

// Whether `byte` continues a character rather than starting one.
constexpr bool IsUtf8Continuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// Length of the incomplete character at the end of `text`, which more bytes could complete: 0..3.
size_t IncompleteUtf8Suffix(absl::string_view text);

// The INVALID_ARGUMENT for text with a bad byte at `offset`.
absl::Status InvalidUtf8Error(uint64_t offset);

// Returns the character at `text[*position]` and advances *position past it. `text` must be valid
// UTF-8 and *position the start of a character.
char32_t NextCodePoint(absl::string_view text, size_t* position);

// The last character of `text`, which must be valid UTF-8 and not empty.
char32_t LastCodePoint(absl::string_view text);

// The longest prefix of at most `max_bytes` bytes that does not split a character of valid text.
absl::string_view TruncateUtf8(absl::string_view text, size_t max_bytes);

// Appends the encoding of `code_point`, a Unicode scalar value.
void AppendUtf8(char32_t code_point, std::string* out);

// Converts a stream of bytes to valid UTF-8. Each maximal subpart of an ill-formed sequence becomes
// one U+FFFD (Unicode Standard, section 3.9, "U+FFFD Substitution of Maximal Subparts"). Holds back
// bytes only while they can still become a character: at most three.
class Utf8Sanitizer {
 public:
  void Append(absl::string_view bytes, std::string* out);

  // Outputs U+FFFD for held-back bytes. The object then starts a new stream.
  void Finish(std::string* out);

 private:
  std::string pending_;  // a proper prefix of a well-formed sequence, or empty
};

// Converts `bytes` with a Utf8Sanitizer.
std::string ToValidUtf8(absl::string_view bytes);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_UTF8_H_
