#ifndef ANNULUS_CLIENT_DRAW_GLYPHS_H_
#define ANNULUS_CLIENT_DRAW_GLYPHS_H_

#include <array>
#include <cstdint>

namespace annulus {

// A character in 5 x 7 dots above its base line and 2 below.
struct Glyph {
  static constexpr int kWidth = 5;
  static constexpr int kHeight = 9;
  static constexpr int kBase = 7;  // rows above the base line

  char character = 0;
  std::array<uint8_t, kHeight> rows{};  // from the top; the leftmost dot is 16

  bool dot(int column, int row) const { return (rows[row] >> (kWidth - 1 - column) & 1) != 0; }
};

// Lower case letters, digits and some signs; a box for everything else.
const Glyph& GlyphOf(char character);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_DRAW_GLYPHS_H_
