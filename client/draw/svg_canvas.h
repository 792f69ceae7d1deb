#ifndef ANNULUS_CLIENT_DRAW_SVG_CANVAS_H_
#define ANNULUS_CLIENT_DRAW_SVG_CANVAS_H_

#include <string>

#include "client/draw/canvas.h"

namespace annulus::client {

// Draws an SVG document. Escapes texts.
class SvgCanvas final : public Canvas {
 public:
  SvgCanvas(int width, int height);

  void Rectangle(int x, int y, int width, int height, Color color) override;
  // Writes one path for each colour, so that a document of many cells stays small.
  void Grid(int x, int y, int cell, const ColorGrid& grid) override;
  void Text(int x, int y, absl::string_view text, Color color, Anchor anchor) override;
  void Title(int x, int y, absl::string_view text, Color color) override;

  // The whole document.
  std::string Document() const;

 private:
  std::string text_;
};

// Escapes text for XML and HTML: "&", "<", ">" and quotes become character references, and control
// characters other than newline and tab become blanks.
std::string EscapeMarkup(absl::string_view text);

// Returns a colour as in "#0b3c7d".
std::string ColorText(Color color);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_DRAW_SVG_CANVAS_H_
