#ifndef ANNULUS_KERNELS_CUDA_SM80_LINEAR_H_
#define ANNULUS_KERNELS_CUDA_SM80_LINEAR_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/cuda/common/stream_handle.h"
#include "kernels/ops/experts.h"

// Launches of the products with packed weights. All pointers are device addresses; each returns 0
// or the number of CUDA's error.

namespace annulus::cuda {

// The depth to which rows of weights are padded, and that one step of a product takes.
inline constexpr int64_t kDepthStep = 32;
// The parts of the depth whose sums are added last: see linear_weights.h.
inline constexpr int kDepthParts = 8;

// Weights as cuda::PackRows lays them out: row o at values + o * row_bytes, a multiple of 16
// bytes, padded to a multiple of kDepthStep elements with bytes of 0; its scales, if any, at scales
// + o * scale_bytes: one float32, or for the 4-bit types one bf16 per group.
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
  const float* input_scales;  // [rows], of inputs that are codes; null: 1
};
// In float32 throughout: kF32 and kF16.
int LaunchLinearFloat(StreamHandle stream, const LinearArguments& arguments);

// Every dtype but those two: inputs are rounded to bf16, weights are exact in it. Blocks have
// kBlockRows rows by kTileOutputs * tiles outputs; tiles is 1, 2 or kMostTilesMany.
inline constexpr int64_t kBlockRows = 64;
inline constexpr int64_t kTileOutputs = 32;
inline constexpr int kMostTilesMany = 4;
// The depth to which rounded inputs are padded.
inline constexpr int64_t kRoundedDepth = 2 * kDepthStep;
struct ManyRowsArguments {
  LinearArguments linear;   // whose inputs are not read
  const std::byte* inputs;  // [linear.output.rows][depth] in bf16, in steps: by LaunchRoundRows
  int64_t depth;            // in_features, padded to kRoundedDepth
  int tiles;
};
int LaunchLinearTensor(StreamHandle stream, const ManyRowsArguments& arguments);
// Shared memory of one block in bytes.
size_t ManyRowsBytes(DType dtype, int tiles);

// The same products of at most kFewRows rows, bit for bit, by blocks that have 8 * tiles outputs
// and stream their weights: each byte of them is read from memory once for all rows, 2 * rows FLOPs
// per weight. Inputs are read once by every block. 1 <= tiles <= kMostTiles*.
inline constexpr int64_t kFewRows = 16;
inline constexpr int kMostTilesTensor = 4;
inline constexpr int kMostTilesFloat = 2;
// With `experts`, rows of the output are choices: row i is multiplied by the weights of the expert
// that it names, read once for all rows that chose it, and gets that expert's bias. linear.weight
// then is any expert's, for shape, dtype and where its scales are behind its values; linear.input
// has a row for each choice, or one for each `chosen` of them.
struct ChosenExperts {
  const ExpertAddress* addresses;  // [experts]
  const int32_t* experts;          // [linear.output.rows]; null: the weights of `linear`, all rows
  int chosen;                      // of each row
};
struct FewRowsArguments {
  LinearArguments linear;
  ChosenExperts choices;
  int tiles;
};
int LaunchFewRowsTensor(StreamHandle stream, const FewRowsArguments& arguments);
int LaunchFewRowsFloat(StreamHandle stream, const FewRowsArguments& arguments);
// Shared memory of one block in bytes.
size_t FewRowsTensorBytes(int tiles);
size_t FewRowsFloatBytes(int tiles);

struct EmbedArguments {
  WeightView table;
  const int32_t* ids;  // [output.rows]
  MatrixView output;
};
int LaunchEmbed(StreamHandle stream, const EmbedArguments& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_LINEAR_H_
