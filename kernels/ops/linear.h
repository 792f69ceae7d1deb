#ifndef ANNULUS_KERNELS_OPS_LINEAR_H_
#define ANNULUS_KERNELS_OPS_LINEAR_H_

#include <cstdint>
#include <span>

#include "kernels/base/activations.h"
#include "kernels/base/device_buffer.h"
#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"

namespace annulus {

// A weight matrix [out_features, in_features] in the layout of the OpTable that packed it; no other
// table can read it. Immutable after packing, so all ranks of a process share it.
struct PackedMatrix {
  int64_t out_features = 0;
  int64_t in_features = 0;
  DType dtype = DType::kF32;  // of the stored elements: any DType (kernels/base/quantize.h)
  DeviceBuffer storage;
};

// Granularity of packing: pack_rows takes a multiple of this many rows, except at the matrix's end.
inline constexpr int64_t kPackRows = 16;

// output[r, o] = sum_i input[r, i] * weight[o, i] (+ bias[o]) (+ output[r, o] if accumulate). A
// quantised weight is code * scale (+ minimum). Products and sums are float32. The order of
// summation over i depends neither on the number of rows nor on the number of threads, so a row has
// the same bits in any batch; only a table that is not row_invariant may leave the order to a
// library when there are many rows. FLOPs: 2 * rows * in * out. Bytes: weight, input and output
// once per call.
//
// Tables that multiply pairs of bf16 (cpu/avx512-bf16, cpu/amx, the GPU's) first round the input to
// bf16 (nearest even) for every weight dtype but kF32 and kF16, a relative error of at most 2^-9
// per input. They treat subnormal numbers as 0. Quantised codes are exact in bf16; the scale
// multiplies the float32 sum of a group's products, and the minimum multiplies the sum of its
// inputs. If the input has 256 rows or more, GPUs multiply 4-bit weights as f16, a code times its
// scale. That is exact, except for inputs smaller than 2^-30 times the largest of their row and for
// scales smaller than 2^-27 times the largest of their output: these lose bits.
//
// For integer weights (kI8 and the grouped types) cpu/avx512-bf16 uses fixed point instead. It
// rounds inputs to multiples of 1 / 32512 of the largest magnitude in their group and sums each
// group exactly. kI8 has no groups of its own: there a group is 64 inputs. A group whose largest
// magnitude is below 2^-100 counts as zeros; one with an infinity gives NaN.
struct LinearParams {
  ConstMatrixView input;                 // [rows, in_features]
  const PackedMatrix* weight = nullptr;  // [out_features, in_features]
  const float* bias = nullptr;           // [out_features] or null
  MatrixView output;                     // [rows, out_features]; must not overlap input
  bool accumulate = false;               // true: adds to the output (residual stream)
  Activations activations = Activations::kFloat;
};

// output[r, :] = row ids[r] of the table, exactly; a quantised row is code * scale (+ minimum). 0
// <= ids[r] < out_features.
struct EmbedParams {
  const PackedMatrix* table = nullptr;  // [vocabulary, hidden]
  std::span<const int32_t> ids;         // [rows]
  MatrixView output;                    // [rows, hidden]
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_LINEAR_H_
