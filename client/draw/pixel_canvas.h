#ifndef ANNULUS_CLIENT_DRAW_PIXEL_CANVAS_H_
#define ANNULUS_CLIENT_DRAW_PIXEL_CANVAS_H_

#include <string>

#include "client/draw/canvas.h"
#include "client/draw/png.h"

namespace annulus::client {

// Draws pixels, kScale for each unit. Writes texts in lower case with a small built-in font;
// characters that the font lacks become boxes.
class PixelCanvas final : public Canvas {
 public:
  static constexpr int kScale = 2;

  PixelCanvas(int width, int height);

  void Rectangle(int x, int y, int width, int height, Color color) override;
  void Grid(int x, int y, int cell, const ColorGrid& grid) override;
  void Text(int x, int y, absl::string_view text, Color color, Anchor anchor) override;
  void Title(int x, int y, absl::string_view text, Color color) override;

  const Image& image() const { return image_; }

 private:
  void Fill(int x, int y, int width, int height, Color color);  // in pixels
  void Write(int x, int y, absl::string_view text, Color color, int dot);

  Image image_;
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_DRAW_PIXEL_CANVAS_H_
