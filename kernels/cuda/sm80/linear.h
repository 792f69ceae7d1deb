#ifndef ANNULUS_KERNELS_CUDA_SM80_LINEAR_H_
#define ANNULUS_KERNELS_CUDA_SM80_LINEAR_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/cuda/common/stream_handle.h"
#include "kernels/ops/experts.h"

// Launches of the products with packed weights. All pointers are device addresses. Each function
// returns 0 or CUDA's error number.

namespace annulus::cuda {

// The depth of one step of a product; rows of weights are padded to a multiple of it.
inline constexpr int64_t kDepthStep = 32;
// The depth is summed in this many parts, which are then added: see linear_weights.h.
inline constexpr int kDepthParts = 8;

// Weights as cuda::PackRows lays them out. Row o starts at values + o * row_bytes, a multiple of 16
// bytes, and is padded with zero bytes to a multiple of kDepthStep elements. Its scales, if any,
// start at scales + o * scale_bytes: one float32 or, for the 4-bit types, one bf16 per group.
struct WeightView {
  DType dtype;
  const std::byte* values;
  int64_t row_bytes;
  const std::byte* scales;  // null: none
  int64_t scale_bytes;
  int64_t out_features;
  int64_t in_features;
};

struct LinearArguments {
  ConstMatrixView input;
  WeightView weight;
  const float* bias;  // null: none
  MatrixView output;
  bool accumulate;
  const float* input_scales;  // [rows], for inputs that are codes; null: 1
};
// Everything in float32: for kF32 and kF16.
int LaunchLinearFloat(StreamHandle stream, const LinearArguments& arguments);

// For every other dtype: inputs are rounded to bf16, in which the weights are exact. Blocks have
// kBlockRows rows by kTileOutputs * tiles outputs; `tiles` is 1, 2 or kMostTilesMany.
inline constexpr int64_t kBlockRows = 64;
inline constexpr int64_t kTileOutputs = 32;
inline constexpr int kMostTilesMany = 4;
// Rounded inputs are padded to a multiple of this depth.
inline constexpr int64_t kRoundedDepth = 2 * kDepthStep;
struct ManyRowsArguments {
  LinearArguments linear;   // its inputs are not read
  const std::byte* inputs;  // [linear.output.rows][depth] bf16 in steps, from LaunchRoundRows
  int64_t depth;            // in_features, padded to kRoundedDepth
  int tiles;
};
int LaunchLinearTensor(StreamHandle stream, const ManyRowsArguments& arguments);
// Bytes of shared memory per block.
size_t ManyRowsBytes(DType dtype, int tiles);

// The same products for at most kFewRows rows, bit for bit. Blocks take groups of 8 * tiles outputs
// and stream their weights: each byte is read from memory once for all rows, with 2 * rows FLOPs
// per weight. Every block reads all inputs. `tiles` is a power of two, up to kMostTilesTensor or
// kMostTilesFloat.
inline constexpr int64_t kFewRows = 16;
inline constexpr int kMostTilesTensor = 4;
inline constexpr int kMostTilesFloat = 2;
inline constexpr int kFewRowsBlocks = 2;  // of a multiprocessor, by tensor cores
// With `experts`, the rows of the output are choices. Row i is multiplied by the weights of expert
// experts[i] and gets that expert's bias; an expert's weights are read once for all rows that chose
// it. linear.weight is then any expert's: it gives the shape, the dtype and the distance from
// values to scales. linear.input has one row per choice, or one per `chosen` choices.
struct ChosenExperts {
  const ExpertAddress* addresses;  // [experts]
  const int32_t* experts;  // [linear.output.rows]; null: no experts, all rows use linear.weight
  int chosen;              // choices per row
};
struct FewRowsArguments {
  LinearArguments linear;
  ChosenExperts choices;
  int tiles;
  int64_t blocks;  // for every choice, or for all rows; by tensor cores at most one per group
};
int LaunchFewRowsTensor(StreamHandle stream, const FewRowsArguments& arguments);
int LaunchFewRowsFloat(StreamHandle stream, const FewRowsArguments& arguments);
// Bytes of shared memory per block.
size_t FewRowsTensorBytes(int tiles);
size_t FewRowsFloatBytes(int tiles);

struct EmbedArguments {
  WeightView table;
  const int32_t* ids;  // [output.rows]
  MatrixView output;
};
int LaunchEmbed(StreamHandle stream, const EmbedArguments& arguments);

// Quantised weights as 16-bit numbers that are exact. Codes of 8 bits become bf16, without their
// scales. Codes of 4 bits times their group's scale become f16, times a power of two that brings
// the row's largest scale to 2^10: a bf16 scale has 8 bits and a code 3, f16 11. (Groups with less
// than 2^-17 of the largest scale may lose bits.)
struct WidenArguments {
  WeightView weight;
  int64_t first;  // of `rows` rows
  int64_t rows;
  uint16_t* output;  // [rows][in_features, padded to kDepthStep]
  float* factors;    // [rows] of 4-bit weights: the inverse powers of two
};
int LaunchWiden(StreamHandle stream, const WidenArguments& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_LINEAR_H_
