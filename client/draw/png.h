#ifndef ANNULUS_CLIENT_DRAW_PNG_H_
#define ANNULUS_CLIENT_DRAW_PNG_H_

#include <cairo.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/draw/canvas.h"

namespace annulus::client {

// Pixels, row by row from the top left corner.
struct Image {
  Image(int image_width, int image_height)
      : width(image_width),
        height(image_height),
        pixels(static_cast<size_t>(image_width) * image_height) {}

  Color& at(int x, int y) { return pixels[static_cast<size_t>(y) * width + x]; }
  const Color& at(int x, int y) const { return pixels[static_cast<size_t>(y) * width + x]; }

  int width;
  int height;
  std::vector<Color> pixels;
};

struct SurfaceDeleter {
  void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
};
using CairoSurface = std::unique_ptr<cairo_surface_t, SurfaceDeleter>;

// Encode a PNG file. INTERNAL with cairo's message if memory runs out or something could not be
// drawn.
absl::StatusOr<std::string> EncodePng(cairo_surface_t& surface);
absl::StatusOr<std::string> EncodePng(const Image& image);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_DRAW_PNG_H_
