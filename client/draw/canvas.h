#ifndef ANNULUS_CLIENT_DRAW_CANVAS_H_
#define ANNULUS_CLIENT_DRAW_CANVAS_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace annulus {

struct Color {
  uint8_t red = 0;
  uint8_t green = 0;
  uint8_t blue = 0;

  bool operator==(const Color&) const = default;
};

// Something to draw on. Coordinates are whole units from the top left corner; a text is as wide as
// its characters times kAdvance (or kTitleAdvance), and `y` is its base line.
class Canvas {
 public:
  enum class Anchor : uint8_t { kStart, kMiddle, kEnd };
  static constexpr int kAdvance = 6;
  static constexpr int kTitleAdvance = 9;

  virtual ~Canvas() = default;
  virtual void Rectangle(int x, int y, int width, int height, Color color) = 0;
  virtual void Text(int x, int y, absl::string_view text, Color color, Anchor anchor) = 0;
  // Larger, from the left.
  virtual void Title(int x, int y, absl::string_view text, Color color) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_DRAW_CANVAS_H_
