#include "client/draw/attention_picture.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/draw/axis.h"
#include "client/draw/cairo_canvas.h"
#include "client/draw/svg_canvas.h"
#include "client/format/units.h"

namespace annulus::client {
namespace {

using Anchor = Canvas::Anchor;

constexpr Color kPaper = {255, 255, 255};
constexpr Color kInk = {23, 32, 51};
constexpr Color kFaint = {100, 112, 133};

constexpr int kMargin = 20;
constexpr int kGap = 24;         // between squares
constexpr int kHeader = 56;      // title and subtitle
constexpr int kAbove = 28;       // above a square: its label and the name of its rows
constexpr int kBelow = 30;       // below a square: ticks and the name of its columns
constexpr int kTick = 4;         // length of a tick
constexpr int kFooter = 34;      // the legend
constexpr int kOneSquare = 512;  // approximate side of a single square, in units
constexpr int kManySquares = 256;
constexpr int kMostColumns = 4;
constexpr int kTickSpace = 64;  // units between ticks, at least

// Sizes in units.
struct Layout {
  explicit Layout(const AttentionPicture& picture) {
    const int count = static_cast<int>(picture.squares.size());
    const int wanted = count == 1 ? kOneSquare : kManySquares;
    cell = std::max(1, wanted / std::max(1, picture.side));
    square = cell * picture.side;
    ticks = AxisTicks(picture.tokens, std::max(1, square / kTickSpace));
    left = TextWidth(FormatCount(ticks.back())) + 2 * kTick;
    columns = std::min(count, kMostColumns);
    int widest = left + square;
    for (const auto& head : picture.squares) widest = std::max(widest, TextWidth(head.label));
    column_width = widest + kGap;
    row_height = kAbove + square + kBelow + kGap / 2;
    const int rows = (count + columns - 1) / columns;
    const int title = static_cast<int>(picture.title.size()) * Canvas::kTitleAdvance;
    width = 2 * kMargin +
            std::max({columns * column_width - kGap, title, TextWidth(picture.subtitle), 420});
    height = kHeader + rows * row_height + kFooter;
  }

  static int TextWidth(const std::string& text) {
    return static_cast<int>(text.size()) * Canvas::kAdvance;
  }

  int cell, square, left, columns, column_width, row_height, width, height;
  std::vector<int64_t> ticks;
};

// Colours the causal cells: in each row, those up to the diagonal. The others stay empty.
ColorGrid GridOf(const std::string& cells, int side, const CellScale& scale) {
  ColorGrid grid;
  grid.side = side;
  grid.colors = {kLeftOut};
  for (int step = 1; step <= CellScale::kSteps; ++step) {
    grid.colors.push_back(CellScale::ColorOf(step));
  }
  grid.cells.resize(cells.size());
  for (int row = 0; row < side; ++row) {
    for (int column = 0; column <= row; ++column) {
      const size_t cell = static_cast<size_t>(row) * side + column;
      grid.cells[cell] = static_cast<uint8_t>(1 + scale.Step(static_cast<uint8_t>(cells[cell])));
    }
  }
  return grid;
}

// `x` and `y` are the square's top left corner.
void DrawAxes(const AttentionPicture& picture, const Layout& layout, int x, int y, Canvas& canvas) {
  const int bottom = y + layout.square;
  canvas.Text(x - layout.left, y - 5, "queries (tokens)", kFaint, Anchor::kStart);
  canvas.Text(x + layout.square / 2, bottom + kBelow - 3, "keys (tokens)", kFaint, Anchor::kMiddle);
  for (const int64_t tick : layout.ticks) {
    const int at = static_cast<int>(tick * layout.square / std::max<int64_t>(1, picture.span));
    const std::string label = FormatCount(tick);
    canvas.Rectangle(x - kTick, y + at, kTick, 1, kFaint);
    canvas.Text(x - kTick - 2, y + at + (tick == 0 ? 7 : 3), label, kFaint, Anchor::kEnd);
    canvas.Rectangle(x + at, bottom, 1, kTick, kFaint);
    canvas.Text(x + at, bottom + kTick + 10, label, kFaint,
                tick == 0 ? Anchor::kStart : Anchor::kMiddle);
  }
}

void DrawLegend(const CellScale& scale, int x, int y, Canvas& canvas) {
  constexpr int kBox = 10;
  canvas.Rectangle(x, y - 8, kBox, kBox, kLeftOut);
  canvas.Text(x + 16, y, "left out", kFaint, Anchor::kStart);
  x += 90;
  const int first = scale.uniform() ? CellScale::kSteps : 1;
  for (int step = first; step <= CellScale::kSteps; ++step, x += kBox) {
    canvas.Rectangle(x, y - 8, kBox, kBox, CellScale::ColorOf(step));
  }
  canvas.Text(x + 6, y,
              absl::StrCat("attended: ", scale.uniform() ? "" : "above 0% to ", scale.MostText(),
                           " of a cell"),
              kFaint, Anchor::kStart);
}

void Draw(const AttentionPicture& picture, const Layout& layout, Canvas& canvas) {
  CellScale scale;
  for (const auto& square : picture.squares) scale.Add(square.cells);
  canvas.Rectangle(0, 0, layout.width, layout.height, kPaper);
  canvas.Title(kMargin, 26, picture.title, kInk);
  canvas.Text(kMargin, 44, picture.subtitle, kFaint, Anchor::kStart);
  for (size_t i = 0; i < picture.squares.size(); ++i) {
    const int index = static_cast<int>(i);
    const int column = kMargin + index % layout.columns * layout.column_width;
    const int x = column + layout.left;
    const int y = kHeader + index / layout.columns * layout.row_height + kAbove;
    canvas.Text(column, y - 17, picture.squares[i].label, kInk, Anchor::kStart);
    canvas.Grid(x, y, layout.cell, GridOf(picture.squares[i].cells, picture.side, scale));
    DrawAxes(picture, layout, x, y, canvas);
  }
  DrawLegend(scale, kMargin, layout.height - 14, canvas);
}

// How much of a cell is attended, in the five steps that a terminal can show: 0 (nothing) to 4
// (all).
int Level(uint8_t share) {
  if (share == 0) return 0;
  return share == 255 ? 4 : 1 + std::min(2, share / 85);
}

// One character for two cells, one above the other.
const char* Character(int above, int below, bool causal) {
  static constexpr const char* kShades[] = {"·", "░", "▒", "▓", "█"};
  if (!causal) return " ";
  if (above > 0 && below == 0) return "▀";
  if (above == 0 && below > 0) return "▄";
  return kShades[std::max(above, below)];
}

}  // namespace

std::string DrawSvg(const AttentionPicture& picture) {
  const Layout layout(picture);
  SvgCanvas canvas(layout.width, layout.height);
  Draw(picture, layout, canvas);
  return canvas.Document();
}

absl::StatusOr<std::string> DrawPng(const AttentionPicture& picture) {
  const Layout layout(picture);
  CairoCanvas canvas(layout.width, layout.height);
  Draw(picture, layout, canvas);
  return canvas.Png();
}

std::string DrawText(const AttentionPicture& picture, int columns) {
  const int side = picture.side;
  const auto level = [&](const std::string& cells, int row, int column) {
    if (row >= side || column > row) return 0;
    return Level(static_cast<uint8_t>(cells[static_cast<size_t>(row) * side + column]));
  };
  std::string text =
      absl::StrCat(picture.title, "\n", picture.subtitle, "\nqueries go down, keys right, 0 to ",
                   FormatCount(picture.tokens), " tokens: █ attended, ▒ in part, · not\n");
  const size_t width = static_cast<size_t>(side);
  const size_t beside =
      std::max<size_t>(1, (static_cast<size_t>(std::max(columns, 0)) + 2) / (width + 2));
  for (size_t first = 0; first < picture.squares.size(); first += beside) {
    const size_t last = std::min(picture.squares.size(), first + beside);
    std::string line;
    for (size_t i = first; i < last; ++i) {
      std::string label = picture.squares[i].label;
      if (last - first > 1) label.resize(std::min(label.size(), width));
      line.resize((i - first) * (width + 2), ' ');
      line += label;
    }
    absl::StrAppend(&text, "\n", line, "\n");
    for (int row = 0; row < side; row += 2) {
      for (size_t i = first; i < last; ++i) {
        const std::string& cells = picture.squares[i].cells;
        if (i > first) text += "  ";
        for (int column = 0; column < side; ++column) {
          text += Character(level(cells, row, column), level(cells, row + 1, column),
                            column <= row + 1 && (column <= row || row + 1 < side));
        }
      }
      text += "\n";
    }
  }
  return text;
}

Image DrawCells(absl::string_view cells, absl::string_view computed, int side,
                const CellScale& scale) {
  constexpr int kHatchDistance = 4;
  Image image(side, side);
  for (int row = 0; row < side; ++row) {
    const bool hatched = !computed.empty() && computed[row] == 0;
    for (int column = 0; column < side; ++column) {
      const int step =
          scale.Step(static_cast<uint8_t>(cells[static_cast<size_t>(row) * side + column]));
      Color& pixel = image.at(column, row);
      if (column > row) {
        pixel = kPaper;
      } else if (hatched) {
        pixel = (row + column) % kHatchDistance == 0 ? kHatch : kNotComputed;
      } else {
        pixel = step == 0 ? kLeftOut : CellScale::ColorOf(step);
      }
    }
  }
  return image;
}

}  // namespace annulus::client
