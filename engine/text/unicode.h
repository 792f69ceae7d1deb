#ifndef ANNULUS_ENGINE_TEXT_UNICODE_H_
#define ANNULUS_ENGINE_TEXT_UNICODE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

// Character properties and normalization, on top of utf8proc. Thread-safe.

namespace annulus {

// The property White_Space: the meaning of `\s` in tokenizer files.
bool IsWhitespace(char32_t code_point);

// Length in bytes of the white space at the start or the end of `text`, which must be valid UTF-8.
size_t WhitespacePrefix(absl::string_view text);
size_t WhitespaceSuffix(absl::string_view text);

// The meaning of `\w` in tokenizer files: Alphabetic, marks, decimal digits, connector punctuation
// and the two joiners (Unicode Technical Standard 18, annex C).
bool IsWordCharacter(char32_t code_point);

// Appends the lower case of `c`, without considering its neighbours.
void AppendLowercase(char32_t c, std::string* out);

// The normalization forms of Unicode Standard Annex 15.
enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Converts `text`, valid UTF-8, to `form`. O(n log n) even for long runs of combining marks.
void Normalize(NormalForm form, std::string* text);

// The last offset at which `text`, valid UTF-8, can be cut so that its parts normalize like the
// whole, whatever follows; 0 if there is none.
size_t LastNormalBoundary(NormalForm form, absl::string_view text);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_UNICODE_H_
