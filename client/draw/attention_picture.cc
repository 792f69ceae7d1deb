#include "client/draw/attention_picture.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/draw/pixel_canvas.h"
#include "client/draw/svg_canvas.h"
#include "client/format/units.h"

namespace annulus {
namespace {

constexpr Color kPaper = {255, 255, 255};
constexpr Color kInk = {23, 32, 51};
constexpr Color kFaint = {100, 112, 133};
constexpr Color kUnseen = {233, 238, 245};  // causal, and left out
constexpr Color kLight = {176, 208, 242};   // the least that is attended
constexpr Color kDark = {10, 52, 112};      // everything

constexpr int kMargin = 20;
constexpr int kGap = 24;         // between squares
constexpr int kHeader = 56;      // title and subtitle
constexpr int kLabel = 16;       // above a square
constexpr int kAxis = 18;        // below a square
constexpr int kFooter = 34;      // the legend
constexpr int kOneSquare = 512;  // units, about, where there is one
constexpr int kManySquares = 256;
constexpr int kMostColumns = 4;
constexpr int kLegendSteps = 32;
constexpr char kTextLegend[] = "queries go down, keys right: █ attended, ▒ in part, · not";

// Sizes in units.
struct Layout {
  explicit Layout(const AttentionPicture& picture) {
    const int count = static_cast<int>(picture.squares.size());
    const int wanted = count == 1 ? kOneSquare : kManySquares;
    cell = std::max(1, wanted / std::max(1, picture.side));
    square = cell * picture.side;
    columns = std::min(count, kMostColumns);
    int widest = square;
    for (const auto& head : picture.squares) {
      widest = std::max(widest, static_cast<int>(head.label.size()) * Canvas::kAdvance);
    }
    column_width = widest + kGap;
    row_height = kLabel + square + kAxis + kGap / 2;
    const int rows = (count + columns - 1) / columns;
    const int title = static_cast<int>(picture.title.size()) * Canvas::kTitleAdvance;
    const int subtitle = static_cast<int>(picture.subtitle.size()) * Canvas::kAdvance;
    width = 2 * kMargin + std::max({columns * column_width - kGap, title, subtitle, 420});
    height = kHeader + rows * row_height + kFooter;
  }

  int cell, square, columns, column_width, row_height, width, height;
};

// Neighbours of one colour become one rectangle.
void DrawSquare(const std::string& cells, int side, int x, int y, int cell, Canvas& canvas) {
  for (int row = 0; row < side; ++row) {
    const auto color = [&](int column) {
      return CellColor(static_cast<uint8_t>(cells[static_cast<size_t>(row) * side + column]));
    };
    for (int begin = 0; begin <= row;) {
      int end = begin + 1;
      while (end <= row && color(end) == color(begin)) ++end;
      canvas.Rectangle(x + begin * cell, y + row * cell, (end - begin) * cell, cell, color(begin));
      begin = end;
    }
  }
}

void DrawLegend(int x, int y, Canvas& canvas) {
  using Anchor = Canvas::Anchor;
  canvas.Rectangle(x, y - 8, 10, 10, kUnseen);
  canvas.Text(x + 16, y, "left out", kFaint, Anchor::kStart);
  x += 90;
  for (int step = 0; step < kLegendSteps; ++step) {
    const int share = 1 + 254 * step / (kLegendSteps - 1);
    canvas.Rectangle(x + step * 3, y - 8, 3, 10, CellColor(static_cast<uint8_t>(share)));
  }
  canvas.Text(x + kLegendSteps * 3 + 6, y, "attended: little to all of a cell", kFaint,
              Anchor::kStart);
}

void Draw(const AttentionPicture& picture, const Layout& layout, Canvas& canvas) {
  using Anchor = Canvas::Anchor;
  canvas.Rectangle(0, 0, layout.width, layout.height, kPaper);
  canvas.Title(kMargin, 26, picture.title, kInk);
  canvas.Text(kMargin, 44, picture.subtitle, kFaint, Anchor::kStart);
  for (size_t i = 0; i < picture.squares.size(); ++i) {
    const int index = static_cast<int>(i);
    const int x = kMargin + index % layout.columns * layout.column_width;
    const int y = kHeader + index / layout.columns * layout.row_height + kLabel;
    canvas.Text(x, y - 5, picture.squares[i].label, kInk, Anchor::kStart);
    DrawSquare(picture.squares[i].cells, picture.side, x, y, layout.cell, canvas);
    const int below = y + layout.square + 11;
    canvas.Text(x, below, "0", kFaint, Anchor::kStart);
    canvas.Text(x + layout.square / 2, below, "keys", kFaint, Anchor::kMiddle);
    canvas.Text(x + layout.square, below, FormatCount(picture.tokens), kFaint, Anchor::kEnd);
    canvas.Text(x + layout.square, y + 8, "queries go down", kFaint, Anchor::kEnd);
  }
  DrawLegend(kMargin, layout.height - 14, canvas);
}

// How much of a cell is attended, in steps that a terminal can show.
int Level(uint8_t share) {
  if (share == 0) return 0;
  return share == 255 ? 4 : 1 + std::min(2, share / 85);
}

// One character for a cell and the one below it.
const char* Character(int above, int below, bool causal) {
  static constexpr const char* kShades[] = {"·", "░", "▒", "▓", "█"};
  if (!causal) return " ";
  if (above > 0 && below == 0) return "▀";
  if (above == 0 && below > 0) return "▄";
  return kShades[std::max(above, below)];
}

}  // namespace

Color CellColor(uint8_t share) {
  if (share == 0) return kUnseen;
  const double weight = (share - 1) / 254.0;
  const auto mix = [&](uint8_t light, uint8_t dark) {
    return static_cast<uint8_t>(std::lround(light + (dark - light) * weight));
  };
  return {mix(kLight.red, kDark.red), mix(kLight.green, kDark.green), mix(kLight.blue, kDark.blue)};
}

std::string DrawSvg(const AttentionPicture& picture) {
  const Layout layout(picture);
  SvgCanvas canvas(layout.width, layout.height);
  Draw(picture, layout, canvas);
  return canvas.Document();
}

absl::StatusOr<std::string> DrawPng(const AttentionPicture& picture) {
  const Layout layout(picture);
  PixelCanvas canvas(layout.width, layout.height);
  Draw(picture, layout, canvas);
  return EncodePng(canvas.image());
}

std::string DrawText(const AttentionPicture& picture, int columns) {
  const int side = picture.side;
  const auto level = [&](const std::string& cells, int row, int column) {
    if (row >= side || column > row) return 0;
    return Level(static_cast<uint8_t>(cells[static_cast<size_t>(row) * side + column]));
  };
  std::string text = absl::StrCat(picture.title, "\n", picture.subtitle, "\n", kTextLegend, "\n");
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

Image DrawCells(const std::string& cells, int side) {
  Image image(side, side);
  for (int row = 0; row < side; ++row) {
    for (int column = 0; column < side; ++column) {
      const auto share = static_cast<uint8_t>(cells[static_cast<size_t>(row) * side + column]);
      image.at(column, row) = column > row ? kPaper : CellColor(share);
    }
  }
  return image;
}

}  // namespace annulus
