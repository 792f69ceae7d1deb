#ifndef ANNULUS_CLIENT_DRAW_ATTENTION_PICTURE_H_
#define ANNULUS_CLIENT_DRAW_ATTENTION_PICTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/draw/cell_scale.h"
#include "client/draw/png.h"

namespace annulus {

// Who attends what, drawn on squares of cells: one square for each head, all in one scale of
// colours.
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
  int64_t span = 0;  // tokens that a side stands for, at least `tokens`: its last block may be cut
  int side = 0;      // cells
  std::vector<Square> squares;
};

// Squares with axes in tokens, and a legend. An SVG of four squares of 128 cells takes less than
// 200,000 bytes, whatever is attended.
std::string DrawSvg(const AttentionPicture& picture);
absl::StatusOr<std::string> DrawPng(const AttentionPicture& picture);

// Lines for a terminal of so many columns. A character is one cell wide and two high; blocks and
// shades of Unicode, no colours.
std::string DrawText(const AttentionPicture& picture, int columns);

// One square by itself, one pixel for each cell; what no query may see is white. Rows of which
// `computed`, [side] or empty, holds 0 are hatched: they were not computed.
Image DrawCells(absl::string_view cells, absl::string_view computed, int side,
                const CellScale& scale);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_DRAW_ATTENTION_PICTURE_H_
