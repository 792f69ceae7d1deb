#include "kernels/base/dtype.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

struct Description {
  DType dtype;
  size_t size;
  absl::string_view name;
};

constexpr Description kDescriptions[] = {
    {DType::kF32, 4, "f32"},         {DType::kBF16, 2, "bf16"},       {DType::kF16, 2, "f16"},
    {DType::kF8E4M3, 1, "fp8_e4m3"}, {DType::kF8E5M2, 1, "fp8_e5m2"}, {DType::kI8, 1, "int8"},
    {DType::kI4G32, 0, "int4_g32"},  {DType::kI4G64, 0, "int4_g64"},  {DType::kQ8_0, 0, "q8_0"},
    {DType::kQ4_0, 0, "q4_0"},       {DType::kQ4_1, 0, "q4_1"},
};

const Description& Describe(DType dtype) {
  for (const Description& description : kDescriptions) {
    if (description.dtype == dtype) return description;
  }
  ANNULUS_CHECK(false) << "dtype " << static_cast<int>(dtype);
  return kDescriptions[0];
}

// Rounds |value| to an 8-bit format of `mantissa_bits` whose smallest normal number is
// 2^(1 - bias), as the bits below the sign; `largest` are those of the largest finite number.
uint8_t NarrowMagnitude(uint32_t magnitude, int mantissa_bits, int bias, uint8_t largest) {
  const int dropped = 23 - mantissa_bits;
  const uint32_t smallest_normal = static_cast<uint32_t>(128 - bias) << 23;
  if (magnitude < smallest_normal) {
    // The last bit of a subnormal is 2^(1 - bias - mantissa_bits): the unit in the last place of
    // this anchor, so that float32's own rounding acts there.
    const uint32_t anchor = static_cast<uint32_t>(128 - bias + dropped) << 23;
    const float shifted = std::bit_cast<float>(magnitude) + std::bit_cast<float>(anchor);
    return static_cast<uint8_t>(std::bit_cast<uint32_t>(shifted) - anchor);
  }
  const uint32_t half = (1u << (dropped - 1)) - 1 + ((magnitude >> dropped) & 1u);
  const uint32_t rounded =
      (magnitude - (static_cast<uint32_t>(127 - bias) << 23) + half) >> dropped;
  return static_cast<uint8_t>(rounded < largest ? rounded : largest);
}

template <class Narrow>
void WidenArray(const void* source, float* destination, size_t count) {
  for (size_t i = 0; i < count; ++i)
    destination[i] = ToFloat(static_cast<const Narrow*>(source)[i]);
}

template <class Narrow, Narrow (*kConvert)(float)>
void NarrowArray(const float* source, void* destination, size_t count) {
  for (size_t i = 0; i < count; ++i) static_cast<Narrow*>(destination)[i] = kConvert(source[i]);
}

}  // namespace

size_t DTypeSize(DType dtype) {
  const size_t size = Describe(dtype).size;
  ANNULUS_CHECK(size > 0) << DTypeName(dtype) << " has no whole bytes per element";
  return size;
}

absl::string_view DTypeName(DType dtype) { return Describe(dtype).name; }

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  std::string known;
  for (const Description& description : kDescriptions) {
    if (description.name == name) return description.dtype;
    absl::StrAppend(&known, known.empty() ? "" : ", ", description.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown dtype '", name, "'; known are ", known));
}

float ToFloat(BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

float ToFloat(Float16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t exponent = (value.bits >> 10) & 0x1fu;
  uint32_t mantissa = value.bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  // Subnormal: mantissa * 2^-24 is exact in float32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

float ToFloat(Float8E4M3 value) {
  // As F16 bits the exponent's bias is 8 too large; the scale is exact, subnormals included.
  if ((value.bits & 0x7fu) == 0x7fu)
    return ToFloat(Float16{static_cast<uint16_t>(value.bits << 8)});
  const uint32_t half = ((value.bits & 0x80u) << 8) | ((value.bits & 0x7fu) << 7);
  return ToFloat(Float16{static_cast<uint16_t>(half)}) * 256;
}

float ToFloat(Float8E5M2 value) { return ToFloat(Float16{static_cast<uint16_t>(value.bits << 8)}); }

BFloat16 ToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  }
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

Float16 ToFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  // 65520 is the first value that rounds beyond the largest finite half.
  if (magnitude >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 makes float32's own rounding act at the subnormal's last bit.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  const uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | (rounded >> 13))};
}

Float8E4M3 ToFloat8E4M3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint8_t narrow = magnitude > 0x7f800000u ? 0x7f : NarrowMagnitude(magnitude, 3, 7, 0x7e);
  return {static_cast<uint8_t>((bits >> 24 & 0x80u) | narrow)};
}

Float8E5M2 ToFloat8E5M2(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint8_t narrow = magnitude > 0x7f800000u ? 0x7e : NarrowMagnitude(magnitude, 2, 15, 0x7b);
  return {static_cast<uint8_t>((bits >> 24 & 0x80u) | narrow)};
}

BFloat16 QuantizeInt8(const float* source, int8_t* destination, size_t count) {
  constexpr uint32_t kSmallest = static_cast<uint32_t>(127 - 100) << 23;
  // Magnitudes compare like their bits, and NaN is above infinity.
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(source[i]) & 0x7fffffffu);
  }
  if (largest < kSmallest || largest >= 0x7f800000u) {
    std::memset(destination, 0, count);
    return largest < kSmallest ? BFloat16{0} : BFloat16{0x7fc0};
  }
  const BFloat16 scale = ToBFloat16(std::bit_cast<float>(largest) / 127);
  const float wide_scale = ToFloat(scale);
  for (size_t i = 0; i < count; ++i) {
    // Adding 1.5 * 2^23 rounds to a whole number; |value / scale| stays below 127.5.
    destination[i] = static_cast<int8_t>((source[i] / wide_scale + 0x1.8p23f) - 0x1.8p23f);
  }
  return scale;
}

void DequantizeInt8(const int8_t* source, BFloat16 scale, float* destination, size_t count) {
  const float wide_scale = ToFloat(scale);
  for (size_t i = 0; i < count; ++i) destination[i] = static_cast<float>(source[i]) * wide_scale;
}

void ConvertToFloat(DType dtype, const void* source, float* destination, size_t count) {
  switch (dtype) {
    case DType::kF32:
      if (count > 0) std::memcpy(destination, source, count * sizeof(float));
      return;
    case DType::kBF16:
      return WidenArray<BFloat16>(source, destination, count);
    case DType::kF16:
      return WidenArray<Float16>(source, destination, count);
    case DType::kF8E4M3:
      return WidenArray<Float8E4M3>(source, destination, count);
    case DType::kF8E5M2:
      return WidenArray<Float8E5M2>(source, destination, count);
    case DType::kI8:
    case DType::kI4G32:
    case DType::kI4G64:
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ4_1:
      ANNULUS_CHECK(false) << "ConvertToFloat of " << DTypeName(dtype) << " without its scale";
  }
}

void ConvertFromFloat(DType dtype, const float* source, void* destination, size_t count) {
  switch (dtype) {
    case DType::kF32:
      if (count > 0) std::memcpy(destination, source, count * sizeof(float));
      return;
    case DType::kBF16:
      return NarrowArray<BFloat16, ToBFloat16>(source, destination, count);
    case DType::kF16:
      return NarrowArray<Float16, ToFloat16>(source, destination, count);
    case DType::kF8E4M3:
      return NarrowArray<Float8E4M3, ToFloat8E4M3>(source, destination, count);
    case DType::kF8E5M2:
      return NarrowArray<Float8E5M2, ToFloat8E5M2>(source, destination, count);
    case DType::kI8:
    case DType::kI4G32:
    case DType::kI4G64:
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ4_1:
      ANNULUS_CHECK(false) << "ConvertFromFloat to " << DTypeName(dtype) << " without a scale";
  }
}

}  // namespace annulus
