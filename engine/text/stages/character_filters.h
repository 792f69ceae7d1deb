#ifndef ANNULUS_ENGINE_TEXT_STAGES_CHARACTER_FILTERS_H_
#define ANNULUS_ENGINE_TEXT_STAGES_CHARACTER_FILTERS_H_

#include <memory>
#include <string>

#include "engine/text/stages/text_stage.h"
#include "engine/text/unicode.h"

// Normalizers that look at single characters and their neighbours.

namespace annulus {

// Converts text to `form`. Holds back the text from the last place where it can be cut
// (LastNormalBoundary): usually one character with its marks.
std::unique_ptr<TextFilter> MakeUnicodeNormalizer(NormalForm form);

// Converts each character to lower case, without considering its neighbours.
std::unique_ptr<TextFilter> MakeLowercase();

// Inserts `prefix` before each stretch; with `at_start` only before one that starts the text.
std::unique_ptr<TextFilter> MakePrepend(std::string prefix, bool at_start);

// Collapses runs of spaces (U+0020 only) to one and removes them at the ends of a stretch.
std::unique_ptr<TextFilter> MakeCollapseSpaces();

// Removes all occurrences of `character` at the end of a stretch.
std::unique_ptr<TextFilter> MakeTrimEnd(std::string character);

// Removes white space at the ends of a stretch. Holds back white space if it strips on the right.
std::unique_ptr<TextFilter> MakeStrip(bool left, bool right);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STAGES_CHARACTER_FILTERS_H_
