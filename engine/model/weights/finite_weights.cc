#include "engine/model/weights/finite_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kernels/base/quantize.h"
#include "kernels/base/row_converter.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// The bits without sign of the first number of `from` that is not finite as `to`. Greater numbers
// have greater bits, then come infinity and NaN. Halves end at 65504, and from 65520 on numbers
// round to infinity; bfloat16 ends just below float32.
uint32_t FirstNotFinite(DType from, DType to) {
  switch (from) {
    case DType::kF16:
      return 0x7c00;
    case DType::kBF16:
      return to == DType::kF16 ? std::bit_cast<uint32_t>(65536.0f) >> 16 : 0x7f80;
    default:
      return to == DType::kF16    ? std::bit_cast<uint32_t>(65520.0f)
             : to == DType::kBF16 ? 0x7f7f8000
                                  : 0x7f800000;
  }
}

// Maxima of signed integers without branches: compilers make vectors of this.
template <class T>
T LargestBits(const void* numbers, size_t count, T mask) {
  const T* const number = static_cast<const T*>(numbers);
  T largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const T bits = static_cast<T>(number[i] & mask);
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

bool IsWide(DType dtype) { return dtype == DType::kF32; }

uint32_t BitsOf(const HostTensorView& rows, size_t element) {
  if (IsWide(rows.dtype)) return static_cast<const uint32_t*>(rows.data)[element] & 0x7fffffff;
  return static_cast<const uint16_t*>(rows.data)[element] & 0x7fff;
}

bool CodesAreFinite(const HostTensorView& rows, int64_t row) {
  const size_t code_bytes = StoredRowBytes(rows.dtype, rows.cols);
  const size_t scale_bytes = QuantizedScaleBytes(rows.dtype, rows.cols);
  return CheckQuantizedRow(rows.dtype, static_cast<const std::byte*>(rows.data) + row * code_bytes,
                           static_cast<const std::byte*>(rows.scales) + row * scale_bytes,
                           rows.cols)
      .ok();
}

// The first bad weights found in a matrix.
struct Found {
  int64_t numbers = 0;      // or rows, of codes with scales
  int64_t rows = 0;         // with any of them
  int64_t first_row = 0;    // of the matrix
  bool not_stored = false;  // some are not finite in the checkpoint itself
};

void Count(const HostTensorView& rows, int64_t first, DType to, Found& found) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    int64_t numbers = 0;
    if (IsQuantized(rows.dtype)) {
      numbers = CodesAreFinite(rows, r) ? 0 : 1;
      found.not_stored = found.not_stored || numbers > 0;
    } else {
      for (int64_t c = 0; c < rows.cols; ++c) {
        const uint32_t bits = BitsOf(rows, static_cast<size_t>(r * rows.cols + c));
        if (bits < FirstNotFinite(rows.dtype, to)) continue;
        ++numbers;
        found.not_stored = found.not_stored || bits >= FirstNotFinite(rows.dtype, rows.dtype);
      }
    }
    if (numbers == 0) continue;
    if (found.rows == 0) found.first_row = first + r;
    found.numbers += numbers;
    ++found.rows;
  }
}

absl::Status Refuse(const StoredMatrix& matrix, DType to, bool codes, const Found& found) {
  const std::string where =
      absl::StrCat("in ", found.rows, " of its ", matrix.rows, " rows, the first is row ",
                   matrix.first + found.first_row * matrix.step,
                   matrix.shape.size() == 3 ? absl::StrCat(" of expert ", matrix.slice) : "");
  if (codes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", matrix.name, " has codes or scales of weights that are NaN or infinite ", where,
        "; the file is damaged, or its conversion went wrong"));
  }
  if (found.not_stored) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", matrix.name, " has ", found.numbers, " weights that are NaN or infinite ", where,
        "; the file is damaged, or its training or conversion went wrong"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor ", matrix.name, " has ", found.numbers, " weights beyond the range of ",
      DTypeName(to), " ", where, "; ask for --weights-dtype ", to == DType::kF16 ? "bf16" : "f32"));
}

}  // namespace

bool StaysFinite(const HostTensorView& rows, DType to) {
  if (IsQuantized(rows.dtype)) {
    for (int64_t r = 0; r < rows.rows; ++r) {
      if (!CodesAreFinite(rows, r)) return false;
    }
    return true;
  }
  const auto count = static_cast<size_t>(rows.rows * rows.cols);
  const uint32_t largest =
      IsWide(rows.dtype) ? static_cast<uint32_t>(LargestBits<int32_t>(rows.data, count, 0x7fffffff))
                         : static_cast<uint32_t>(LargestBits<int16_t>(rows.data, count, 0x7fff));
  return largest < FirstNotFinite(rows.dtype, to);
}

absl::Status CheckFinite(MatrixReader& reader, const StoredMatrix& matrix, DType to) {
  Found found;
  bool codes = false;
  const int64_t step = reader.BlockRows(matrix);
  for (int64_t first = 0; first < matrix.rows; first += step) {
    ANNULUS_ASSIGN_OR_RETURN(const HostTensorView rows,
                             reader.Read(matrix, first, std::min(step, matrix.rows - first)));
    codes = IsQuantized(rows.dtype);
    if (!StaysFinite(rows, to)) Count(rows, first, to, found);
  }
  return found.rows == 0 ? absl::OkStatus() : Refuse(matrix, to, codes, found);
}

absl::Status CheckFinite(const std::string& name, std::span<const float> values) {
  const auto finite = [](float value) { return std::isfinite(value); };
  const auto first = std::find_if_not(values.begin(), values.end(), finite);
  if (first == values.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor ", name, " has ", values.end() - first - std::count_if(first, values.end(), finite),
      " of ", values.size(), " numbers that are NaN or infinite, the first is number ",
      first - values.begin(), "; the file is damaged, or its training or conversion went wrong"));
}

}  // namespace annulus
