#ifndef ANNULUS_KERNELS_BASE_DTYPE_H_
#define ANNULUS_KERNELS_BASE_DTYPE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// kI4G32 and kI4G64 are weights of 4 bits in groups of 32 or 64 that share a scale; kQ8_0, kQ4_0
// and kQ4_1 are the types of GGUF files with these names, in groups of 32
// (kernels/base/quantize.h). Weights alone have these five grouped types.
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

// Bytes of one element; grouped types have none.
size_t DTypeSize(DType dtype);

// "f32", "bf16", "f16", "fp8_e4m3", "fp8_e5m2", "int8", "int4_g32", "int4_g64", "q8_0", "q4_0",
// "q4_1": the names of flags, YAML keys and reports.
absl::string_view DTypeName(DType dtype);

// Inverse of DTypeName; an unknown name is INVALID_ARGUMENT and lists the known ones.
absl::StatusOr<DType> ParseDType(absl::string_view name);

// Storage of the narrow formats; arithmetic is done in float32. The 8-bit ones are those of the OCP
// specification "8-bit floating point" (2023): E4M3 has no infinity and reaches 448, E5M2 is the
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

// Widening is exact. Narrowing rounds to nearest, ties to even; NaN stays NaN with its sign. BF16
// and F16 keep infinity; BF16 has float32's range, F16 overflows to infinity beyond 65504. The
// 8-bit formats saturate: what is beyond their range, infinity too, becomes the largest finite.
float ToFloat(BFloat16 value);
float ToFloat(Float16 value);
float ToFloat(Float8E4M3 value);
float ToFloat(Float8E5M2 value);
BFloat16 ToBFloat16(float value);
Float16 ToFloat16(float value);
Float8E4M3 ToFloat8E4M3(float value);
Float8E5M2 ToFloat8E5M2(float value);

// Converts `count` elements of `dtype` (any but kI8 and the grouped ones, whose scales lie
// elsewhere) to float32.
void ConvertToFloat(DType dtype, const void* source, float* destination, size_t count);

// Converts `count` float32 values to `dtype` (any but kI8 and the grouped ones).
void ConvertFromFloat(DType dtype, const float* source, void* destination, size_t count);

// Symmetric int8 with one scale: a value is q * scale, exact in float32, and |q| <= 127. The scale
// returned is the largest magnitude / 127 rounded to bf16; q is value / scale rounded to nearest,
// ties to even: the error of a value is at most half the scale. Magnitudes all below 2^-100 become
// 0; an element that is not finite makes the scale NaN, and so every value.
BFloat16 QuantizeInt8(const float* source, int8_t* destination, size_t count);
void DequantizeInt8(const int8_t* source, BFloat16 scale, float* destination, size_t count);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_DTYPE_H_
