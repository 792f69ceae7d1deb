#ifndef ANNULUS_CLIENT_DRAW_CELL_SCALE_H_
#define ANNULUS_CLIENT_DRAW_CELL_SCALE_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/string_view.h"
#include "client/draw/canvas.h"

namespace annulus {

inline constexpr Color kLeftOut = {233, 238, 245};      // causal, and not attended
inline constexpr Color kNotComputed = {247, 241, 228};  // hatched with:
inline constexpr Color kHatch = {205, 189, 158};

// How shares of attended pairs become colours: a few steps from light to dark blue, the darkest for
// the largest share that there is.
class CellScale {
 public:
  static constexpr int kSteps = 8;

  // Takes in every cell of a map; maps that are to be compared share one scale.
  void Add(absl::string_view cells);

  // The largest share, 1 to 255; 255 if nothing is attended.
  int most() const { return most_ == 0 ? 255 : most_; }
  // Whether all attended cells have that share.
  bool uniform() const { return least_ >= most_; }
  // 0 for nothing, else 1 to kSteps.
  int Step(uint8_t share) const;
  // "37%": the largest share.
  std::string MostText() const;

  // Of a step, 1 to kSteps.
  static Color ColorOf(int step);

 private:
  int most_ = 0;
  int least_ = 255;  // of those that are attended
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_DRAW_CELL_SCALE_H_
