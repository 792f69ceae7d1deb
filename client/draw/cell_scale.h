#ifndef ANNULUS_CLIENT_DRAW_CELL_SCALE_H_
#define ANNULUS_CLIENT_DRAW_CELL_SCALE_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/string_view.h"
#include "client/draw/canvas.h"

namespace annulus::client {

inline constexpr Color kLeftOut = {233, 238, 245};      // causal but not attended
inline constexpr Color kNotComputed = {247, 241, 228};  // background of rows not computed
inline constexpr Color kHatch = {205, 189, 158};        // hatching on kNotComputed

// Maps shares of attended pairs to colours: kSteps steps from light to dark blue. The darkest one
// stands for the largest share that was added.
class CellScale {
 public:
  static constexpr int kSteps = 8;

  // Adds every cell of a map to the range. Use one scale for all maps that will be compared.
  void Add(absl::string_view cells);

  // The largest share, 1 to 255; 255 if nothing is attended.
  int most() const { return most_ == 0 ? 255 : most_; }
  // Whether all attended cells have the same share.
  bool uniform() const { return least_ >= most_; }
  // The step of a share: 0 if nothing is attended, else 1 to kSteps.
  int Step(uint8_t share) const;
  // The largest share as a percentage, for example "37%".
  std::string MostText() const;

  // The colour of a step from 1 to kSteps.
  static Color ColorOf(int step);

 private:
  int most_ = 0;
  int least_ = 255;  // the smallest share of the attended cells
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_DRAW_CELL_SCALE_H_
