#ifndef ANNULUS_ENGINE_TEXT_CHARACTER_FILTERS_H_
#define ANNULUS_ENGINE_TEXT_CHARACTER_FILTERS_H_

#include <memory>

#include "engine/text/text_stage.h"
#include "engine/text/unicode.h"

// Normalizers that Unicode defines.

namespace annulus {

// Holds back the last character that starts a segment, with its marks.
std::unique_ptr<TextFilter> MakeUnicodeNormalizer(NormalForm form);

std::unique_ptr<TextFilter> MakeLowercase();

// Takes white space off the ends of a stretch; holds back white space when it does so on the right.
std::unique_ptr<TextFilter> MakeStrip(bool left, bool right);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_CHARACTER_FILTERS_H_
