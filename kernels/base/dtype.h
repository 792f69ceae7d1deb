#ifndef ANNULUS_KERNELS_BASE_DTYPE_H_
#define ANNULUS_KERNELS_BASE_DTYPE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

enum class DType : uint8_t { kF32, kBF16, kF16, kF8E4M3, kF8E5M2, kI8 };

// Bytes of one element.
size_t DTypeSize(DType dtype);

// "f32", "bf16", "f16", "fp8_e4m3", "fp8_e5m2", "int8": the names of flags, YAML keys and reports.
absl::string_view DTypeName(DType dtype);

// Inverse of DTypeName; an unknown name is INVALID_ARGUMENT and lists the known ones.
absl::StatusOr<DType> ParseDType(absl::string_view name);

// Storage of the 16-bit formats; arithmetic is done in float32.
struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

// Widening is exact. Narrowing rounds to nearest, ties to even; NaN stays NaN and infinity stays
// infinity. BF16 keeps float32's range; F16 overflows to infinity beyond 65504.
float ToFloat(BFloat16 value);
float ToFloat(Float16 value);
BFloat16 ToBFloat16(float value);
Float16 ToFloat16(float value);

// Converts `count` elements of `dtype` (kF32, kBF16 or kF16) to float32.
void ConvertToFloat(DType dtype, const void* source, float* destination, size_t count);

// Converts `count` float32 values to `dtype` (kF32, kBF16 or kF16).
void ConvertFromFloat(DType dtype, const float* source, void* destination, size_t count);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_DTYPE_H_
