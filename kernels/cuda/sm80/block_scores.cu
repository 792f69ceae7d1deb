// Scores of blocks of keys by the tensor cores of compute capability 8.0 and up, for pages of 16
// and 8 bits: the product that scores.h describes, then the log of the sum of exponentials over
// each block's columns. Source: XAttention (Xu et al. 2025, arXiv 2503.16428), section 2.1.
//
// A block of 8 warps has 128 packed rows by 128 columns, a warp 64 by 32. Both sides come by
// asynchronous copies, 32 elements of depth a step, three steps deep, across tiles of columns. For
// 128 * 128 * 32 products a step reads 16 KiB (8-bit keys: 12) of the L2 cache.
//
// Queries are rounded beforehand, to the type of the products. With stride 1 they are not: three
// numbers of 16 bits, each the rest of those before, have all 24 bits of a float32, and the
// products with a key are exact in the tensor cores, so a score errs as a float32 sum does. Keys of
// int8 and stride 1 have their scale behind the product. A tile of several keys has several scales:
// codes are multiplied by theirs and rounded to bf16, as Attention does with values.
#include <cmath>

#include "kernels/cuda/common/convert.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/widen.h"
#include "kernels/cuda/sm80/scores_tile.h"

namespace annulus::cuda {
namespace {

constexpr int kWarps = kScoreThreads / kWarp;
static_assert(kScoredColumns == 4 * kWarp, "a lane takes up 4 columns");

// Where a warp's part of a tile begins.
ANNULUS_DEVICE int WarpRow() { return WarpIndex() % 2 * 64; }
ANNULUS_DEVICE int WarpColumn() { return WarpIndex() / 2 * 32; }

enum class KeyForm : uint8_t { kHalves, kCodes, kScaledCodes };

// The scale of a column's slot `slot`, of int8.
ANNULUS_DEVICE float KeyScaleOf(const PageLayout& layout, const KeyColumns& columns, int column,
                                int slot) {
  const int64_t at = layout.KeyScale(static_cast<int>(BlockY()), columns.slot[column] + slot);
  return WidenBFloat16(*reinterpret_cast<const uint16_t*>(columns.page[column] + at));
}

// The scales of a lane's 4 columns in the slot that holds element `depth`.
ANNULUS_DEVICE void LoadScales(const PageLayout& layout, const KeyColumns& columns, int depth,
                               float (&scales)[4]) {
  const int slot = depth / layout.k_stride;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int column = WarpColumn() + 8 * n + Lane() / 4;
    const bool held = (columns.held[PlaceOf(column)] >> slot & 1u) != 0;
    scales[n] = held ? KeyScaleOf(layout, columns, column, slot) : 0;
  }
}

// sums += queries times keys of one step, of this warp's first `passes` times 16 rows.
template <class T, KeyForm kForm>
ANNULUS_DEVICE void MultiplyStep(const PageLayout& layout, const std::byte* query,
                                 const std::byte* keys, const KeyColumns& columns, int depth,
                                 int passes, float (&scales)[4], float (&sums)[4][4][4]) {
  const int lane = Lane();
  const int row = HalvesAt(WarpRow() + lane % 16, lane / 16);
  const int halves = HalvesAt(WarpColumn() + lane / 16 * 8 + lane % 8, lane / 8 % 2);
  const int words = CodesAt(WarpColumn() + lane / 4, 0) + lane % 4 * 4;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    if constexpr (kForm == KeyForm::kScaledCodes) {
      if ((depth + 16 * k) % layout.k_stride == 0) {
        LoadScales(layout, columns, depth + 16 * k, scales);
      }
    }
    uint32_t b[4][2];  // of 8 columns each
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      if constexpr (kForm == KeyForm::kHalves) {
        if (n % 2 != 0) continue;
        uint32_t both[4];
        LoadMatrices(both, keys + (halves ^ 32 * k) + 8 * n * kStepBytes);
        b[n][0] = both[0];
        b[n][1] = both[1];
        b[n + 1][0] = both[2];
        b[n + 1][1] = both[3];
      } else {
        const uint32_t codes =
            *reinterpret_cast<const uint32_t*>(keys + (words ^ 16 * k) + 8 * n * kScoredDepth);
        if constexpr (kForm == KeyForm::kScaledCodes) {
          b[n][0] = WidenScaled(codes, CodePair::k01, scales[n]);
          b[n][1] = WidenScaled(codes, CodePair::k23, scales[n]);
        } else {
          b[n][0] = WidenCodes(layout.dtype, codes, CodePair::k01);
          b[n][1] = WidenCodes(layout.dtype, codes, CodePair::k23);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i >= passes) break;
      uint32_t rows[4];
      LoadMatrices(rows, query + (row ^ 32 * k) + 16 * i * kStepBytes);
#pragma unroll
      for (int n = 0; n < 4; ++n) MultiplyAdd(T{}, sums[i][n], rows, b[n][0], b[n][1]);
    }
  }
}

// The score of a row group's head for a lane's column `c`; -infinity: nothing is seen.
ANNULUS_DEVICE float ScoreOf(const BlockScoresArguments& a, const ScoresItemView& item,
                             const RowGroup& rows, int head, const KeyColumns& columns, int c,
                             float sum) {
  const int32_t tile = columns.tile[c * kWarp + Lane()];
  const int pairs = CountBits(rows.slots & columns.held[c * kWarp + Lane()]);
  if (pairs == 0 || tile > rows.tile || LeavesOut(item, rows.tile, head, tile)) {
    return -FloatOf(0x7f800000u);
  }
  if (a.stride == 1 && a.layout.dtype == DType::kI8) {
    sum *= KeyScaleOf(a.layout, columns, 4 * Lane() + c, 0);
  }
  const float score = a.scale * sum / static_cast<float>(pairs);
  return a.soft_cap > 0 ? a.soft_cap * tanhf(score / a.soft_cap) : score;
}

// The step in stage `stage`, for any type of pages.
ANNULUS_DEVICE void Multiply(const BlockScoresArguments& a, const ScoresShared& shared, int stage,
                             int tile, int depth, int passes, float (&scales)[4],
                             float (&sums)[4][4][4]) {
  const PageLayout& layout = a.layout;
  const std::byte* const query = shared.query[stage];
  const std::byte* const keys = shared.keys[stage];
  const KeyColumns& columns = shared.columns[tile % 2];
  if (layout.dtype == DType::kF16) {
    MultiplyStep<Float16, KeyForm::kHalves>(layout, query, keys, columns, depth, passes, scales,
                                            sums);
  } else if (layout.dtype == DType::kBF16) {
    MultiplyStep<BFloat16, KeyForm::kHalves>(layout, query, keys, columns, depth, passes, scales,
                                             sums);
  } else if (layout.dtype == DType::kI8 && a.stride > 1) {
    MultiplyStep<BFloat16, KeyForm::kScaledCodes>(layout, query, keys, columns, depth, passes,
                                                  scales, sums);
  } else {
    MultiplyStep<BFloat16, KeyForm::kCodes>(layout, query, keys, columns, depth, passes, scales,
                                            sums);
  }
}

// A lane's 4 columns of row `r` of a pass: the sum of all parts, the smallest first.
ANNULUS_DEVICE void TakeSums(const ScoresShared& shared, int r, int parts, float (&sums)[4]) {
  const int rows = kPassRows / parts;
#pragma unroll
  for (int c = 0; c < 4; ++c) sums[c] = 0;
  for (int p = parts - 1; p >= 0; --p) {
    const Bytes16 four = *reinterpret_cast<const Bytes16*>(&shared.sums[r + p * rows][4 * Lane()]);
#pragma unroll
    for (int c = 0; c < 4; ++c) sums[c] += FloatOf(four.words[c]);
  }
}

// The scores of the rows of pass `pass` for the blocks that end in tile `tile` of columns.
ANNULUS_DEVICE void EndPass(const TensorScoresArguments& a, const ScoresItemView& item,
                            const ScoresTile& unit, int tile, int pass, ScoresShared& shared) {
  const BlockScoresArguments& s = a.scores;
  const KeyColumns& columns = shared.columns[tile % 2];
  const int rows = kPassRows / a.parts;
  const int lanes = Smaller(a.block_columns, kScoredColumns) / 4;  // of one block
  const int block_tiles = a.block_columns / kScoredColumns;        // 0: several blocks in a tile
  const int block = unit.block_begin + (tile * kScoredColumns + 4 * Lane()) / a.block_columns;
  const float* const factors = a.factors + FirstRow(item, unit.row_tile) + pass * 16;
  for (int r = WarpIndex(); r < rows; r += kWarps) {
    const int index = pass * rows + r;
    const int row = unit.row_tile * a.tile_rows + index;
    if (row >= item.groups_count * s.group) break;
    const RowGroup group = item.groups[row / s.group];
    const int head = static_cast<int>(BlockY()) * s.group + row % s.group;
    const float factor = factors[r / 16 * 64 + r % 16];
    float scores[4];
    TakeSums(shared, r, a.parts, scores);
    LogSum own{-FloatOf(0x7f800000u), 0};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      scores[c] = ScoreOf(s, item, group, head, columns, c, scores[c] * factor);
      own.maximum = fmaxf(own.maximum, scores[c]);
    }
    for (int mask = 1; mask < lanes; mask *= 2) {
      own.maximum = fmaxf(own.maximum, ShuffleXor(own.maximum, mask));
    }
    const float largest = own.maximum == -FloatOf(0x7f800000u) ? 0 : own.maximum;
#pragma unroll
    for (int c = 0; c < 4; ++c) own.sum += expf(scores[c] - largest);
    for (int mask = 1; mask < lanes; mask *= 2) own.sum += ShuffleXor(own.sum, mask);
    if (block_tiles > 1) {
      if (tile % block_tiles > 0) own.Merge({shared.maximum[index], shared.sum[index]});
      SyncWarp();  // all lanes have read it
      if (Lane() == 0) {
        shared.maximum[index] = own.maximum;
        shared.sum[index] = own.sum;
      }
      SyncWarp();
      if (tile % block_tiles + 1 < block_tiles) continue;
    }
    if (Lane() % lanes == 0 && block < unit.block_seen) {
      item.scores[(int64_t{row / s.group} * s.heads + head) * item.blocks + block] = own.Log();
    }
  }
}

// Scores from the sums of a tile of columns, which become 0.
ANNULUS_DEVICE void EndTile(const TensorScoresArguments& a, const ScoresItemView& item,
                            const ScoresTile& unit, int tile, int passes, ScoresShared& shared,
                            float (&sums)[4][4][4]) {
#pragma unroll 1
  for (int pass = 0; pass < passes; ++pass) {
    SyncThreads();  // the pass before has been taken up
#pragma unroll
    for (int i = 0; i < kScorePasses; ++i) {
      if (i != pass) continue;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float* const to = &shared.sums[WarpRow() / 4 + 8 * h + Lane() / 4][WarpColumn() + 8 * n];
          reinterpret_cast<Pair*>(to)[Lane() % 4] = {sums[i][n][2 * h], sums[i][n][2 * h + 1]};
          sums[i][n][2 * h] = 0;
          sums[i][n][2 * h + 1] = 0;
        }
      }
    }
    SyncThreads();
    EndPass(a, item, unit, tile, pass, shared);
  }
}

// Blocks without a key that a row sees.
ANNULUS_DEVICE void ClearUnseen(const TensorScoresArguments& a, const ScoresItemView& item,
                                const ScoresTile& unit) {
  const int first = unit.row_tile * a.tile_rows;
  const int end = Smaller(first + a.tile_rows, item.groups_count * a.scores.group);
  for (int row = first + WarpIndex(); row < end; row += kWarps) {
    const int64_t head = BlockY() * a.scores.group + row % a.scores.group;
    float* const scores =
        item.scores + (row / a.scores.group * a.scores.heads + head) * item.blocks;
    for (int b = unit.block_seen + Lane(); b < unit.block_end; b += kWarp) {
      scores[b] = -FloatOf(0x7f800000u);
    }
  }
}

ANNULUS_KERNEL(kScoreThreads, 2) TensorScoresKernel(ANNULUS_ARGUMENT TensorScoresArguments a) {
  auto& shared = *reinterpret_cast<ScoresShared*>(SharedMemory());
  if (ThreadIndex() == 0) shared.unit = a.tiles[BlockX()];
  SyncThreads();
  const ScoresTile& unit = shared.unit;
  const ScoresItemView item = a.scores.items[unit.item];
  const int columns = (unit.block_seen - unit.block_begin) * a.block_columns;
  const int tiles = (columns + kScoredColumns - 1) / kScoredColumns;
  const int left = item.groups_count * a.scores.group - unit.row_tile * a.tile_rows;
  const int pass_rows = kPassRows / a.parts;
  const int passes = Smaller((left + pass_rows - 1) / pass_rows, kScorePasses);
  ClearUnseen(a, item, unit);
  StepSource source{};
  source.query = a.packed + (FirstRow(item, unit.row_tile) + ThreadIndex() / 4) * a.depth * 2 +
                 ThreadIndex() % 4 * 16;
  const int steps = a.depth / kScoredDepth;
  // What is copied next: a tile of columns and a step of it.
  int next_tile = 0;
  int next_step = 0;
  const auto start = [&](int stage) {
    if (next_tile < tiles) {
      if (next_step == 0) {
        FindColumns(a, item, unit, next_tile, shared.columns[next_tile % 2], source);
      }
      StartStep(a, source, next_step, shared.query[stage], shared.keys[stage]);
      next_tile += next_step + 1 == steps;
      next_step = next_step + 1 == steps ? 0 : next_step + 1;
    }
    AsyncCommit();
  };
  for (int stage = 0; stage < kScoreStages - 1; ++stage) start(stage);
  float sums[4][4][4] = {};
  float scales[4] = {};
  int stage = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    const bool needed = tile * kScoredColumns + WarpColumn() < columns;
    for (int depth = 0; depth < a.depth; depth += kScoredDepth) {
      AsyncWait<kScoreStages - 2>();
      SyncThreads();
      start(stage == 0 ? kScoreStages - 1 : stage - 1);
      if (needed) Multiply(a.scores, shared, stage, tile, depth, passes, scales, sums);
      stage = stage + 1 == kScoreStages ? 0 : stage + 1;
    }
    EndTile(a, item, unit, tile, passes, shared, sums);
  }
}

}  // namespace

int LaunchTensorScores(StreamHandle stream, int64_t tiles, const TensorScoresArguments& arguments) {
  const Grid grid{.x = tiles,
                  .y = arguments.scores.layout.kv_heads,
                  .threads = kScoreThreads,
                  .shared_bytes = sizeof(ScoresShared)};
  return Launch<TensorScoresKernel>(stream, grid, arguments);
}

}  // namespace annulus::cuda
