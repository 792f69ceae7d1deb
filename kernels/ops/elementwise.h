#ifndef ANNULUS_KERNELS_OPS_ELEMENTWISE_H_
#define ANNULUS_KERNELS_OPS_ELEMENTWISE_H_

#include <cstdint>
#include <span>

#include "kernels/base/tensor_view.h"
#include "kernels/ops/norm_rule.h"

namespace annulus {

// output[r, i] = x[r, i] * weight[r % weight_rows, i] / sqrt(mean_i(x[r, i]^2) + norm.epsilon) +
// bias[i] (Zhang and Sennrich 2019), where x is the input or, if norm.centred, the input minus the
// mean of its row. With `accumulate` the result is added to the output: some models normalise what
// a block computes before they add it to the residual stream. Input and output may be the same
// memory unless `accumulate`. The order in which a row is summed depends only on `cols`.
struct NormParams {
  ConstMatrixView input;          // [rows, cols]
  const float* weight = nullptr;  // [weight_rows, cols]
  NormRule norm;
  MatrixView output;  // [rows, cols]
  bool accumulate = false;
  const float* bias = nullptr;  // [cols], or null: 0
  int64_t weight_rows = 1;      // >= 1; more where heads, which are rows here, have their own

  constexpr const float* weight_of(int64_t row) const {
    return weight_rows == 1 ? weight : weight + row % weight_rows * output.cols;
  }
};

// Activation of a gated block (Shazeer 2020) with gate g and value u.
enum class Activation : uint8_t {
  kSilu,           // g / (1 + exp(-g)) * u
  kGeluTanh,       // g / (1 + exp(-2 t)) * u, t = sqrt(2 / pi) * (g + 0.044715 g^3): the tanh form
  kClampedSwiglu,  // g' / (1 + exp(-alpha g')) * (u' + 1), g' = min(g, limit), |u'| <= limit
  kGeluTanhAlone,  // g / (1 + exp(-2 t)), t as above: of a block without a gate, where u is not
                   // used
};
inline constexpr int kActivations = 4;

// output[r, i] = activation(gate[r, i], up[r, i]). The output may be the same memory as gate or up.
struct GatedMulParams {
  ConstMatrixView gate;  // [rows, cols]
  ConstMatrixView up;    // [rows, cols]
  MatrixView output;     // [rows, cols]
  Activation activation = Activation::kSilu;
  float alpha = 0;  // only for kClampedSwiglu
  float limit = 0;  // only for kClampedSwiglu; > 0
};

// values[r, i] *= factor. The factor 0 gives 0 also of what is not finite or was never written.
struct ScaleParams {
  MatrixView values;
  float factor = 1;
};

// values[r, i] = cap * tanh(values[r, i] / cap), cap > 0.
struct SoftCapParams {
  MatrixView values;
  float cap = 0;
};

// Rotary angles of a step, shared by all heads and layers with the same rope setting (Su et al.
// 2021). The angle is double(inverse_frequency[i]) * position, reduced to one turn in float64: in
// float32 it would be off by up to 0.03 rad at a million tokens. cosine and sine are then
// multiplied by `scale` (not 1 with YaRN).
struct RopeTableParams {
  std::span<const int32_t> positions;          // [rows], >= 0
  std::span<const float> inverse_frequencies;  // [pairs]
  float scale = 1;
  MatrixView cosine;  // [rows, pairs]
  MatrixView sine;    // [rows, pairs]
};

// Rotates each head of each row in place. Pair i of a head is (x[i], x[i + pairs]), the "rotate
// half" order of Hugging Face checkpoints. Elements from 2 * pairs on are left unchanged.
struct RopeParams {
  MatrixView values;  // [rows, heads * head_dim]
  int heads = 0;
  int head_dim = 0;
  ConstMatrixView cosine;  // [rows, pairs], 2 * pairs <= head_dim
  ConstMatrixView sine;    // [rows, pairs]
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_ELEMENTWISE_H_
