#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_CHARACTERS_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_CHARACTERS_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

// Strings as Python sees them, sequences of code points, on top of valid UTF-8. Letters' cases are
// mapped one code point to one (utf8proc): what Python turns into several characters, such as the
// capital of a sharp s, stays as it is.

namespace annulus::jinja {

// The bytes of the character at *position, which moves behind it.
absl::string_view NextCharacter(absl::string_view text, size_t* position);
size_t CountCharacters(absl::string_view text);
// Where character `index` begins; the end of the text for an index beyond it.
size_t OffsetOfCharacter(absl::string_view text, size_t index);

// str.isspace, which is also `\s` of Python's patterns.
bool IsSpace(char32_t code_point);
// What repr() shows as it is.
bool IsPrintable(char32_t code_point);
bool IsAlpha(char32_t code_point);
bool IsDecimal(char32_t code_point);
bool IsUpper(char32_t code_point);
bool IsLower(char32_t code_point);

// str.lstrip and str.rstrip: without `characters` white space. Linear in both texts.
absl::string_view StripLeft(absl::string_view text,
                            std::optional<absl::string_view> characters = std::nullopt);
absl::string_view StripRight(absl::string_view text,
                             std::optional<absl::string_view> characters = std::nullopt);

std::string Upper(absl::string_view text);
std::string Lower(absl::string_view text);
// The first character upper, the rest lower.
std::string Capitalize(absl::string_view text);
// Every letter behind a character without case upper, the rest lower.
std::string Title(absl::string_view text);
std::string SwapCase(absl::string_view text);

// The length in bytes of the line end (str.splitlines) at `position`; 0 where there is none.
size_t LineEndLength(absl::string_view text, size_t position);

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_CHARACTERS_H_
