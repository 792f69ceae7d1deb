#ifndef ANNULUS_KERNELS_CUDA_SM80_ELEMENTWISE_H_
#define ANNULUS_KERNELS_CUDA_SM80_ELEMENTWISE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/cuda/common/stream_handle.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/experts.h"

// Launches of the kernels that touch every element once. All pointers are device addresses; what
// each computes is said by the op of the same name in kernels/ops/. Each returns 0 or the number of
// CUDA's error.

namespace annulus::cuda {

struct RmsNormArguments {
  ConstMatrixView input;
  const float* weight;
  float epsilon;
  MatrixView output;
  bool accumulate;
};
int LaunchRmsNorm(StreamHandle stream, const RmsNormArguments& arguments);

int LaunchGatedMul(StreamHandle stream, const GatedMulParams& arguments);

// output[r, c] = sums[r, c] * factor * row_scales[r] * column_scales[c] + bias[c], in this order,
// then the soft cap; it is added to output where `accumulate`. `sums` may be `output` where it is
// not.
struct ScaleArguments {
  ConstMatrixView sums;
  float factor;
  const float* row_scales;     // [rows]; null: 1
  const float* column_scales;  // [cols]; null: 1
  const float* bias;           // [cols]; null: 0
  MatrixView output;
  bool accumulate;
  float cap = 0;  // cap * tanh(x / cap); 0: none
};
int LaunchScale(StreamHandle stream, const ScaleArguments& arguments);

struct RopeTableArguments {
  const int32_t* positions;
  const float* inverse_frequencies;
  float scale;
  MatrixView cosine;
  MatrixView sine;
};
int LaunchRopeTable(StreamHandle stream, const RopeTableArguments& arguments);
int LaunchRope(StreamHandle stream, const RopeParams& arguments);

// output[i, :] = input[rows[i], :], or with `weights`: output[rows[i], :] += weights[j] * input[j]
// for j = i * together and the together - 1 that follow, one after the other.
struct MoveRowsArguments {
  ConstMatrixView input;
  const int32_t* rows;   // [count]; null: row i is row i
  const float* weights;  // [count * together]; null: gather
  int64_t together;
  int64_t count;
  MatrixView output;
};
int LaunchMoveRows(StreamHandle stream, const MoveRowsArguments& arguments);

// Rows rounded to nearest even, with zeros up to `depth` elements.
enum class RoundedRows : uint8_t {
  kBFloat16,
  kBFloat16Steps,  // in steps of 32, whose pairs stand as linear_weights.h says
  kFourBitSteps,   // .. for weights of 4 bits
  kFloat8,         // codes of Activations::kFp8
  kFloat8Steps,    // the same codes as numbers of bf16, in steps
  kFloat8Wide,     // .. of float32
};
struct RoundRowsArguments {
  ConstMatrixView input;
  RoundedRows kind;
  int64_t depth;  // at least input.cols, a multiple of 4; of steps, of 32
  void* output;   // [input.rows][depth], aligned to 16 bytes
  float* scales;  // [input.rows] of the codes; null for bf16
};
int LaunchRoundRows(StreamHandle stream, const RoundRowsArguments& arguments);

int LaunchRoute(StreamHandle stream, const RouteParams& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ELEMENTWISE_H_
