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

constexpr int kTableThreads = 128;
constexpr int kAtOnce = 4;  // loads of a thread that are under way together

ANNULUS_DEVICE void EmbedRow(const EmbedArguments& a) {
  const int64_t id = a.ids[BlockX()];
  const std::byte* const row = a.table.values + id * a.table.row_bytes;
  float* const output = a.output.row(BlockX());
  for (int64_t i = ThreadIndex(); i < a.output.cols; i += kTableThreads) {
    output[i] = LoadCode(a.table.dtype, row, i) * LoadScale(a.table, id, i);
  }
}

template <CodeForm kForm>
ANNULUS_DEVICE void WidenRow(const WidenArguments& a) {
  const WeightView& w = a.weight;
  const std::byte* const row = w.values + (a.first + BlockX()) * w.row_bytes;
  auto* const output = reinterpret_cast<Bytes16*>(a.output + BlockX() * w.row_bytes);
  const int64_t eights = w.row_bytes / 8;
  for (int64_t first = ThreadIndex(); first < eights; first += kAtOnce * kTableThreads) {
    EightCodes<kForm> codes[kAtOnce] = {};
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int64_t i = first + n * kTableThreads;
      if (i < eights) codes[n] = LoadEight<kForm>(row + 8 * i);
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int64_t i = first + n * kTableThreads;
      Bytes16 wide;
      WidenEight<kForm>(w.dtype, codes[n], wide.words);
      if (i < eights) output[i] = wide;
    }
  }
}

// The same power of two for a whole row, and its inverse to `factors`.
ANNULUS_DEVICE float FactorOfRow(const WidenArguments& a, const uint16_t* scales, int64_t groups) {
  auto* const shared = reinterpret_cast<uint32_t*>(SharedMemory());
  uint32_t largest = 0;
  for (int64_t g = ThreadIndex(); g < groups; g += kTableThreads) {
    largest = Larger(largest, scales[g] & 0x7fffu);
  }
  largest = WarpMax(largest);
  if (Lane() == 0) shared[WarpIndex()] = largest;
  SyncThreads();
  for (int i = 0; i < kTableThreads / kWarp; ++i) largest = Larger(largest, shared[i]);
  const uint32_t exponent = Smaller(Larger(largest >> 7, 11u), 254u);
  if (ThreadIndex() == 0) a.factors[BlockX()] = FloatOf((exponent - 10) << 23);
  return FloatOf((264 - exponent) << 23);
}

// Eight 4-bit codes times their scale as f16.
ANNULUS_DEVICE Bytes16 ScaledHalves(uint32_t codes, float scale) {
  float values[8];
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    const uint32_t pair = WidenNibbles(codes >> 4 * p);
    values[LowOfPair(true, p)] = FloatOf(pair << 16) * scale;
    values[HighOfPair(true, p)] = FloatOf(pair & 0xffff0000u) * scale;
  }
  Bytes16 wide;
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    wide.words[p] = Pack(Float16{}, values[2 * p], values[2 * p + 1]);
  }
  return wide;
}

ANNULUS_DEVICE void WidenGroups(const WidenArguments& a) {
  const WeightView& w = a.weight;
  const int64_t o = a.first + BlockX();
  const auto* const words = reinterpret_cast<const uint32_t*>(w.values + o * w.row_bytes);
  const auto* const scales = reinterpret_cast<const uint16_t*>(w.scales + o * w.scale_bytes);
  auto* const output = reinterpret_cast<Bytes16*>(a.output + BlockX() * 2 * w.row_bytes);
  const int shift = w.dtype == DType::kI4G32 ? 2 : 3;  // log2 of a group's words
  const int64_t groups = (w.in_features + (8 << shift) - 1) >> (3 + shift);
  const float factor = FactorOfRow(a, scales, groups);
  const int64_t eights = w.row_bytes / 4;
  for (int64_t first = ThreadIndex(); first < eights; first += kAtOnce * kTableThreads) {
    uint32_t codes[kAtOnce] = {};
    float own_scales[kAtOnce] = {};
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int64_t i = first + n * kTableThreads;
      if (i >= eights) break;
      codes[n] = words[i];
      own_scales[n] = WidenBFloat16(scales[i >> shift]) * factor;
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int64_t i = first + n * kTableThreads;
      if (i < eights) output[i] = ScaledHalves(codes[n], own_scales[n]);
    }
  }
}

// One of two: rows of a table where there are ids, else rows of codes.
struct TableRowsArguments {
  EmbedArguments embed;
  WidenArguments widen;
};

ANNULUS_KERNEL(kTableThreads, 8) TableRowsKernel(ANNULUS_ARGUMENT TableRowsArguments a) {
  if (a.embed.ids != nullptr) {
    EmbedRow(a.embed);
  } else if (IsFourBit(a.widen.weight.dtype)) {
    WidenGroups(a.widen);
  } else if (a.widen.weight.dtype == DType::kI8) {
    WidenRow<CodeForm::kInt8>(a.widen);
  } else {
    WidenRow<CodeForm::kFloat8>(a.widen);
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
  return Launch<TableRowsKernel>(stream, {.x = arguments.output.rows, .threads = kTableThreads},
                                 TableRowsArguments{arguments, {}});
}
int LaunchWiden(StreamHandle stream, const WidenArguments& arguments) {
  const Grid grid{.x = arguments.rows,
                  .threads = kTableThreads,
                  .shared_bytes = kTableThreads / kWarp * sizeof(uint32_t)};
  return Launch<TableRowsKernel>(stream, grid, TableRowsArguments{{}, arguments});
}

}  // namespace annulus::cuda
