#ifndef ANNULUS_CLIENT_DRAW_PNG_H_
#define ANNULUS_CLIENT_DRAW_PNG_H_

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

// Encodes a PNG file. INTERNAL with libpng's message if encoding fails.
absl::StatusOr<std::string> EncodePng(const Image& image);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_DRAW_PNG_H_
