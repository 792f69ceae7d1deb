#ifndef ANNULUS_KERNELS_BASE_TENSOR_VIEW_H_
#define ANNULUS_KERNELS_BASE_TENSOR_VIEW_H_

#include <cstdint>

#include "kernels/base/dtype.h"

namespace annulus {

// A matrix of float32 activations in backend memory. Does not own it. Row r starts at data + r *
// stride. Invariants: rows >= 0, cols >= 0, stride >= cols.
template <typename T>
struct BasicMatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements between the starts of consecutive rows

  constexpr T* row(int64_t r) const { return data + r * stride; }

  // Columns [begin, begin + count) of the same rows.
  BasicMatrixView columns(int64_t begin, int64_t count) const {
    return {data + begin, rows, count, stride};
  }
  // Rows [begin, begin + count).
  BasicMatrixView row_range(int64_t begin, int64_t count) const {
    return {data + begin * stride, count, cols, stride};
  }
  operator BasicMatrixView<const T>() const { return {data, rows, cols, stride}; }
};

using MatrixView = BasicMatrixView<float>;
using ConstMatrixView = BasicMatrixView<const float>;

// A dense row-major matrix as a checkpoint stores it: [rows, cols] of `dtype`. A vector has rows =
// 1. If the dtype is quantised (kernels/base/quantize.h), `data` holds codes, and `scales` the
// scales of all rows.
struct HostTensorView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* scales = nullptr;
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_TENSOR_VIEW_H_
