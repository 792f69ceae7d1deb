#ifndef ANNULUS_KERNELS_BASE_QUANTIZE_H_
#define ANNULUS_KERNELS_BASE_QUANTIZE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/base/dtype.h"

// Weights that are stored with scales. A row of `cols` weights becomes codes and scales, with
// weight = code * scale (+ minimum):
//   kI8               int8 in [-127, 127]           one float32 scale per row: largest / 127
//   kF8E4M3, kF8E5M2  one fp8 number each           one float32 scale per row: largest / 448, 57344
//   kI4G32, kI4G64    4 bits, code + 8, two in a    one bf16 scale per group of 32 or 64: the
//                     byte, low half first          largest weight / -8, so all 16 codes are used
//   kQ8_0             int8                          one f16 scale per group of 32: largest / 127
//   kQ4_0             as kI4G32                     one f16 scale per group of 32, as kI4G32
//   kQ4_1             4 bits, code, two in a byte,  f16 scale and minimum, in turn, per group of
//                     low half first                32: (largest - smallest) / 15 and smallest
// The last three are the blocks of GGUF files, value for value; only the order of codes is ours.
// They take 1.0625, 0.5625 and 0.625 bytes per weight. The last group of a row may be short; an
// unused last half byte holds code 0. Each weight gets the nearest code, ties to even. The same row
// always gives the same bytes. All functions are thread-safe.

namespace annulus {

bool IsQuantized(DType dtype);

// Number of weights that share one scale; 0 if all weights of a row do.
int64_t QuantizedGroup(DType dtype);

// Bits of one code: 4 or 8.
int QuantizedBits(DType dtype);

// 16-bit numbers per group: the scale and, for kQ4_1, the minimum. Only for grouped types.
int GroupNumbers(DType dtype);

// Bytes of the codes and of the scales of one row.
size_t QuantizedRowBytes(DType dtype, int64_t cols);
size_t QuantizedScaleBytes(DType dtype, int64_t cols);

// The rounding error of quantised weights: |w - w'| / |w| in the Euclidean norm, over all rows
// added so far.
struct QuantizationError {
  double difference = 0;  // sum of squares
  double weights = 0;     // sum of squares

  double relative() const;
  void Add(const QuantizationError& other);
};

// Quantises one row and adds its error to `error` unless that is null. `codes` and `scales` have
// the sizes above and are aligned for their type. INVALID_ARGUMENT if a weight is infinite or NaN,
// or so large that its f16 scale would be.
absl::Status QuantizeRow(DType dtype, std::span<const float> row, std::byte* codes,
                         std::byte* scales, QuantizationError* error);

// Computes code * scale (+ minimum), rounded once, for a row of row.size() weights.
void DequantizeRow(DType dtype, const std::byte* codes, const std::byte* scales,
                   std::span<float> row);

// Checks codes and scales that come from a file. INVALID_ARGUMENT if an fp8 code, a scale or a
// minimum is infinite or NaN, or if a kI8 code is -128.
absl::Status CheckQuantizedRow(DType dtype, const std::byte* codes, const std::byte* scales,
                               int64_t cols);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_QUANTIZE_H_
