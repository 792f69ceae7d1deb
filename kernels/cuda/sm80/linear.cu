// Products of many float32 rows with packed weights of any dtype, output[r, o] = sum_i input[r, i]
// * weight[o, i], and rows of an embedding. The order over i is that of linear_weights.h, whatever
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

// Tensor cores: 64 rows by 64 outputs by 4 warps, each 32 by 32.
struct TensorTile {
  static constexpr int kRows = 64;
  static constexpr int kColumns = 64;
  static constexpr int kThreads = 128;
  static constexpr int kStride = kDepth + 8;  // so that 8 rows start in different banks
  static constexpr int kEights = 2;           // eights of elements that one thread stages

  uint16_t input[kRows][kStride];
  uint16_t weight[kColumns][kStride];
};
static_assert(TensorTile::kThreads * TensorTile::kEights * 8 == TensorTile::kRows * kDepth);
static_assert(TensorTile::kStride * 2 % 16 == 0);

// The place, in words of the step, of pair p of the eight elements `t`.
ANNULUS_DEVICE int WordOf(int t, int p) { return p / 2 * 8 + t + p % 2 * 4; }

// Rounds this thread's part of the step's inputs to bf16.
ANNULUS_DEVICE void StageInput(const LinearArguments& a, int64_t first_row, int64_t depth,
                               TensorTile& tile) {
  const int r = ThreadIndex() / 2;
  const int64_t row = first_row + r;
  const bool four_bit = IsFourBit(a.weight.dtype);
  auto* const words = reinterpret_cast<uint32_t*>(tile.input[r]);
#pragma unroll
  for (int n = 0; n < TensorTile::kEights; ++n) {
    const int t = ThreadIndex() % 2 * TensorTile::kEights + n;
    float values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int64_t at = depth + 8 * t + i;
      values[i] = row < a.input.rows && at < a.input.cols ? a.input.row(row)[at] : 0;
    }
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const float low = four_bit ? values[LowOfPair(true, p)] : values[LowOfPair(false, p)];
      const float high = four_bit ? values[HighOfPair(true, p)] : values[HighOfPair(false, p)];
      words[WordOf(t, p)] = Pack(BFloat16{}, low, high);
    }
  }
}

template <int kBits>
ANNULUS_DEVICE void StageWeight(const WeightView& w, int64_t first_column, int64_t depth,
                                TensorTile& tile) {
  const int c = ThreadIndex() / 2;
  const int64_t column = first_column + c;
  auto* const words = reinterpret_cast<uint32_t*>(tile.weight[c]);
  const std::byte* const codes = w.values + column * w.row_bytes + depth * kBits / 8;
#pragma unroll
  for (int n = 0; n < TensorTile::kEights; ++n) {
    const int t = ThreadIndex() % 2 * TensorTile::kEights + n;
    uint32_t pairs[4] = {};
    if (column < w.out_features) WidenEight<kBits>(w.dtype, codes + t * kBits, pairs);
#pragma unroll
    for (int p = 0; p < 4; ++p) words[WordOf(t, p)] = pairs[p];
  }
}

// sums += the step's input times its weights, of this warp's 32 rows and columns.
ANNULUS_DEVICE void MultiplyStep(const TensorTile& tile, int first_row, int first_column,
                                 float (&sums)[2][4][4]) {
  const int lane = Lane();
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
    uint32_t a[2][4];
    uint32_t b[2][4];  // [16 columns]: depth k and k + 8 of 8 columns, twice
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      LoadMatrices(a[i], &tile.input[first_row + 16 * i + lane % 16][k + lane / 16 * 8]);
      LoadMatrices(
          b[i],
          &tile.weight[first_column + 16 * i + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        MultiplyAdd(BFloat16{}, sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
}

// sums += step * the scales of its groups; the lane's first column is `column`.
ANNULUS_DEVICE void AddScaled(const WeightView& w, int64_t column, int64_t depth,
                              const float (&step)[2][4][4], float (&sums)[2][4][4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int64_t o = column + 8 * j + e % 2;
      const float scale = o < w.out_features ? LoadScale(w, o, depth) : 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) sums[i][j][e] += step[i][j][e] * scale;
    }
  }
}

// totals += sums, which become 0.
ANNULUS_DEVICE void EndPart(float (&sums)[2][4][4], float (&totals)[2][4][4]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        totals[i][j][e] += sums[i][j][e];
        sums[i][j][e] = 0;
      }
    }
  }
}

// All steps of a block of weights of kBits.
template <int kBits>
ANNULUS_DEVICE void MultiplyTile(const LinearArguments& a, int64_t block_row, int64_t block_column,
                                 int warp_row, int warp_column, float (&totals)[2][4][4]) {
  TensorTile& tile = *reinterpret_cast<TensorTile*>(SharedMemory());
  const int64_t own_column = block_column + warp_column + Lane() % 4 * 2;
  const int64_t part = PartDepth(a.weight.in_features);
  int64_t part_end = part;
  float sums[2][4][4] = {};
  for (int64_t depth = 0; depth < a.weight.in_features; depth += kDepth) {
    if (depth == part_end) {
      EndPart(sums, totals);
      part_end += part;
    }
    SyncThreads();  // the step before has been read
    StageInput(a, block_row, depth, tile);
    StageWeight<kBits>(a.weight, block_column, depth, tile);
    SyncThreads();
    if constexpr (kBits == 4) {
      float step[2][4][4] = {};
      MultiplyStep(tile, warp_row, warp_column, step);
      AddScaled(a.weight, own_column, depth, step, sums);
    } else {
      MultiplyStep(tile, warp_row, warp_column, sums);
    }
  }
  EndPart(sums, totals);
}

ANNULUS_KERNEL(TensorTile::kThreads, 2)
LinearTensorKernel(ANNULUS_ARGUMENT LinearArguments a) {
  const int64_t tiles = (a.weight.out_features + TensorTile::kColumns - 1) / TensorTile::kColumns;
  const int64_t block_row = BlockX() / tiles * TensorTile::kRows;
  const int64_t block_column = BlockX() % tiles * TensorTile::kColumns;
  const int warp_row = WarpIndex() % 2 * 32;
  const int warp_column = WarpIndex() / 2 * 32;
  const bool grouped = IsFourBit(a.weight.dtype);
  float totals[2][4][4] = {};
  if (grouped) {
    MultiplyTile<4>(a, block_row, block_column, warp_row, warp_column, totals);
  } else if (a.weight.dtype == DType::kBF16) {
    MultiplyTile<16>(a, block_row, block_column, warp_row, warp_column, totals);
  } else {
    MultiplyTile<8>(a, block_row, block_column, warp_row, warp_column, totals);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t row = block_row + warp_row + 16 * i + Lane() / 4 + e / 2 * 8;
        const int64_t column = block_column + warp_column + Lane() % 4 * 2 + 8 * j + e % 2;
        if (row >= a.input.rows || column >= a.weight.out_features) continue;
        const float scale = grouped ? 1 : LoadScale(a.weight, column, 0);
        StoreOutput(a, row, column, totals[i][j][e] * InputScale(a, row) * scale);
      }
    }
  }
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

int64_t Tiles(const LinearArguments& arguments, int rows, int columns) {
  return (arguments.input.rows + rows - 1) / rows *
         ((arguments.weight.out_features + columns - 1) / columns);
}

}  // namespace

int LaunchLinearTensor(StreamHandle stream, const LinearArguments& arguments) {
  const Grid grid{.x = Tiles(arguments, TensorTile::kRows, TensorTile::kColumns),
                  .threads = TensorTile::kThreads,
                  .shared_bytes = sizeof(TensorTile)};
  return Launch<LinearTensorKernel>(stream, grid, arguments);
}
int LaunchLinearFloat(StreamHandle stream, const LinearArguments& arguments) {
  const Grid grid{.x = Tiles(arguments, FloatTile::kSize, FloatTile::kSize),
                  .threads = FloatTile::kThreads,
                  .shared_bytes = sizeof(FloatTile)};
  return Launch<LinearFloatKernel>(stream, grid, arguments);
}
int LaunchEmbed(StreamHandle stream, const EmbedArguments& arguments) {
  return Launch<EmbedKernel>(stream, {.x = arguments.output.rows, .threads = kEmbedThreads},
                             arguments);
}

}  // namespace annulus::cuda
