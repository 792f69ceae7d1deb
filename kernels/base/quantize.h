#ifndef ANNULUS_KERNELS_BASE_QUANTIZE_H_
#define ANNULUS_KERNELS_BASE_QUANTIZE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/base/dtype.h"

// Weights that are stored with scales. A row of `cols` weights becomes codes and scales, weight =
// code * scale (+ minimum):
//   kI8               int8 in [-127, 127]           one float32 scale per row: largest / 127
//   kF8E4M3, kF8E5M2  one fp8 number each           one float32 scale per row: largest / 448, 57344
//   kI4G32, kI4G64    4 bits, code + 8, two in a    one bf16 scale per group of 32 or 64: the
//                     byte, low half first          largest weight / -8, so all 16 codes are used
//   kQ8_0             int8                          one f16 scale per group of 32: largest / 127
//   kQ4_0             as kI4G32                     one f16 scale per group of 32, as kI4G32
//   kQ4_1             4 bits, code, two in a byte,  f16 scale and minimum, in turn, per group of
//                     low half first                32: (largest - smallest) / 15 and smallest
// The last three are the blocks of GGUF files, value for value; only the order of codes is ours.
// They take 1.0625, 0.5625 and 0.625 bytes a weight. The last group of a row may be short; an odd
// last half byte is code 0. Codes are the nearest, ties to even. The same row gives the same bytes
// wherever and however often it is quantised. All functions are thread-safe.

namespace annulus {

bool IsQuantized(DType dtype);

// Weights that share one scale; 0: all of a row.
int64_t QuantizedGroup(DType dtype);

// Bits of one code: 4 or 8.
int QuantizedBits(DType dtype);

// Numbers of 16 bits that a group has: its scale and, of kQ4_1, its minimum. For types with groups.
int GroupNumbers(DType dtype);

// Bytes of a row's codes and of its scales.
size_t QuantizedRowBytes(DType dtype, int64_t cols);
size_t QuantizedScaleBytes(DType dtype, int64_t cols);

// How far quantised weights lie from those given: |w - w'| / |w| in the Euclidean norm, over all
// rows that were added.
struct QuantizationError {
  double difference = 0;  // sum of squares
  double weights = 0;     // sum of squares

  double relative() const;
  void Add(const QuantizationError& other);
};

// Quantises one row; adds to `error` unless it is null. `codes` and `scales` are of the sizes above
// and aligned for their type. INVALID_ARGUMENT where a weight is infinite or NaN, or, for scales in
// f16, so large that they are.
absl::Status QuantizeRow(DType dtype, std::span<const float> row, std::byte* codes,
                         std::byte* scales, QuantizationError* error);

// code * scale (+ minimum), rounded once, for a row of row.size() weights.
void DequantizeRow(DType dtype, const std::byte* codes, const std::byte* scales,
                   std::span<float> row);

// OK where codes and scales from outside are those of finite weights, else INVALID_ARGUMENT: an
// fp8 code, a scale or a minimum that is infinite or NaN, or the code -128 of kI8.
absl::Status CheckQuantizedRow(DType dtype, const std::byte* codes, const std::byte* scales,
                               int64_t cols);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_QUANTIZE_H_
