#ifndef ANNULUS_KERNELS_CUDA_SM80_SCORES_TILE_H_
#define ANNULUS_KERNELS_CUDA_SM80_SCORES_TILE_H_

// The shared memory of a block of TensorScoresKernel (block_scores.cu), and how it is filled.
#include "kernels/cuda/common/matrix.h"
#include "kernels/cuda/sm80/scores_rows.h"

namespace annulus::cuda {

inline constexpr int kScoreThreads = 256;
inline constexpr int kScoreStages = 3;
inline constexpr int kStepBytes = kScoredDepth * 2;  // per packed row

// A column of a tile: some slots of a page; empty if there are none.
struct KeyColumn {
  const std::byte* page;
  int32_t slot;
  int32_t tile;     // position / stride
  int32_t present;  // slots that hold a key
};

struct KeyColumns {
  const std::byte* page[kScoredColumns];
  int32_t slot[kScoredColumns];
  // Both stored at PlaceOf(column), so that a warp reads 32 consecutive entries.
  int32_t tile[kScoredColumns];
  uint32_t held[kScoredColumns];  // bit t: slot t holds a key
};
ANNULUS_DEVICE int PlaceOf(int column) { return column % 4 * kWarp + column / 4; }

// Two sums, read or written in one access.
struct alignas(8) Pair {
  float low;
  float high;
};

struct ScoresShared {
  alignas(128) std::byte query[kScoreStages][kScoredRows * kStepBytes];
  alignas(128) std::byte keys[kScoreStages][kScoredColumns * kStepBytes];
  // The 8 extra columns put the pairs of 4 rows into different banks.
  alignas(16) float sums[kPassRows][kScoredColumns + 8];
  KeyColumns columns[2];
  float maximum[kScoredRows];  // used if a block of keys has several tiles of columns
  float sum[kScoredRows];
  ScoresTile unit;  // kept here to save registers
};

// Offset of a 16-byte chunk of a row; exchanged so that the chunks of 8 neighbouring rows lie in
// different banks. The exchange repeats every 8 rows, so 16 rows later the offset is larger by just
// 16 rows. The offset of chunk ^ n is the offset of `chunk` ^ 16 n.
ANNULUS_DEVICE int HalvesAt(int row, int chunk) {
  return row * kStepBytes + (chunk ^ (row >> 1 & 3)) * 16;
}
ANNULUS_DEVICE int CodesAt(int row, int chunk) {
  return row * kScoredDepth + (chunk ^ (row >> 2 & 1)) * 16;
}

// What a thread copies: 16 bytes of two packed rows, and of two columns (with 8-bit codes, of one).
struct StepSource {
  const std::byte* query;
  const std::byte* keys[2];
  int bytes[2];  // of the columns' keys
};

// The slots that column `column` of tile `tile` stands for.
ANNULUS_DEVICE KeyColumn ColumnAt(const TensorScoresArguments& a, const ScoresItemView& item,
                                  const ScoresTile& unit, int tile, int column) {
  const int at = tile * kScoredColumns + column;
  const int block = unit.block_begin + at / a.block_columns;
  const int offset = at % a.block_columns * a.scores.stride;
  if (block >= unit.block_seen || offset >= a.block_tokens) return {};
  const int first = item.block_pages[block];
  const int32_t start = item.pages[first].first_position / a.block_tokens * a.block_tokens;
  // Without gaps it is this page; with gaps, an earlier one or none.
  int p = Smaller(first + offset / a.scores.layout.page_tokens, item.block_pages[block + 1] - 1);
  while (p > first && item.pages[p].first_position - start > offset) --p;
  const KvPageView page = item.pages[p];
  const int slot = offset - (page.first_position - start);
  if (slot < 0 || slot >= page.tokens) return {};
  return {page.data, slot, (page.first_position + slot) / a.scores.stride,
          Smaller(page.tokens - slot, a.scores.stride)};
}

// Finds a thread's columns of a tile; one of the threads that share a column stores it in
// `columns`.
ANNULUS_DEVICE void FindColumns(const TensorScoresArguments& a, const ScoresItemView& item,
                                const ScoresTile& unit, int tile, KeyColumns& columns,
                                StepSource& source) {
  const PageLayout& layout = a.scores.layout;
  const int chunks = layout.element * kScoredDepth / 16;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int index = n * (kScoreThreads / 4) + ThreadIndex() / chunks;
    if (n > 0 && layout.element == 1) break;
    const KeyColumn column = ColumnAt(a, item, unit, tile, index);
    if (ThreadIndex() % chunks == 0) {
      columns.page[index] = column.page;
      columns.slot[index] = column.slot;
      columns.tile[PlaceOf(index)] = column.tile;
      columns.held[PlaceOf(index)] = (1u << column.present) - 1;
    }
    source.bytes[n] = column.present * layout.k_stride * layout.element;
    source.keys[n] = a.packed;  // nothing is read for an empty column
    if (column.present > 0) {
      source.keys[n] = column.page + layout.Key(static_cast<int>(BlockY()), column.slot);
    }
  }
}

// Starts the copies of step `step` of a tile of columns.
ANNULUS_DEVICE void StartStep(const TensorScoresArguments& a, const StepSource& source, int step,
                              std::byte* query, std::byte* keys) {
  const int to = HalvesAt(ThreadIndex() / 4, ThreadIndex() % 4);
  const std::byte* const from = source.query + step * kStepBytes;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    AsyncCopy16(query + to + n * (kScoreThreads / 4) * kStepBytes,
                from + int64_t{n} * (kScoreThreads / 4) * a.depth * 2, true);
  }
  if (a.scores.layout.element == 1) {
    const int own = ThreadIndex() % 2;
    const int at = step * kScoredDepth + own * 16;
    AsyncCopy16(keys + CodesAt(ThreadIndex() / 2, own), source.keys[0] + at, at < source.bytes[0]);
    return;
  }
  const int at = step * kStepBytes + ThreadIndex() % 4 * 16;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    AsyncCopy16(keys + to + n * (kScoreThreads / 4) * kStepBytes, source.keys[n] + at,
                at < source.bytes[n]);
  }
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_SCORES_TILE_H_
