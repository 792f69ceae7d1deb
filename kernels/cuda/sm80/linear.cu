// Products of many float32 rows with packed weights in float32, output[r, o] = sum_i input[r, i] *
// weight[o, i], and rows of an embedding. The order over i is that of linear_weights.h, whatever
// the number of rows, so a row has the same bits in any batch. Compiled without contraction.
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/sm80/linear_weights.h"

namespace annulus::cuda {
namespace {

constexpr int kDepth = static_cast<int>(kDepthStep);

// A weight or its code.
ANNULUS_DEVICE float LoadCode(DType dtype, const std::byte* row, int64_t i) {
  if (!IsFourBit(dtype)) return LoadElement(dtype, row, i);
  const auto byte = static_cast<uint32_t>(row[i / 2]);
  return static_cast<float>(static_cast<int>(i % 2 == 0 ? byte & 15u : byte >> 4) - 8);
}

// Float32: 32 rows by 32 outputs, a thread has 4 rows of one output.
struct FloatTile {
  static constexpr int kSize = 32;
  static constexpr int kThreads = 256;
  static constexpr int kOwnRows = kSize * kSize / kThreads;

  float input[kSize][kDepth + 1];
  float weight[kSize][kDepth + 1];
};

ANNULUS_DEVICE void EndPart(float (&sums)[FloatTile::kOwnRows][4],
                            float (&totals)[FloatTile::kOwnRows]) {
#pragma unroll
  for (int i = 0; i < FloatTile::kOwnRows; ++i) {
    totals[i] += (sums[i][0] + sums[i][1]) + (sums[i][2] + sums[i][3]);
#pragma unroll
    for (int t = 0; t < 4; ++t) sums[i][t] = 0;
  }
}

ANNULUS_KERNEL(FloatTile::kThreads, 2)
LinearFloatKernel(ANNULUS_ARGUMENT LinearArguments a) {
  constexpr int kSize = FloatTile::kSize;
  FloatTile& tile = *reinterpret_cast<FloatTile*>(SharedMemory());
  const WeightView& w = a.weight;
  const int64_t tiles = (w.out_features + kSize - 1) / kSize;
  const int64_t block_row = BlockX() / tiles * kSize;
  const int64_t block_column = BlockX() % tiles * kSize;
  const int x = ThreadIndex() % kSize;
  const int y = ThreadIndex() / kSize;
  const int64_t part = PartDepth(w.in_features);
  int64_t part_end = part;
  float sums[FloatTile::kOwnRows][4] = {};
  float totals[FloatTile::kOwnRows] = {};
  for (int64_t depth = 0; depth < w.in_features; depth += kDepth) {
    if (depth == part_end) {
      EndPart(sums, totals);
      part_end += part;
    }
    SyncThreads();
    const int64_t at = depth + x;
    for (int i = y; i < kSize; i += FloatTile::kThreads / kSize) {
      const int64_t row = block_row + i;
      const int64_t column = block_column + i;
      const bool inside = at < w.in_features;
      tile.input[i][x] = inside && row < a.input.rows ? a.input.row(row)[at] : 0;
      tile.weight[i][x] = inside && column < w.out_features
                              ? LoadElement(w.dtype, w.values + column * w.row_bytes, at)
                              : 0;
    }
    SyncThreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
#pragma unroll
      for (int i = 0; i < FloatTile::kOwnRows; ++i) {
        sums[i][k / 8] += tile.input[y * FloatTile::kOwnRows + i][k] * tile.weight[x][k];
      }
    }
  }
  EndPart(sums, totals);
#pragma unroll
  for (int i = 0; i < FloatTile::kOwnRows; ++i) {
    const int64_t row = block_row + y * FloatTile::kOwnRows + i;
    if (row < a.input.rows && block_column + x < w.out_features) {
      StoreOutput(a, row, block_column + x, totals[i]);
    }
  }
}

constexpr int kEmbedThreads = 128;

ANNULUS_KERNEL(kEmbedThreads, 8) EmbedKernel(ANNULUS_ARGUMENT EmbedArguments a) {
  const int64_t id = a.ids[BlockX()];
  const std::byte* const row = a.table.values + id * a.table.row_bytes;
  float* const output = a.output.row(BlockX());
  for (int64_t i = ThreadIndex(); i < a.output.cols; i += kEmbedThreads) {
    output[i] = LoadCode(a.table.dtype, row, i) * LoadScale(a.table, id, i);
  }
}

}  // namespace

int LaunchLinearFloat(StreamHandle stream, const LinearArguments& arguments) {
  constexpr int kSize = FloatTile::kSize;
  const Grid grid{.x = (arguments.input.rows + kSize - 1) / kSize *
                       ((arguments.weight.out_features + kSize - 1) / kSize),
                  .threads = FloatTile::kThreads,
                  .shared_bytes = sizeof(FloatTile)};
  return Launch<LinearFloatKernel>(stream, grid, arguments);
}
int LaunchEmbed(StreamHandle stream, const EmbedArguments& arguments) {
  return Launch<EmbedKernel>(stream, {.x = arguments.output.rows, .threads = kEmbedThreads},
                             arguments);
}

}  // namespace annulus::cuda
