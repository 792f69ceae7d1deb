#ifndef ANNULUS_ENGINE_TEXT_CHARACTER_FILTERS_H_
#define ANNULUS_ENGINE_TEXT_CHARACTER_FILTERS_H_

#include <memory>
#include <string>

#include "engine/text/text_stage.h"
#include "engine/text/unicode.h"

// Normalizers that look at single characters and their neighbours.

namespace annulus {

// Holds back the last character that starts a segment, with its marks.
std::unique_ptr<TextFilter> MakeUnicodeNormalizer(NormalForm form);

std::unique_ptr<TextFilter> MakeLowercase();

// Puts `prefix` in front of each stretch; with `at_start` only of one that starts the text.
std::unique_ptr<TextFilter> MakePrepend(std::string prefix, bool at_start);

// Makes one space of a run of them (U+0020 only) and takes them off the ends of a stretch.
std::unique_ptr<TextFilter> MakeCollapseSpaces();

// Takes any number of `character` off the end of a stretch.
std::unique_ptr<TextFilter> MakeTrimEnd(std::string character);

// Takes white space off the ends of a stretch; holds back white space when it does so on the right.
std::unique_ptr<TextFilter> MakeStrip(bool left, bool right);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_CHARACTER_FILTERS_H_
