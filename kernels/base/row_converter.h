#ifndef ANNULUS_KERNELS_BASE_ROW_CONVERTER_H_
#define ANNULUS_KERNELS_BASE_ROW_CONVERTER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/quantize.h"
#include "kernels/base/tensor_view.h"

namespace annulus {

// Bytes of one row of a matrix as it is stored: values or codes, without scales.
size_t StoredRowBytes(DType dtype, int64_t cols);

// Converts rows of a checkpoint's matrix to `dtype`; keeps a row of workspace. Not thread-safe.
class RowConverter {
 public:
  RowConverter(const HostTensorView& source, DType dtype) : source_(source), dtype_(dtype) {}

  // Row `row` as values, or as codes and scales (null where dtype has none), of StoredRowBytes and
  // QuantizedScaleBytes; rows that have the dtype already are copied. `error` may be null.
  // INVALID_ARGUMENT as QuantizeRow and CheckQuantizedRow give it.
  absl::Status Convert(int64_t row, std::byte* values, std::byte* scales, QuantizationError* error);

 private:
  const HostTensorView source_;
  const DType dtype_;
  std::vector<float> widened_;
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_ROW_CONVERTER_H_
