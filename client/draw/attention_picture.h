#ifndef ANNULUS_CLIENT_DRAW_ATTENTION_PICTURE_H_
#define ANNULUS_CLIENT_DRAW_ATTENTION_PICTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/draw/canvas.h"
#include "client/draw/png.h"

namespace annulus {

// Who attends what, drawn on squares of cells: one square for each head.
struct AttentionPicture {
  struct Square {
    std::string label;
    // side * side bytes, 0 (nothing) to 255 (every causal pair), row by row (queries), in a row by
    // columns (keys).
    std::string cells;
  };

  std::string title;
  std::string subtitle;
  int64_t tokens = 0;
  int side = 0;  // cells
  std::vector<Square> squares;
};

// From white-blue to dark blue. 0 is told from everything above it.
Color CellColor(uint8_t share);

std::string DrawSvg(const AttentionPicture& picture);
absl::StatusOr<std::string> DrawPng(const AttentionPicture& picture);

// Lines for a terminal of so many columns. A character is one cell wide and two high; blocks and
// shades of Unicode, no colours.
std::string DrawText(const AttentionPicture& picture, int columns);

// One square by itself, one pixel for each cell; what no query may see is white.
Image DrawCells(const std::string& cells, int side);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_DRAW_ATTENTION_PICTURE_H_
