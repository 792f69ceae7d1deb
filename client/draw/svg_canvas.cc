#include "client/draw/svg_canvas.h"

#include <algorithm>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace annulus::client {
namespace {

const char* AnchorName(Canvas::Anchor anchor) {
  switch (anchor) {
    case Canvas::Anchor::kStart:
      return "start";
    case Canvas::Anchor::kMiddle:
      return "middle";
    case Canvas::Anchor::kEnd:
      return "end";
  }
  return "start";
}

// Returns path commands that stroke all cells for which `chosen` is true, with strokes one cell
// high. Adjacent cells of a row become one stroke. Moves are relative, because that takes the
// fewest digits.
std::string Strokes(const ColorGrid& grid, absl::FunctionRef<bool(uint8_t)> chosen) {
  std::string path;
  int x = 0;  // where the last stroke ended
  int y = 0;
  for (int row = 0; row < grid.side; ++row) {
    const uint8_t* const cells = grid.cells.data() + static_cast<size_t>(row) * grid.side;
    for (int begin = 0; begin < grid.side;) {
      int end = begin;
      while (end < grid.side && chosen(cells[end])) ++end;
      if (end == begin) {
        ++begin;
        continue;
      }
      if (begin != x || row != y) {
        absl::StrAppend(&path, "m", begin - x, " ", row - y);
      }
      absl::StrAppend(&path, "h", end - begin);
      x = end;
      y = row;
      begin = end;
    }
  }
  return path;
}

}  // namespace

std::string EscapeMarkup(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += (c >= 0 && c < ' ' && c != '\n' && c != '\t') || c == '\x7f' ? ' ' : c;
    }
  }
  return escaped;
}

std::string ColorText(Color color) {
  return absl::StrFormat("#%02x%02x%02x", color.red, color.green, color.blue);
}

SvgCanvas::SvgCanvas(int width, int height)
    : text_(absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                            "viewBox=\"0 0 %d %d\" shape-rendering=\"crispEdges\" font-size=\"10\" "
                            "font-family=\"ui-monospace,Menlo,'DejaVu Sans Mono',monospace\">\n",
                            width, height, width, height)) {}

void SvgCanvas::Rectangle(int x, int y, int width, int height, Color color) {
  absl::StrAppendFormat(&text_,
                        "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n", x, y,
                        width, height, ColorText(color));
}

void SvgCanvas::Grid(int x, int y, int cell, const ColorGrid& grid) {
  std::vector<size_t> counts(grid.colors.size());
  for (const uint8_t color : grid.cells) {
    if (color > 0) ++counts[color - 1];
  }
  const auto common = std::max_element(counts.begin(), counts.end());
  if (common == counts.end() || *common == 0) return;
  absl::StrAppendFormat(
      &text_, "<g transform=\"translate(%d %d) scale(%d)\" fill=\"none\" stroke-width=\"1\">\n", x,
      y, cell);
  const auto add = [&](size_t index, absl::FunctionRef<bool(uint8_t)> chosen) {
    absl::StrAppend(&text_, "<path stroke=\"", ColorText(grid.colors[index]), "\" d=\"M0 .5",
                    Strokes(grid, chosen), "\"/>\n");
  };
  // The most common colour is drawn first and under all others, so its path needs no holes.
  const auto below = static_cast<size_t>(common - counts.begin());
  add(below, [](uint8_t color) { return color > 0; });
  for (size_t index = 0; index < counts.size(); ++index) {
    if (index == below || counts[index] == 0) continue;
    add(index, [&](uint8_t color) { return color == index + 1; });
  }
  absl::StrAppend(&text_, "</g>\n");
}

void SvgCanvas::Text(int x, int y, absl::string_view text, Color color, Anchor anchor) {
  absl::StrAppendFormat(&text_,
                        "<text x=\"%d\" y=\"%d\" fill=\"%s\" text-anchor=\"%s\">%s</text>\n", x, y,
                        ColorText(color), AnchorName(anchor), EscapeMarkup(text));
}

void SvgCanvas::Title(int x, int y, absl::string_view text, Color color) {
  absl::StrAppendFormat(
      &text_,
      "<text x=\"%d\" y=\"%d\" fill=\"%s\" font-size=\"15\" font-weight=\"600\">%s</text>\n", x, y,
      ColorText(color), EscapeMarkup(text));
}

std::string SvgCanvas::Document() const { return absl::StrCat(text_, "</svg>\n"); }

}  // namespace annulus::client
