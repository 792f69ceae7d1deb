#include "kernels/base/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
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

// Codes of one group as they are stored, one per byte: code = (x - offset) / scale within
// [least, most], of which `zero` more is stored.
struct CodeRange {
  float least;
  float most;
  int zero;
};
void QuantizeGroup(std::span<const float> group, float scale, float offset, const CodeRange& range,
                   uint8_t* codes) {
  const float divisor = scale != 0 ? scale : std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < group.size(); ++i) {
    const float code = std::clamp((group[i] - offset) / divisor, range.least, range.most);
    codes[i] = static_cast<uint8_t>(Nearest(code) + range.zero);
  }
}

float Extreme(std::span<const float> group) {
  float extreme = 0;
  for (const float x : group) {
    if (std::abs(x) > std::abs(extreme)) extreme = x;
  }
  return extreme;
}

// The group's scale and minimum go to `numbers`, its codes to `codes`, one per byte.
void QuantizeGroupOf(DType dtype, std::span<const float> group, uint8_t* codes, uint16_t* numbers) {
  constexpr CodeRange kHalfByte = {-8, 7, 8};
  switch (dtype) {
    case DType::kQ8_0: {
      const Float16 scale = ToFloat16(std::abs(Extreme(group)) / 127);
      numbers[0] = scale.bits;
      return QuantizeGroup(group, ToFloat(scale), 0, {-127, 127, 0}, codes);
    }
    case DType::kQ4_0: {
      const Float16 scale = ToFloat16(Extreme(group) / -8);
      numbers[0] = scale.bits;
      return QuantizeGroup(group, ToFloat(scale), 0, kHalfByte, codes);
    }
    case DType::kQ4_1: {
      const auto [least, most] = std::minmax_element(group.begin(), group.end());
      // Halves: the difference of two large weights could be infinite.
      const Float16 scale = ToFloat16((*most / 2 - *least / 2) / 7.5f);
      const Float16 minimum = ToFloat16(*least);
      numbers[0] = scale.bits;
      numbers[1] = minimum.bits;
      return QuantizeGroup(group, ToFloat(scale), ToFloat(minimum), {0, 15, 0}, codes);
    }
    default: {
      const BFloat16 scale = ToBFloat16(Extreme(group) / -8);
      numbers[0] = scale.bits;
      return QuantizeGroup(group, ToFloat(scale), 0, kHalfByte, codes);
    }
  }
}

// What is stored of code 0.
uint8_t ZeroCode(DType dtype) { return dtype == DType::kQ8_0 || dtype == DType::kQ4_1 ? 0 : 8; }

void QuantizePerGroup(DType dtype, std::span<const float> row, std::byte* codes,
                      std::byte* scales) {
  const int64_t cols = row.size();
  const int64_t size = QuantizedGroup(dtype);
  uint8_t group[64];
  auto* numbers = reinterpret_cast<uint16_t*>(scales);
  for (int64_t begin = 0; begin < cols; begin += size, numbers += GroupNumbers(dtype)) {
    const int64_t count = std::min(size, cols - begin);
    std::fill_n(group, size, ZeroCode(dtype));
    QuantizeGroupOf(dtype, row.subspan(begin, count), group, numbers);
    if (QuantizedBits(dtype) == 8) {
      std::memcpy(codes + begin, group, static_cast<size_t>(count));
      continue;
    }
    for (int64_t i = 0; i < count; i += 2) {
      codes[(begin + i) / 2] = static_cast<std::byte>(group[i] | group[i + 1] << 4);
    }
  }
}

int HalfByte(const std::byte* codes, size_t i) {
  const int byte = static_cast<int>(codes[i / 2]);
  return i % 2 == 0 ? byte & 15 : byte >> 4;
}

void DequantizeGroups(DType dtype, const std::byte* codes, const std::byte* scales,
                      std::span<float> row) {
  const auto group = static_cast<size_t>(QuantizedGroup(dtype));
  const auto numbers = static_cast<size_t>(GroupNumbers(dtype));
  const auto* const bits = reinterpret_cast<const uint16_t*>(scales);
  for (size_t i = 0; i < row.size(); ++i) {
    const uint16_t* const of_group = bits + i / group * numbers;
    switch (dtype) {
      case DType::kQ8_0:
        row[i] = static_cast<float>(static_cast<int8_t>(codes[i])) * ToFloat(Float16{*of_group});
        break;
      case DType::kQ4_0:
        row[i] = static_cast<float>(HalfByte(codes, i) - 8) * ToFloat(Float16{*of_group});
        break;
      case DType::kQ4_1:  // the product is exact
        row[i] = static_cast<float>(HalfByte(codes, i)) * ToFloat(Float16{of_group[0]}) +
                 ToFloat(Float16{of_group[1]});
        break;
      default:
        row[i] = static_cast<float>(HalfByte(codes, i) - 8) * ToFloat(BFloat16{*of_group});
    }
  }
}

// Whether the numbers of all groups are finite.
bool FiniteNumbers(DType dtype, const std::byte* scales, int64_t cols) {
  const auto* const bits = reinterpret_cast<const uint16_t*>(scales);
  const bool bf16 = dtype == DType::kI4G32 || dtype == DType::kI4G64;
  const uint16_t exponent = bf16 ? 0x7f80 : 0x7c00;
  return std::all_of(bits, bits + QuantizedScaleBytes(dtype, cols) / sizeof(*bits),
                     [&](uint16_t number) { return (number & exponent) != exponent; });
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
  switch (dtype) {
    case DType::kI4G32:
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ4_1:
      return 32;
    case DType::kI4G64:
      return 64;
    default:
      return 0;
  }
}

int QuantizedBits(DType dtype) {
  return QuantizedGroup(dtype) > 0 && dtype != DType::kQ8_0 ? 4 : 8;
}

int GroupNumbers(DType dtype) { return dtype == DType::kQ4_1 ? 2 : 1; }

size_t QuantizedRowBytes(DType dtype, int64_t cols) {
  return QuantizedBits(dtype) == 4 ? cols / 2 + cols % 2 : cols;
}

size_t QuantizedScaleBytes(DType dtype, int64_t cols) {
  const int64_t group = QuantizedGroup(dtype);
  if (group == 0) return sizeof(float);
  const auto groups = static_cast<size_t>(cols / group + (cols % group != 0));
  return groups * static_cast<size_t>(GroupNumbers(dtype)) * sizeof(uint16_t);
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
    if (!FiniteNumbers(dtype, scales, static_cast<int64_t>(row.size()))) {
      return absl::InvalidArgumentError(
          absl::StrCat("a weight of ", largest, " is too large for a scale of ", DTypeName(dtype)));
    }
  } else {
    QuantizePerRow(dtype, row, largest, codes, scales);
  }
  if (error != nullptr) AddError(dtype, row, codes, scales, *error);
  return absl::OkStatus();
}

void DequantizeRow(DType dtype, const std::byte* codes, const std::byte* scales,
                   std::span<float> row) {
  if (QuantizedGroup(dtype) > 0) return DequantizeGroups(dtype, codes, scales, row);
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
  bool finite = true;
  if (QuantizedGroup(dtype) > 0) {
    finite = FiniteNumbers(dtype, scales, cols);
  } else {
    finite = std::isfinite(*reinterpret_cast<const float*>(scales) * LargestCode(dtype)) &&
             std::all_of(codes, codes + cols, [&](std::byte c) { return FiniteCode(dtype, c); });
  }
  if (finite) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a stored code or scale is none of a finite ", DTypeName(dtype), " weight"));
}

}  // namespace annulus
