#include "kernels/base/row_converter.h"

#include <cstring>

#include "kernels/base/status_macros.h"

namespace annulus {

size_t StoredRowBytes(DType dtype, int64_t cols) {
  return IsQuantized(dtype) ? QuantizedRowBytes(dtype, cols) : cols * DTypeSize(dtype);
}

absl::Status RowConverter::Convert(int64_t row, std::byte* values, std::byte* scales,
                                   QuantizationError* error) {
  const int64_t cols = source_.cols;
  const size_t bytes = StoredRowBytes(source_.dtype, cols);
  const std::byte* const from = static_cast<const std::byte*>(source_.data) + row * bytes;
  const std::byte* from_scales = nullptr;
  if (IsQuantized(source_.dtype)) {
    const size_t scale_bytes = QuantizedScaleBytes(source_.dtype, cols);
    from_scales = static_cast<const std::byte*>(source_.scales) + row * scale_bytes;
    ANNULUS_RETURN_IF_ERROR(CheckQuantizedRow(source_.dtype, from, from_scales, cols));
    if (source_.dtype == dtype_) std::memcpy(scales, from_scales, scale_bytes);
  }
  if (source_.dtype == dtype_) {
    std::memcpy(values, from, bytes);
    return absl::OkStatus();
  }
  widened_.resize(cols);
  if (from_scales != nullptr) {
    DequantizeRow(source_.dtype, from, from_scales, widened_);
  } else {
    ConvertToFloat(source_.dtype, from, widened_.data(), cols);
  }
  if (IsQuantized(dtype_)) return QuantizeRow(dtype_, widened_, values, scales, error);
  ConvertFromFloat(dtype_, widened_.data(), values, cols);
  return absl::OkStatus();
}

}  // namespace annulus
