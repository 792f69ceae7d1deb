#ifndef ANNULUS_KERNELS_CPU_WEIGHT_LAYOUT_H_
#define ANNULUS_KERNELS_CPU_WEIGHT_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/base/quantize.h"
#include "kernels/ops/linear.h"

// Packed weights of the vector tables: panels of 16 output columns (rows of the checkpoint's
// matrix), one after the other; columns beyond out_features are zero. In a panel, the inputs of a
// column that share 32 bits are a word:
//   f32               [in][16] words
//   bf16, f16         [in][16] halves; in the tables with dot products, bf16 is
//                     [in / 2][16] words of inputs 2d (low half) and 2d + 1
//   int8, fp8         [in / 4][16] words of inputs 4d, 4d + 2, 4d + 1, 4d + 3 from the lowest byte;
//                     then 16 float32 scales, and for int8 16 int32 sums of a column's codes
//   q8_0              the words of int8; then the scales, [in / 32][16] f16
//   int4              [in / 8][16] words: inputs 8d, 8d + 2, 8d + 4, 8d + 6 are the half bytes of
//                     the low half, from the lowest, and the odd ones those of the high half, all
//                     as code + 8; then the scales, [in / group][16] bf16
//   q4_0, q4_1        the words of int4, for q4_1 as code; then [in / 32][16] f16 scales, each 16
//   of
//                     q4_1 followed by the 16 minimums
// The orders are those in which two shifts and masks give pairs of neighbouring inputs (int8, fp8)
// and one shift does (int4). Words are padded with zeros to a whole number of kDepthStep (int8:
// kInt8DepthStep) inputs, or of groups.

namespace annulus::cpu {

inline constexpr int64_t kDepthStep = 32;
inline constexpr int64_t kInt8DepthStep = 64;  // of int8: a tile of them

// Whether bf16 is packed in pairs.
enum class Bf16Order { kSingle, kPairs };

struct WeightLayout {
  int64_t depth = 0;        // inputs, padded
  int64_t scales = 0;       // bytes from a panel's start to its scales
  int64_t panel_bytes = 0;  // a multiple of 32; of 64 where dot products read it
};
WeightLayout LayoutOf(DType dtype, int64_t in_features, Bf16Order order);

// OpTable::matrix_bytes and pack_rows.
absl::StatusOr<size_t> MatrixBytes(int64_t out, int64_t in, DType dtype, Bf16Order order);
absl::Status PackRows(PackedMatrix& matrix, int64_t first_row, const HostTensorView& source,
                      QuantizationError* error, Bf16Order order);

// Row `row` of the matrix (a column of a panel), widened.
void UnpackRow(const PackedMatrix& matrix, int64_t row, Bf16Order order, float* output);

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_WEIGHT_LAYOUT_H_
