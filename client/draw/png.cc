#include "client/draw/png.h"

#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace annulus::client {

absl::StatusOr<std::string> EncodePng(cairo_surface_t& surface) {
  std::string bytes;
  const auto append = [](void* to, const unsigned char* data, unsigned int length) {
    static_cast<std::string*>(to)->append(reinterpret_cast<const char*>(data), length);
    return CAIRO_STATUS_SUCCESS;
  };
  const cairo_status_t status = cairo_surface_write_to_png_stream(&surface, append, &bytes);
  if (status == CAIRO_STATUS_SUCCESS) return bytes;
  return absl::InternalError(
      absl::StrCat("the PNG cannot be written: ", cairo_status_to_string(status)));
}

absl::StatusOr<std::string> EncodePng(const Image& image) {
  const CairoSurface surface(
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, image.width, image.height));
  unsigned char* const data = cairo_image_surface_get_data(surface.get());
  if (data == nullptr) return EncodePng(*surface);  // says why
  cairo_surface_flush(surface.get());
  const int stride = cairo_image_surface_get_stride(surface.get());
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      const Color color = image.at(x, y);
      const uint32_t pixel = uint32_t{color.red} << 16 | uint32_t{color.green} << 8 | color.blue;
      std::memcpy(data + int64_t{y} * stride + x * sizeof(pixel), &pixel, sizeof(pixel));
    }
  }
  cairo_surface_mark_dirty(surface.get());
  return EncodePng(*surface);
}

}  // namespace annulus::client
