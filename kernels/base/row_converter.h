#ifndef ANNULUS_KERNELS_BASE_ROW_CONVERTER_H_
#define ANNULUS_KERNELS_BASE_ROW_CONVERTER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/quantize.h"
#include "kernels/base/tensor_view.h"

namespace annulus {

// Bytes of one stored row of a matrix: values or codes, without scales.
size_t StoredRowBytes(DType dtype, int64_t cols);

// Converts rows of a checkpoint's matrix to `dtype`. Keeps one row of workspace. Not thread-safe.
class RowConverter {
 public:
  RowConverter(const HostTensorView& source, DType dtype) : source_(source), dtype_(dtype) {}

  // Converts row `row` into `values` (StoredRowBytes) and, for quantised dtypes, `scales`
  // (QuantizedScaleBytes; else null). Rows that already have the dtype are copied. `error` may be
  // null. INVALID_ARGUMENT as for QuantizeRow and CheckQuantizedRow.
  absl::Status Convert(int64_t row, std::byte* values, std::byte* scales, QuantizationError* error);

 private:
  const HostTensorView source_;
  const DType dtype_;
  std::vector<float> widened_;
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_ROW_CONVERTER_H_
