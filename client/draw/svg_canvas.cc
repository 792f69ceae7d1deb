#include "client/draw/svg_canvas.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace annulus {
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

}  // namespace annulus
