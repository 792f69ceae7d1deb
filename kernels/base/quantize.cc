#include "kernels/base/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

// The largest code of the formats with one scale per row.
float LargestCode(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return 127;
    case DType::kF8E4M3:
      return 448;
    case DType::kF8E5M2:
      return 57344;
    default:
      ANNULUS_CHECK(false) << DTypeName(dtype) << " has no scale per row";
      return 0;
  }
}

// The nearest whole number of |x| < 2^22, ties to even: the sum has no bits below 1.
int32_t Nearest(float x) {
  constexpr float kAnchor = 0x1.8p23f;
  return std::bit_cast<int32_t>(x + kAnchor) - std::bit_cast<int32_t>(kAnchor);
}

// |x| of the number furthest from 0; NaN and infinity give infinity.
float Largest(std::span<const float> row) {
  // Magnitudes order like their bits, which also puts NaN above all.
  uint32_t largest = 0;
  for (const float x : row) largest = std::max(largest, std::bit_cast<uint32_t>(x) & 0x7fffffffu);
  return std::bit_cast<float>(std::min(largest, 0x7f800000u));
}

void QuantizePerRow(DType dtype, std::span<const float> row, float largest, std::byte* codes,
                    std::byte* scales) {
  const float scale = largest / LargestCode(dtype);
  *reinterpret_cast<float*>(scales) = scale;
  // Tiny weights can round the scale to 0, and then they are 0.
  const float divisor = scale > 0 ? scale : std::numeric_limits<float>::infinity();
  if (dtype == DType::kI8) {
    for (size_t i = 0; i < row.size(); ++i) {
      const int32_t code = Nearest(std::clamp(row[i] / divisor, -127.0f, 127.0f));
      codes[i] = static_cast<std::byte>(static_cast<int8_t>(code));
    }
    return;
  }
  for (size_t i = 0; i < row.size(); ++i) {
    const float code = row[i] / divisor;
    codes[i] = static_cast<std::byte>(dtype == DType::kF8E4M3 ? ToFloat8E4M3(code).bits
                                                              : ToFloat8E5M2(code).bits);
  }
}

// Codes + 8 of one group, one per byte.
void QuantizeGroup(std::span<const float> group, uint8_t* codes, BFloat16* scale) {
  float extreme = 0;
  for (const float x : group) {
    if (std::abs(x) > std::abs(extreme)) extreme = x;
  }
  *scale = ToBFloat16(extreme / -8);
  const float rounded = ToFloat(*scale);
  const float divisor = rounded != 0 ? rounded : std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < group.size(); ++i) {
    codes[i] = static_cast<uint8_t>(Nearest(std::clamp(group[i] / divisor, -8.0f, 7.0f)) + 8);
  }
}

void QuantizePerGroup(DType dtype, std::span<const float> row, std::byte* codes,
                      std::byte* scales) {
  const int64_t cols = row.size();
  const int64_t size = QuantizedGroup(dtype);
  uint8_t group[64];
  for (int64_t begin = 0; begin < cols; begin += size) {
    const int64_t count = std::min(size, cols - begin);
    std::fill_n(group, size, uint8_t{8});
    QuantizeGroup(row.subspan(begin, count), group,
                  reinterpret_cast<BFloat16*>(scales) + begin / size);
    for (int64_t i = 0; i < count; i += 2) {
      codes[(begin + i) / 2] = static_cast<std::byte>(group[i] | group[i + 1] << 4);
    }
  }
}

float Code4(const std::byte* codes, int64_t i) {
  const int byte = static_cast<int>(codes[i / 2]);
  return static_cast<float>((i % 2 == 0 ? byte & 15 : byte >> 4) - 8);
}

void AddError(DType dtype, std::span<const float> row, const std::byte* codes,
              const std::byte* scales, QuantizationError& error) {
  std::vector<float> back(row.size());
  DequantizeRow(dtype, codes, scales, back);
  for (size_t i = 0; i < row.size(); ++i) {
    const double difference = double{row[i]} - back[i];
    error.difference += difference * difference;
    error.weights += double{row[i]} * row[i];
  }
}

bool FiniteCode(DType dtype, std::byte code) {
  const int bits = static_cast<int>(code) & 0x7f;
  switch (dtype) {
    case DType::kI8:
      return code != std::byte{0x80};
    case DType::kF8E4M3:
      return bits != 0x7f;
    case DType::kF8E5M2:
      return bits < 0x7c;
    default:
      return true;
  }
}

}  // namespace

bool IsQuantized(DType dtype) {
  return dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16;
}

int64_t QuantizedGroup(DType dtype) {
  return dtype == DType::kI4G32 ? 32 : dtype == DType::kI4G64 ? 64 : 0;
}

size_t QuantizedRowBytes(DType dtype, int64_t cols) {
  return QuantizedGroup(dtype) > 0 ? cols / 2 + cols % 2 : cols;
}

size_t QuantizedScaleBytes(DType dtype, int64_t cols) {
  const int64_t group = QuantizedGroup(dtype);
  return group > 0 ? (cols / group + (cols % group != 0)) * sizeof(BFloat16) : sizeof(float);
}

double QuantizationError::relative() const {
  return weights > 0 ? std::sqrt(difference / weights) : 0;
}

void QuantizationError::Add(const QuantizationError& other) {
  difference += other.difference;
  weights += other.weights;
}

absl::Status QuantizeRow(DType dtype, std::span<const float> row, std::byte* codes,
                         std::byte* scales, QuantizationError* error) {
  const float largest = Largest(row);
  if (!std::isfinite(largest)) {
    return absl::InvalidArgumentError(absl::StrCat("a weight is infinite or NaN, which ",
                                                   DTypeName(dtype), " with scales cannot hold"));
  }
  if (QuantizedGroup(dtype) > 0) {
    QuantizePerGroup(dtype, row, codes, scales);
  } else {
    QuantizePerRow(dtype, row, largest, codes, scales);
  }
  if (error != nullptr) AddError(dtype, row, codes, scales, *error);
  return absl::OkStatus();
}

void DequantizeRow(DType dtype, const std::byte* codes, const std::byte* scales,
                   std::span<float> row) {
  const int64_t group = QuantizedGroup(dtype);
  if (group > 0) {
    const BFloat16* const scale = reinterpret_cast<const BFloat16*>(scales);
    for (size_t i = 0; i < row.size(); ++i) row[i] = Code4(codes, i) * ToFloat(scale[i / group]);
    return;
  }
  const float scale = *reinterpret_cast<const float*>(scales);
  if (dtype == DType::kI8) {
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = static_cast<float>(static_cast<int8_t>(codes[i])) * scale;
    }
    return;
  }
  ConvertToFloat(dtype, codes, row.data(), row.size());
  for (float& x : row) x *= scale;
}

absl::Status CheckQuantizedRow(DType dtype, const std::byte* codes, const std::byte* scales,
                               int64_t cols) {
  const int64_t group = QuantizedGroup(dtype);
  bool finite = true;
  if (group > 0) {
    const BFloat16* const scale = reinterpret_cast<const BFloat16*>(scales);
    const size_t count = QuantizedScaleBytes(dtype, cols) / sizeof(BFloat16);
    finite =
        std::all_of(scale, scale + count, [](BFloat16 s) { return std::isfinite(ToFloat(s)); });
  } else {
    finite = std::isfinite(*reinterpret_cast<const float*>(scales) * LargestCode(dtype)) &&
             std::all_of(codes, codes + cols, [&](std::byte c) { return FiniteCode(dtype, c); });
  }
  if (finite) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a stored code or scale is none of a finite ", DTypeName(dtype), " weight"));
}

}  // namespace annulus
