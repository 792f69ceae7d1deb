#ifndef ANNULUS_CLIENT_DRAW_ATTENTION_PICTURE_H_
#define ANNULUS_CLIENT_DRAW_ATTENTION_PICTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/draw/cell_scale.h"
#include "client/draw/png.h"

namespace annulus::client {

// A picture of which queries attend which keys: one square of cells for each head, all with the
// same colour scale.
struct AttentionPicture {
  struct Square {
    std::string label;
    // [side, side] bytes: rows are queries, columns are keys. A cell is the share of its causal
    // pairs that are attended, from 0 (none) to 255 (all).
    std::string cells;
  };

  std::string title;
  std::string subtitle;
  int64_t tokens = 0;
  int64_t span = 0;  // tokens along a side, whole blocks, so it may exceed `tokens`
  int side = 0;      // cells
  std::vector<Square> squares;
};

// Draws the squares with axes in tokens, and a legend. An SVG of four squares with 128 cells per
// side is always smaller than 200,000 bytes.
std::string DrawSvg(const AttentionPicture& picture);
absl::StatusOr<std::string> DrawPng(const AttentionPicture& picture);

// Draws for a terminal of `columns` columns. A character is one cell wide and two cells high. Uses
// Unicode blocks and shades, no colours. Puts as many squares side by side as fit, at least one: a
// square wider than `columns` is not cut.
std::string DrawText(const AttentionPicture& picture, int columns);

// Draws a single square without axes, one pixel for each cell. Cells that are not causal are white.
// `computed` is [side], or empty: rows with 0 were not computed and are hatched.
Image DrawCells(absl::string_view cells, absl::string_view computed, int side,
                const CellScale& scale);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_DRAW_ATTENTION_PICTURE_H_
