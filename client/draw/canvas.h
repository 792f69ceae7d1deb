#ifndef ANNULUS_CLIENT_DRAW_CANVAS_H_
#define ANNULUS_CLIENT_DRAW_CANVAS_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus::client {

struct Color {
  uint8_t red = 0;
  uint8_t green = 0;
  uint8_t blue = 0;

  bool operator==(const Color&) const = default;
};

// A square of cells, each empty or in one of a few colours.
struct ColorGrid {
  int side = 0;                // cells
  std::vector<uint8_t> cells;  // [side * side], by rows: 0 (empty), or 1 + an index into `colors`
  std::vector<Color> colors;   // at most 255
};

// A surface to draw on. Coordinates are whole units from the top left corner. Every character of a
// text is kAdvance units wide (kTitleAdvance in titles), and the `y` of a text is its base line.
class Canvas {
 public:
  enum class Anchor : uint8_t { kStart, kMiddle, kEnd };
  static constexpr int kAdvance = 6;
  static constexpr int kTitleAdvance = 9;

  virtual ~Canvas() = default;
  virtual void Rectangle(int x, int y, int width, int height, Color color) = 0;
  // Cells are `cell` units wide and high. Does not draw empty cells.
  virtual void Grid(int x, int y, int cell, const ColorGrid& grid) = 0;
  virtual void Text(int x, int y, absl::string_view text, Color color, Anchor anchor) = 0;
  // Draws a larger text that starts at `x`.
  virtual void Title(int x, int y, absl::string_view text, Color color) = 0;
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_DRAW_CANVAS_H_
