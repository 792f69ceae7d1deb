#include "kernels/base/dtype.h"

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
};

const Description& Describe(DType dtype) {
  for (const Description& description : kDescriptions) {
    if (description.dtype == dtype) return description;
  }
  ANNULUS_CHECK(false) << "dtype " << static_cast<int>(dtype);
  return kDescriptions[0];
}

}  // namespace

size_t DTypeSize(DType dtype) { return Describe(dtype).size; }

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

void ConvertToFloat(DType dtype, const void* source, float* destination, size_t count) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(destination, source, count * sizeof(float));
      return;
    case DType::kBF16:
      for (size_t i = 0; i < count; ++i) {
        destination[i] = ToFloat(static_cast<const BFloat16*>(source)[i]);
      }
      return;
    case DType::kF16:
      for (size_t i = 0; i < count; ++i) {
        destination[i] = ToFloat(static_cast<const Float16*>(source)[i]);
      }
      return;
    default:
      ANNULUS_CHECK(false) << "ConvertToFloat of " << DTypeName(dtype);
  }
}

void ConvertFromFloat(DType dtype, const float* source, void* destination, size_t count) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(destination, source, count * sizeof(float));
      return;
    case DType::kBF16:
      for (size_t i = 0; i < count; ++i) {
        static_cast<BFloat16*>(destination)[i] = ToBFloat16(source[i]);
      }
      return;
    case DType::kF16:
      for (size_t i = 0; i < count; ++i) {
        static_cast<Float16*>(destination)[i] = ToFloat16(source[i]);
      }
      return;
    default:
      ANNULUS_CHECK(false) << "ConvertFromFloat to " << DTypeName(dtype);
  }
}

}  // namespace annulus
