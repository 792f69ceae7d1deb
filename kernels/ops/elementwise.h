#ifndef ANNULUS_KERNELS_OPS_ELEMENTWISE_H_
#define ANNULUS_KERNELS_OPS_ELEMENTWISE_H_

#include <cstdint>
#include <span>

#include "kernels/base/tensor_view.h"

namespace annulus {

// output[r, i] = input[r, i] * weight[i] / sqrt(mean_i(input[r, i]^2) + epsilon)
// (Zhang and Sennrich 2019). Input and output may be the same memory. A row's sum is taken in an
// order that depends on cols alone.
struct RmsNormParams {
  ConstMatrixView input;          // [rows, cols]
  const float* weight = nullptr;  // [cols]
  float epsilon = 0;
  MatrixView output;  // [rows, cols]
};

// output[r, i] = silu(gate[r, i]) * up[r, i], silu(x) = x / (1 + exp(-x)). Output may be gate or
// up.
struct SiluMulParams {
  ConstMatrixView gate;  // [rows, cols]
  ConstMatrixView up;    // [rows, cols]
  MatrixView output;     // [rows, cols]
};

// Rotary angles of a step, shared by all heads and layers of one rope setting (Su et al. 2021).
// angle = double(inverse_frequency[i]) * position, reduced in float64: a float32 product errs by up
// to 0.03 rad at a million tokens. cosine and sine are then multiplied by `scale` (YaRN; else 1).
struct RopeTableParams {
  std::span<const int32_t> positions;          // [rows], 0 <= position < 2^31
  std::span<const float> inverse_frequencies;  // [pairs]
  float scale = 1;
  MatrixView cosine;  // [rows, pairs]
  MatrixView sine;    // [rows, pairs]
};

// Rotates each head of each row in place. Pair i of a head is (x[i], x[i + pairs]), the "rotate
// half" order of Hugging Face checkpoints; elements from 2 * pairs on are left as they are.
struct RopeParams {
  MatrixView values;  // [rows, heads * head_dim]
  int heads = 0;
  int head_dim = 0;
  ConstMatrixView cosine;  // [rows, pairs], 2 * pairs <= head_dim
  ConstMatrixView sine;    // [rows, pairs]
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_ELEMENTWISE_H_
