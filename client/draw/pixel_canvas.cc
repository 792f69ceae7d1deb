#include "client/draw/pixel_canvas.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "client/draw/glyphs.h"

namespace annulus::client {
namespace {

constexpr int kDot = 2;       // pixels per dot in texts
constexpr int kTitleDot = 3;  // pixels per dot in titles

}  // namespace

PixelCanvas::PixelCanvas(int width, int height) : image_(width * kScale, height * kScale) {}

void PixelCanvas::Fill(int x, int y, int width, int height, Color color) {
  const int right = std::min(x + width, image_.width);
  const int bottom = std::min(y + height, image_.height);
  for (int row = std::max(y, 0); row < bottom; ++row) {
    for (int column = std::max(x, 0); column < right; ++column) image_.at(column, row) = color;
  }
}

void PixelCanvas::Rectangle(int x, int y, int width, int height, Color color) {
  Fill(x * kScale, y * kScale, width * kScale, height * kScale, color);
}

void PixelCanvas::Grid(int x, int y, int cell, const ColorGrid& grid) {
  for (int row = 0; row < grid.side; ++row) {
    for (int column = 0; column < grid.side; ++column) {
      const uint8_t color = grid.cells[static_cast<size_t>(row) * grid.side + column];
      if (color == 0) continue;
      Rectangle(x + column * cell, y + row * cell, cell, cell, grid.colors[color - 1]);
    }
  }
}

// A glyph takes its width plus one dot.
void PixelCanvas::Write(int x, int y, absl::string_view text, Color color, int dot) {
  for (const char c : text) {
    const Glyph& glyph = GlyphOf(absl::ascii_tolower(static_cast<unsigned char>(c)));
    for (int row = 0; row < Glyph::kHeight; ++row) {
      for (int column = 0; column < Glyph::kWidth; ++column) {
        if (!glyph.dot(column, row)) continue;
        Fill(x + column * dot, y + (row - Glyph::kBase) * dot, dot, dot, color);
      }
    }
    x += (Glyph::kWidth + 1) * dot;
  }
}

void PixelCanvas::Text(int x, int y, absl::string_view text, Color color, Anchor anchor) {
  const int width = static_cast<int>(text.size()) * kAdvance;
  if (anchor == Anchor::kMiddle) x -= width / 2;
  if (anchor == Anchor::kEnd) x -= width;
  Write(x * kScale, y * kScale, text, color, kDot);
}

void PixelCanvas::Title(int x, int y, absl::string_view text, Color color) {
  Write(x * kScale, y * kScale, text, color, kTitleDot);
}

}  // namespace annulus::client
