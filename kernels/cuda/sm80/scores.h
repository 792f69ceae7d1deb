#ifndef ANNULUS_KERNELS_CUDA_SM80_SCORES_H_
#define ANNULUS_KERNELS_CUDA_SM80_SCORES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/cuda/common/page_layout.h"
#include "kernels/cuda/common/stream_handle.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/block_masses.h"
#include "kernels/ops/block_scores.h"

// Launches of what kernels/ops/block_scores.h and block_masses.h describe. All pointers are
// addresses that the device reads; each returns 0 or the number of CUDA's error.
//
// Scores of blocks are a product of two matrices. A row is a row group and a query head: its
// queries one behind the other, by the slot that each meets (MeetingSlot), zeros where there is
// none. A column is a tile of `stride` keys, which lie in a page one behind the other too. So the
// depth is stride * k_stride, and the sum over it is that of the antidiagonal. With stride 1 it is
// one query's score of one key.

namespace annulus::cuda {

// In float32: what one block computes, some row groups of an item against the pages of one block of
// keys.
struct ScoresUnit {
  int32_t item;
  int32_t first_group;
  int32_t group_count;  // at most kScoredGroups
  int32_t page_begin;
  int32_t page_end;
  int32_t block;  // of the item
};
inline constexpr int kScoredGroups = 32;

struct ScoresItemView {
  const float* query;
  int64_t query_stride;
  const int32_t* positions;
  const KvPageView* pages;
  const RowGroup* groups;
  const DilatedBranch* branches;
  int branch_count;
  float* scores;  // [groups][heads][blocks]
  int64_t blocks;
  // By tensor cores.
  int32_t groups_count;
  const int32_t* block_pages;  // [blocks + 1] first page of each block
  int64_t first_row_tile;      // of kv head 0, among all packed tiles; then those of kv head 1
  int32_t row_tiles;           // of one kv head
};

// By tensor cores a block has a tile of packed rows, and tiles of as many columns. A block of keys
// has a power of two of columns, kFewestColumns or more, or some tiles of its own; those beyond its
// keys are empty.
inline constexpr int kScoredRows = 128;
inline constexpr int kScoredColumns = 128;
inline constexpr int kFewestColumns = 4;
inline constexpr int kScoredDepth = 32;  // elements of one step
// Float32 queries with stride 1 become so many numbers of 16 bits, whose sum they are; each is a
// packed row. A tile then has 4 times 10 rows, as its rows are taken up in 4 parts of 32.
inline constexpr int kExactParts = 3;

// What one block computes.
struct ScoresTile {
  int32_t item;
  int32_t row_tile;
  int32_t block_begin;
  int32_t block_seen;  // blocks [block_seen, block_end) hold no key that a row of the tile sees
  int32_t block_end;
};
// A tile of rows to be packed, for all kv heads.
struct PackedTile {
  int32_t item;
  int32_t row_tile;
};

struct BlockScoresArguments {
  PageLayout layout;
  const ScoresUnit* units;
  const ScoresItemView* items;
  int heads;
  int group;  // query heads per kv head
  float scale;
  float soft_cap;
  int stride;  // 1, 8 or 16
};
// In float32.
int LaunchBlockScores(StreamHandle stream, int64_t units, const BlockScoresArguments& arguments);

struct TensorScoresArguments {
  BlockScoresArguments scores;  // without units
  const ScoresTile* tiles;
  const PackedTile* row_tiles;
  int block_tokens;
  int parts;          // of a query: 1 or kExactParts
  int tile_rows;      // of a packed tile, without their parts
  int depth;          // of packed rows: a multiple of kScoredDepth, at least two steps
  int block_columns;  // a power of two up to kScoredColumns, or a multiple of it
  std::byte* packed;  // [tiles][kScoredRows][depth] of 16 bits
  float* factors;     // [tiles][kScoredRows] what sums of a row are multiplied by
};
// Both for pages of all types but float32: rounds queries, then multiplies.
int LaunchPackQueries(StreamHandle stream, int64_t row_tiles,
                      const TensorScoresArguments& arguments);
int LaunchTensorScores(StreamHandle stream, int64_t tiles, const TensorScoresArguments& arguments);

// Where summaries lie: SummaryRuns, of which the device has the addresses.
struct SummaryRunsView {
  float* const* runs;
  int64_t pages;  // of each run
};

struct KeySummaryArguments {
  PageLayout layout;
  const KvPageView* pages;
  SummaryRunsView to;
  int64_t first;  // place of pages[0]
  int64_t least;  // planes; negative: not wanted
  int64_t greatest;
  int64_t mean;
  int parts;  // of a page
  int part_tokens;
};
int LaunchKeySummary(StreamHandle stream, int64_t pages, const KeySummaryArguments& arguments);

struct SummaryScoresArguments {
  int kv_heads;
  int heads;
  int k_dim;
  int parts;  // of a page
  int64_t pages;
  ConstMatrixView query;
  SummaryRunsView from;
  int64_t least;
  int64_t greatest;
  float* scores;
  int run;  // summaries of a block, in shared memory: a power of two up to 32, whole pages
};
// Shared memory of a block with so many least and greatest keys: where summaries begin, then they.
constexpr size_t SummaryBytes(int k_dim, int keys) {
  const size_t width = static_cast<size_t>(k_dim) | 1;  // odd: neighbours lie in different banks
  return 32 * sizeof(const float*) + static_cast<size_t>(keys) * width * sizeof(float);
}
int LaunchSummaryScores(StreamHandle stream, const SummaryScoresArguments& arguments);

struct RowMeansArguments {
  ConstMatrixView input;
  const int32_t* ends;  // [output.rows]
  MatrixView output;
};
int LaunchRowMeans(StreamHandle stream, const RowMeansArguments& arguments);

struct BlockMassesArguments {
  ConstMatrixView scores;
  const float* sums;
  const int32_t* ends;  // [masses.rows / kv_heads]
  int heads;
  int kv_heads;
  MatrixView masses;
};
int LaunchBlockMasses(StreamHandle stream, const BlockMassesArguments& arguments);
int LaunchScoreSums(StreamHandle stream, const ScoreSumsParams& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_SCORES_H_
