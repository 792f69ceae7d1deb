#ifndef ANNULUS_KERNELS_OPS_LINEAR_H_
#define ANNULUS_KERNELS_OPS_LINEAR_H_

#include <cstdint>
#include <span>

#include "kernels/base/activations.h"
#include "kernels/base/device_buffer.h"
#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"

namespace annulus {

// A weight matrix [out_features, in_features] in the order that one OpTable likes best. Only the
// table that packed it may read it. Immutable after packing, so all ranks of a process share it.
struct PackedMatrix {
  int64_t out_features = 0;
  int64_t in_features = 0;
  DType dtype = DType::kF32;  // of the stored elements; any DType, see kernels/base/quantize.h
  DeviceBuffer storage;
};

// Rows that are packed together: pack_rows takes whole multiples, except at the end of a matrix.
inline constexpr int64_t kPackRows = 16;

// output[r, o] = sum_i input[r, i] * weight[o, i] (+ bias[o]) (+ output[r, o] when accumulate),
// where weight is code * scale (+ minimum) if it is quantised. Products and sums are float32, and
// the order of summation over i depends on neither the number of rows nor the number of threads, so
// a row's result is bit-identical in any batch; a table that is not row_invariant may leave the
// order of many rows to a library. FLOPs: 2 * rows * in * out. Bytes: weight, input and output once
// a call.
//
// Tables that multiply pairs of bf16 (cpu/avx512-bf16, cpu/amx, those of GPUs) first round the
// input to bf16, to nearest even, for every weight dtype but kF32 and kF16: input[r, i] then has a
// relative error of at most 2^-9. They treat subnormal numbers as 0. Codes are exact in bf16, and a
// scale multiplies the float32 sum of its codes' products, a minimum that of the inputs. Instead,
// cpu/avx512-bf16 rounds the inputs of integer weights (kI8 and those with groups) to multiples of
// 1 / 32512 of the largest of their group (of 64 inputs by kI8), and sums a group exactly; a group
// whose largest is below 2^-100 counts as zeros, one with infinities gives NaN.
struct LinearParams {
  ConstMatrixView input;                 // [rows, in_features]
  const PackedMatrix* weight = nullptr;  // [out_features, in_features]
  const float* bias = nullptr;           // [out_features] or null
  MatrixView output;                     // [rows, out_features]; must not overlap input
  bool accumulate = false;               // adds to output: the residual stream
  Activations activations = Activations::kFloat;
};

// output[r, :] = embedding row ids[r], exactly (a gather; code * scale (+ minimum) where
// quantised). 0 <= ids[r] < out_features.
struct EmbedParams {
  const PackedMatrix* table = nullptr;  // [vocabulary, hidden]
  std::span<const int32_t> ids;         // [rows]
  MatrixView output;                    // [rows, hidden]
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_LINEAR_H_
