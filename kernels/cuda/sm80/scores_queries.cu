// Queries as rows of the product that scores.h describes: gathered by the slot that each meets, and
// rounded to the type of the products, or split into numbers whose sum they are. Bytes: queries
// once (with stride 1 once for each part), packed rows once.
#include "kernels/cuda/common/convert.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/widen.h"
#include "kernels/cuda/sm80/scores_rows.h"
#include "kernels/ops/block_scores.h"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kTileBlocks = kScoredRows / kWarps;  // of the grid, for one packed tile

// The item's row of a group that meets `slot`; -1: none.
ANNULUS_DEVICE int32_t RowAt(const ScoresItemView& item, const RowGroup& rows, int stride,
                             int slot) {
  for (int32_t r = rows.first; r < rows.first + rows.count; ++r) {
    if (MeetingSlot(item.positions[r], stride) == slot) return r;
  }
  return -1;
}

// A power of two that brings the largest element of a packed row just below 2^15: f16 then holds
// what f32 has. As bits of its exponent.
ANNULUS_DEVICE uint32_t FactorOf(const ScoresItemView& item, const RowGroup& rows, int64_t column,
                                 int dim) {
  uint32_t largest = 0;
  for (int32_t r = rows.first; r < rows.first + rows.count; ++r) {
    const float* const query = item.query + r * item.query_stride + column;
    for (int d = Lane(); d < dim; d += kWarp) {
      largest = Larger(largest, BitsOf(query[d]) & 0x7fffffffu);
    }
  }
  return Smaller(268u - (WarpMax(largest) >> 23), 253u);
}

ANNULUS_DEVICE float LowOf(BFloat16, uint32_t pair) { return WidenBFloat16(pair & 0xffffu); }
ANNULUS_DEVICE float HighOf(BFloat16, uint32_t pair) { return WidenBFloat16(pair >> 16); }
ANNULUS_DEVICE float LowOf(Float16, uint32_t pair) { return WidenHalf(pair & 0xffffu); }
ANNULUS_DEVICE float HighOf(Float16, uint32_t pair) { return WidenHalf(pair >> 16); }

// What the parts before `part` leave of two elements, rounded.
template <class T>
ANNULUS_DEVICE uint32_t PartOf(T type, float low, float high, int part) {
  uint32_t packed = Pack(type, low, high);
  for (int p = 0; p < part; ++p) {
    low -= LowOf(type, packed);
    high -= HighOf(type, packed);
    packed = Pack(type, low, high);
  }
  return packed;
}

// A warp per packed row.
ANNULUS_KERNEL(kThreads, 4) PackQueriesKernel(ANNULUS_ARGUMENT TensorScoresArguments a) {
  const BlockScoresArguments& s = a.scores;
  const PackedTile tile = a.row_tiles[BlockX() / kTileBlocks];
  const ScoresItemView item = s.items[tile.item];
  const auto at = static_cast<int>(BlockX() % kTileBlocks) * kWarps + WarpIndex();
  const int64_t packed = FirstRow(item, tile.row_tile) + at;
  auto* const words = reinterpret_cast<uint32_t*>(a.packed) + packed * (a.depth / 2);
  const TileRow own = TileRowOf(at, a.parts);
  const int row = tile.row_tile * a.tile_rows + own.index;
  const bool present = own.part < a.parts && row < item.groups_count * s.group;
  const RowGroup rows = present ? item.groups[row / s.group] : RowGroup{};
  const int dim = s.layout.k_dim;
  const int stride = s.layout.k_stride;
  const int64_t column = (BlockY() * s.group + row % s.group) * dim;
  const bool half = s.layout.dtype == DType::kF16;
  const uint32_t factor = half ? FactorOf(item, rows, column, dim) : 127u;
  const float scale = FloatOf(factor << 23);
  if (Lane() == 0) a.factors[packed] = FloatOf((254u - factor) << 23);
  for (int slot = 0; slot < s.stride; ++slot) {
    const int32_t r = RowAt(item, rows, s.stride, slot);
    const float* const query = item.query + Larger(r, 0) * item.query_stride + column;
    for (int d = 2 * Lane(); d < stride; d += 2 * kWarp) {
      const float low = r >= 0 && d < dim ? query[d] * scale : 0;
      const float high = r >= 0 && d + 1 < dim ? query[d + 1] * scale : 0;
      const int to = s.layout.element == 1 ? PermutedDepth(d) : d;
      words[(slot * stride + to) / 2] =
          half ? PartOf(Float16{}, low, high, own.part) : PartOf(BFloat16{}, low, high, own.part);
    }
  }
  for (int w = s.stride * stride / 2 + Lane(); w < a.depth / 2; w += kWarp) words[w] = 0;
}

}  // namespace

int LaunchPackQueries(StreamHandle stream, int64_t row_tiles,
                      const TensorScoresArguments& arguments) {
  const Grid grid{
      .x = row_tiles * kTileBlocks, .y = arguments.scores.layout.kv_heads, .threads = kThreads};
  return Launch<PackQueriesKernel>(stream, grid, arguments);
}

}  // namespace annulus::cuda
