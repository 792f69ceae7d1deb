#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_CHARACTERS_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_CHARACTERS_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

// Python's view of strings, as sequences of code points, on top of valid UTF-8. Case is mapped one
// code point to one (utf8proc); characters that Python maps to several, such as the capital of a
// sharp s, stay unchanged.

namespace annulus::jinja {

// Returns the character at *position as bytes, and advances *position past it.
absl::string_view NextCharacter(absl::string_view text, size_t* position);
size_t CountCharacters(absl::string_view text);
// Offset of character `index`; the end of the text if there are fewer.
size_t OffsetOfCharacter(absl::string_view text, size_t index);

// str.isspace; also the meaning of `\s` in Python's patterns.
bool IsSpace(char32_t code_point);
// Whether repr() shows the character unescaped.
bool IsPrintable(char32_t code_point);
bool IsAlpha(char32_t code_point);
bool IsDecimal(char32_t code_point);
bool IsUpper(char32_t code_point);
bool IsLower(char32_t code_point);

// str.lstrip and str.rstrip; white space if `characters` is absent. Linear in both texts.
absl::string_view StripLeft(absl::string_view text,
                            std::optional<absl::string_view> characters = std::nullopt);
absl::string_view StripRight(absl::string_view text,
                             std::optional<absl::string_view> characters = std::nullopt);

// What a strip takes of the heap for each byte of `characters`, at most.
inline constexpr size_t kHeldForStripped = 16;

std::string Upper(absl::string_view text);
std::string Lower(absl::string_view text);
// Makes the first character upper case, the rest lower case.
std::string Capitalize(absl::string_view text);
// Makes letters after a character without case upper case, the rest lower case.
std::string Title(absl::string_view text);
std::string SwapCase(absl::string_view text);

// Length in bytes of the line end (as in str.splitlines) at `position`; 0 if there is none.
size_t LineEndLength(absl::string_view text, size_t position);

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_CHARACTERS_H_
