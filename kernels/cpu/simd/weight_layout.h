#ifndef ANNULUS_KERNELS_CPU_SIMD_WEIGHT_LAYOUT_H_
#define ANNULUS_KERNELS_CPU_SIMD_WEIGHT_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/base/quantize.h"
#include "kernels/ops/linear.h"

// Layout of the vector tables' packed weights: panels of 16 output columns (rows of the
// checkpoint's matrix), one after the other; columns beyond out_features are zero. A panel consists
// of 32-bit words, each with as many inputs of one column as fit:
//   f32               [in][16] words
//   bf16, f16         [in][16] halves; in the tables with dot products, bf16 is
//                     [in / 2][16] words of inputs 2d (low half) and 2d + 1
//   int8, fp8         [in / 4][16] words of inputs 4d, 4d + 2, 4d + 1, 4d + 3 from the lowest byte;
//                     then 16 float32 scales, and for int8 16 int32 sums of a column's codes
//   q8_0              words as for int8; then the scales, [in / 32][16] f16
//   int4              [in / 8][16] words of half bytes, each code + 8. From the lowest, these are
//                     inputs 8d, 8d + 2, 8d + 4, 8d + 6, then 8d + 1, 8d + 3, 8d + 5, 8d + 7;
//                     then the scales, [in / group][16] bf16
//   q4_0              words as for int4; then the scales, [in / 32][16] f16
//   q4_1              words as for int4, but without the + 8; then for each group of 32 inputs
//                     16 f16 scales and 16 f16 minimums
// In these orders, pairs of neighbouring inputs need only two shifts and masks (int8, fp8) or one
// shift (int4). Words are padded with zeros to a multiple of kDepthStep (int8: kInt8DepthStep)
// inputs, and to whole groups.

namespace annulus::cpu {

inline constexpr int64_t kDepthStep = 32;
inline constexpr int64_t kInt8DepthStep = 64;  // for int8: the depth of a tile of codes

// Whether bf16 is packed in pairs.
enum class Bf16Order { kSingle, kPairs };

struct WeightLayout {
  int64_t depth = 0;        // inputs, including padding
  int64_t scales = 0;       // bytes from a panel's start to its scales
  int64_t panel_bytes = 0;  // a multiple of 32; of 64 if dot products read it
};
WeightLayout LayoutOf(DType dtype, int64_t in_features, Bf16Order order);

// Implement OpTable::matrix_bytes and pack_rows.
absl::StatusOr<size_t> MatrixBytes(int64_t out, int64_t in, DType dtype, Bf16Order order);
absl::Status PackRows(PackedMatrix& matrix, int64_t first_row, const HostTensorView& source,
                      QuantizationError* error, Bf16Order order);

// Widens row `row` of the matrix (a column of a panel) to `output`.
void UnpackRow(const PackedMatrix& matrix, int64_t row, Bf16Order order, float* output);

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_SIMD_WEIGHT_LAYOUT_H_
