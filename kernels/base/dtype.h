#ifndef ANNULUS_KERNELS_BASE_DTYPE_H_
#define ANNULUS_KERNELS_BASE_DTYPE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// kI4G32 and kI4G64 are 4-bit weights in groups of 32 or 64 that share a scale. kQ8_0, kQ4_0 and
// kQ4_1 are the types of the same names in GGUF files, in groups of 32 (kernels/base/quantize.h).
// Only weights can have these five grouped types.
enum class DType : uint8_t {
  kF32,
  kBF16,
  kF16,
  kF8E4M3,
  kF8E5M2,
  kI8,
  kI4G32,
  kI4G64,
  kQ8_0,
  kQ4_0,
  kQ4_1
};

// Bytes of one element. Not for grouped types: their elements have no size of their own.
size_t DTypeSize(DType dtype);

// "f32", "bf16", "f16", "fp8_e4m3", "fp8_e5m2", "int8", "int4_g32", "int4_g64", "q8_0", "q4_0",
// "q4_1": the names used in flags, YAML keys and reports.
absl::string_view DTypeName(DType dtype);

// Inverse of DTypeName. INVALID_ARGUMENT for an unknown name; the message lists the known ones.
absl::StatusOr<DType> ParseDType(absl::string_view name);

// Storage of the narrow formats; arithmetic is float32. The 8-bit formats are those of the OCP
// specification "8-bit floating point" (2023). E4M3 has no infinity and reaches 448; E5M2 is the
// upper half of an F16 and reaches 57344.
struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};
struct Float8E4M3 {
  uint8_t bits;
};
struct Float8E5M2 {
  uint8_t bits;
};

// Widening is exact. Narrowing rounds to nearest, ties to even; NaN stays NaN and keeps its sign.
// BF16 has float32's range, F16 becomes infinite beyond 65504, and both keep infinities. The 8-bit
// formats saturate: values beyond their range, and infinities, become the largest finite value.
float ToFloat(BFloat16 value);
float ToFloat(Float16 value);
float ToFloat(Float8E4M3 value);
float ToFloat(Float8E5M2 value);
BFloat16 ToBFloat16(float value);
Float16 ToFloat16(float value);
Float8E4M3 ToFloat8E4M3(float value);
Float8E5M2 ToFloat8E5M2(float value);

// Converts `count` elements of `dtype` to float32. Not for kI8 and the grouped types, whose scales
// are stored elsewhere.
void ConvertToFloat(DType dtype, const void* source, float* destination, size_t count);

// Converts `count` float32 values to `dtype`. Not for kI8 and the grouped types.
void ConvertFromFloat(DType dtype, const float* source, void* destination, size_t count);

// Symmetric int8 with one scale: a value is q * scale, exact in float32, and |q| <= 127. Returns
// the scale: the largest magnitude / 127, rounded to bf16. q is value / scale rounded to nearest,
// ties to even, so a value's error is at most half the scale. If all magnitudes are below 2^-100,
// all values become 0. If an element is not finite, the scale is NaN, and with it every value.
BFloat16 QuantizeInt8(const float* source, int8_t* destination, size_t count);
void DequantizeInt8(const int8_t* source, BFloat16 scale, float* destination, size_t count);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_DTYPE_H_
