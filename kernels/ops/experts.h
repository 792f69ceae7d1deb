#ifndef ANNULUS_KERNELS_OPS_EXPERTS_H_
#define ANNULUS_KERNELS_OPS_EXPERTS_H_

#include <cstdint>
#include <span>

#include "kernels/base/tensor_view.h"

namespace annulus {

// Chooses experts for rows (Shazeer et al. 2017): the `chosen` largest logits of each row, in
// descending order, of equal ones the lowest index first. A chosen expert's weight is its softmax
// over the chosen logits, or over all of them; the latter do not add up to 1.
struct RouteParams {
  ConstMatrixView logits;  // [rows, experts], finite
  int chosen = 0;          // 1..experts
  bool softmax_of_chosen = false;
  std::span<int32_t> experts;  // [rows * chosen], written
  std::span<float> weights;    // [rows * chosen], written
};

// output[i, :] = input[rows[i], :].
struct GatherRowsParams {
  ConstMatrixView input;
  std::span<const int32_t> rows;  // [n]
  MatrixView output;              // [n, cols]
};

// output[rows[i], :] += weights[i] * input[i, :]. No row occurs twice.
struct ScatterAddParams {
  ConstMatrixView input;           // [n, cols]
  std::span<const int32_t> rows;   // [n]
  std::span<const float> weights;  // [n]
  MatrixView output;
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_EXPERTS_H_
