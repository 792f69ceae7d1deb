#ifndef ANNULUS_CLIENT_DRAW_CAIRO_CANVAS_H_
#define ANNULUS_CLIENT_DRAW_CAIRO_CANVAS_H_

#include <cairo.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/draw/canvas.h"
#include "client/draw/png.h"

namespace annulus::client {

// Draws pixels with cairo, kScale for each unit. Writes texts in the system's monospaced font.
class CairoCanvas final : public Canvas {
 public:
  static constexpr int kScale = 2;

  CairoCanvas(int width, int height);

  void Rectangle(int x, int y, int width, int height, Color color) override;
  void Grid(int x, int y, int cell, const ColorGrid& grid) override;
  void Text(int x, int y, absl::string_view text, Color color, Anchor anchor) override;
  void Title(int x, int y, absl::string_view text, Color color) override;

  // The picture so far as a PNG file. Errors as for EncodePng.
  absl::StatusOr<std::string> Png() const;

 private:
  struct ContextDeleter {
    void operator()(cairo_t* context) const { cairo_destroy(context); }
  };

  void Use(Color color);
  void Write(int x, int y, absl::string_view text, Color color, int advance);

  const CairoSurface surface_;
  const std::unique_ptr<cairo_t, ContextDeleter> context_;
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_DRAW_CAIRO_CANVAS_H_
