#include "client/draw/png.h"

#include <png.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace annulus::client {

static_assert(sizeof(Color) == 3, "pixels are handed to libpng as they lie");

// The simplified interface of libpng reports errors in its own structure and never jumps.
absl::StatusOr<std::string> EncodePng(const Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = PNG_FORMAT_RGB;
  const auto failed = [&] {
    const std::string words = png.message;
    png_image_free(&png);
    return absl::InternalError(absl::StrCat("the PNG cannot be encoded: ", words));
  };
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::string bytes(size, '\0');
  if (png_image_write_to_memory(&png, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr) ==
      0) {
    return failed();
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace annulus::client
