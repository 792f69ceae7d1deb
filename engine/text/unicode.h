#ifndef ANNULUS_ENGINE_TEXT_UNICODE_H_
#define ANNULUS_ENGINE_TEXT_UNICODE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

// Character properties and normalization, on top of utf8proc. Thread-safe.

namespace annulus {

// The property White_Space: what `\s` means in tokenizer files.
bool IsWhitespace(char32_t code_point);

// What `\w` means in tokenizer files: Alphabetic, marks, decimal digits, connector punctuation and
// the two joiners (Unicode Technical Standard 18, annex C).
bool IsWordCharacter(char32_t code_point);

// Puts `text`, valid UTF-8, into Normalization Form C (Unicode Standard Annex 15). Takes
// O(n log n) time however long a run of combining marks is.
void NormalizeNfc(std::string* text);

// The last offset at which `text`, valid UTF-8, can be cut so that its parts normalize as the whole
// does, whatever comes behind; 0 if there is none.
size_t LastNfcBoundary(absl::string_view text);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_UNICODE_H_
