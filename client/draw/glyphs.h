#ifndef ANNULUS_CLIENT_DRAW_GLYPHS_H_
#define ANNULUS_CLIENT_DRAW_GLYPHS_H_

#include <array>
#include <cstdint>

namespace annulus::client {

// The bitmap of a character: 5 dots wide, 7 rows above the base line and 2 below.
struct Glyph {
  static constexpr int kWidth = 5;
  static constexpr int kHeight = 9;
  static constexpr int kBase = 7;  // rows above the base line

  char character = 0;
  std::array<uint8_t, kHeight> rows{};  // from the top; bit 4 (16) is the leftmost dot

  bool dot(int column, int row) const { return (rows[row] >> (kWidth - 1 - column) & 1) != 0; }
};

// Returns the glyph of a lower case letter, a digit or one of a few signs; a box for anything else.
const Glyph& GlyphOf(char character);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_DRAW_GLYPHS_H_
