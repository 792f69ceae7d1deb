#ifndef ANNULUS_CLIENT_READ_OFFICE_SYMBOL_FONTS_H_
#define ANNULUS_CLIENT_READ_OFFICE_SYMBOL_FONTS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus::client {

// Fonts in which a letter's code draws a sign: Symbol, Wingdings (1 to 3) and Webdings. Office
// programs store tick boxes, arrows and signs of mathematics so.

// U+FFFD, for a sign that no Unicode character is like.
inline constexpr char kUnknownSymbol[] = "\xEF\xBF\xBD";

bool IsSymbolFont(absl::string_view font);

// The sign that w:sym draws: `hexadecimal` is its code ("F0FE"). Of another font, the character
// with that code.
std::string SymbolText(absl::string_view font, absl::string_view hexadecimal);

// Replaces the codes U+F000 to U+F0FF in `text`, which is set in `font`, by what they draw. Returns
// text of other fonts unchanged.
std::string WithoutPrivateSymbols(absl::string_view font, absl::string_view text);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_OFFICE_SYMBOL_FONTS_H_
