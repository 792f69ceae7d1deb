#include "client/draw/cairo_canvas.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace annulus::client {
namespace {

// The family that SvgCanvas names too; without it the system takes another monospaced one.
constexpr char kFamily[] = "DejaVu Sans Mono";
// Its characters are 0.602 of the size wide.
constexpr double kSizeOfAdvance = 1 / 0.602;

// Pictures are labelled in ASCII. Other characters become '?', one for each byte: cairo draws
// nothing more once a text is not valid UTF-8.
std::string Printable(absl::string_view text) {
  std::string printable(text);
  for (char& c : printable) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return printable;
}

}  // namespace

CairoCanvas::CairoCanvas(int width, int height)
    : surface_(cairo_image_surface_create(CAIRO_FORMAT_RGB24, width * kScale, height * kScale)),
      context_(cairo_create(surface_.get())) {
  cairo_scale(context_.get(), kScale, kScale);
}

void CairoCanvas::Use(Color color) {
  cairo_set_source_rgb(context_.get(), color.red / 255.0, color.green / 255.0, color.blue / 255.0);
}

void CairoCanvas::Rectangle(int x, int y, int width, int height, Color color) {
  Use(color);
  cairo_rectangle(context_.get(), x, y, width, height);
  cairo_fill(context_.get());
}

void CairoCanvas::Grid(int x, int y, int cell, const ColorGrid& grid) {
  for (int row = 0; row < grid.side; ++row) {
    for (int column = 0; column < grid.side; ++column) {
      const uint8_t color = grid.cells[static_cast<size_t>(row) * grid.side + column];
      if (color == 0) continue;
      Rectangle(x + column * cell, y + row * cell, cell, cell, grid.colors[color - 1]);
    }
  }
}

void CairoCanvas::Write(int x, int y, absl::string_view text, Color color, int advance) {
  cairo_t* const context = context_.get();
  const bool title = advance == kTitleAdvance;
  cairo_select_font_face(context, kFamily, CAIRO_FONT_SLANT_NORMAL,
                         title ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(context, advance * kSizeOfAdvance);
  Use(color);
  cairo_move_to(context, x, y);
  cairo_show_text(context, Printable(text).c_str());
  cairo_new_path(context);
}

void CairoCanvas::Text(int x, int y, absl::string_view text, Color color, Anchor anchor) {
  const int width = static_cast<int>(text.size()) * kAdvance;
  if (anchor == Anchor::kMiddle) x -= width / 2;
  if (anchor == Anchor::kEnd) x -= width;
  Write(x, y, text, color, kAdvance);
}

void CairoCanvas::Title(int x, int y, absl::string_view text, Color color) {
  Write(x, y, text, color, kTitleAdvance);
}

absl::StatusOr<std::string> CairoCanvas::Png() const {
  if (const cairo_status_t status = cairo_status(context_.get()); status != CAIRO_STATUS_SUCCESS) {
    return absl::InternalError(
        absl::StrCat("the picture cannot be drawn: ", cairo_status_to_string(status)));
  }
  return EncodePng(*surface_);
}

}  // namespace annulus::client
