#ifndef ANNULUS_KERNELS_OPS_LINEAR_H_
#define ANNULUS_KERNELS_OPS_LINEAR_H_

#include <cstdint>
#include <span>

#include "kernels/base/device_buffer.h"
#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"

namespace annulus {

// A weight matrix [out_features, in_features] in the order that one OpTable likes best. Only the
// table that packed it may read it. Immutable after packing, so all ranks of a process share it.
struct PackedMatrix {
  int64_t out_features = 0;
  int64_t in_features = 0;
  DType dtype = DType::kF32;  // of the stored elements: kF32, kBF16 or kF16
  DeviceBuffer storage;
};

// output[r, o] = sum_i input[r, i] * weight[o, i] (+ bias[o]) (+ output[r, o] when accumulate).
// Products and sums are float32. The order of summation over i depends on neither the number of
// rows nor the number of threads, so a row's result is bit-identical in any batch. FLOPs: 2 * rows
// * in * out. Bytes: the packed weight once per call, input and output once.
struct LinearParams {
  ConstMatrixView input;                 // [rows, in_features]
  const PackedMatrix* weight = nullptr;  // [out_features, in_features]
  const float* bias = nullptr;           // [out_features] or null
  MatrixView output;                     // [rows, out_features]; must not overlap input
  bool accumulate = false;               // adds to output: the residual stream
};

// output[r, :] = embedding row ids[r], exactly (a gather). 0 <= ids[r] < out_features.
struct EmbedParams {
  const PackedMatrix* table = nullptr;  // [vocabulary, hidden]
  std::span<const int32_t> ids;         // [rows]
  MatrixView output;                    // [rows, hidden]
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_LINEAR_H_
