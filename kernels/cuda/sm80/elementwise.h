#ifndef ANNULUS_KERNELS_CUDA_SM80_ELEMENTWISE_H_
#define ANNULUS_KERNELS_CUDA_SM80_ELEMENTWISE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/cuda/common/stream_handle.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/experts.h"

// Launches of the kernels that touch every element once. The op of the same name in kernels/ops/
// says what each computes. All pointers are device addresses. Each function returns 0 or CUDA's
// error number.

namespace annulus::cuda {

int LaunchNorm(StreamHandle stream, const NormParams& arguments);
int LaunchGatedMul(StreamHandle stream, const GatedMulParams& arguments);

// output[r, c] = sums[r, c] * factor * row_scales[r] * column_scales[c] + bias[c], in this order,
// then the soft cap. With `accumulate` the result is added to the output; without it, `sums` and
// `output` may be the same.
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

int LaunchRope(StreamHandle stream, const RopeParams& arguments);

// Gathers rows: output[i, :] = input[rows[i], :]. With `weights`, scatters and adds instead:
// output[rows[i], :] += weights[j] * input[j, :] for j = i * together .. i * together + together -
// 1, one after the other.
struct MoveRowsArguments {
  ConstMatrixView input;
  const int32_t* rows;   // [count]; null: rows[i] = i
  const float* weights;  // [count * together]; null: gathers
  int64_t together;
  int64_t count;
  MatrixView output;
};
int LaunchMoveRows(StreamHandle stream, const MoveRowsArguments& arguments);

// The forms of rows rounded to nearest even and padded with zeros to `depth` elements.
enum class RoundedRows : uint8_t {
  kBFloat16,
  kFloat16,        // of bf16 numbers, times a power of two that brings the largest near 2^14
  kBFloat16Steps,  // in steps of 32, with pairs ordered as in linear_weights.h
  kFourBitSteps,   // the same for 4-bit weights
  kFloat8,         // codes of Activations::kFp8
  kFloat8Steps,    // the same codes as bf16 numbers, in steps
  kFloat8Wide,     // the same codes as float32 numbers
};
struct RoundRowsArguments {
  ConstMatrixView input;
  RoundedRows kind;
  int64_t depth;  // at least input.cols and a multiple of 4; for steps, of 32
  void* output;   // [input.rows][depth], aligned to 16 bytes
  float* scales;  // [input.rows] scales of the codes, or inverse powers of two; null for bf16
};
int LaunchRoundRows(StreamHandle stream, const RoundRowsArguments& arguments);

int LaunchRoute(StreamHandle stream, const RouteParams& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ELEMENTWISE_H_
