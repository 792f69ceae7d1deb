#ifndef ANNULUS_ENGINE_TEXT_UNICODE_H_
#define ANNULUS_ENGINE_TEXT_UNICODE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

// Character properties and normalization, on top of utf8proc. Thread-safe.

namespace annulus {

// The property White_Space: what `\s` means in tokenizer files.
bool IsWhitespace(char32_t code_point);

// Length in bytes of the white space at the start or the end of `text`, which must be valid UTF-8.
size_t WhitespacePrefix(absl::string_view text);
size_t WhitespaceSuffix(absl::string_view text);

// What `\w` means in tokenizer files: Alphabetic, marks, decimal digits, connector punctuation and
// the two joiners (Unicode Technical Standard 18, annex C).
bool IsWordCharacter(char32_t code_point);

// Appends the lower case of `c`, as characters have it without regard to their neighbours.
void AppendLowercase(char32_t c, std::string* out);

// The normalization forms of Unicode Standard Annex 15.
enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Puts `text`, valid UTF-8, into `form`. Takes O(n log n) time however long a run of combining
// marks is.
void Normalize(NormalForm form, std::string* text);

// The last offset at which `text`, valid UTF-8, can be cut so that its parts normalize as the whole
// does, whatever comes behind; 0 if there is none.
size_t LastNormalBoundary(NormalForm form, absl::string_view text);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_UNICODE_H_
