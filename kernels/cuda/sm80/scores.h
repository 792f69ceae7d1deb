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

// Launches of the ops of kernels/ops/block_scores.h and block_masses.h. All pointers are addresses
// that the device can read. Each function returns 0 or CUDA's error number.
//
// Block scores are computed as a matrix product of depth stride * k_stride. A row stands for a row
// group and a query head. It has `stride` places: place t has the query whose MeetingSlot is t, or
// zeros if there is none. A column is a tile of `stride` keys, contiguous in a page, so its place t
// is the key in slot t. The sum over the depth is therefore the sum over an antidiagonal; with
// stride 1 it is one query's score of one key.

namespace annulus::cuda {

// The work of one thread block in the float32 version: some row groups of an item against the pages
// of one block of keys.
struct ScoresUnit {
  int32_t item;
  int32_t first_group;
  int32_t group_count;  // at most kScoredGroups
  int32_t page_begin;
  int32_t page_end;
  int32_t block;  // within the item
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
  // Used with tensor cores only.
  int32_t groups_count;
  const int32_t* block_pages;  // [blocks + 1] first page of each block
  int64_t first_row_tile;      // index of kv head 0's first packed tile; other kv heads follow
  int32_t row_tiles;           // per kv head
};

// With tensor cores, a thread block takes one tile of kScoredRows packed rows and goes through
// tiles of kScoredColumns columns. The columns of a block of keys are padded with empty ones to a
// power of two from kFewestColumns to kScoredColumns, or to a multiple of kScoredColumns.
inline constexpr int kScoredRows = 128;
inline constexpr int kScoredColumns = 128;
inline constexpr int kFewestColumns = 4;
inline constexpr int kScoredDepth = 32;  // elements per step
// With stride 1, a float32 query is split into this many 16-bit numbers that add up to it; each is
// a packed row. Rows are processed in 4 passes of 32, so a pass holds 10 queries and 2 unused rows.
inline constexpr int kExactParts = 3;

// The work of one thread block in the tensor core version.
struct ScoresTile {
  int32_t item;
  int32_t row_tile;
  int32_t block_begin;
  int32_t block_seen;  // no row of the tile sees a key of blocks [block_seen, block_end)
  int32_t block_end;
};
// A tile of rows to pack, for all kv heads.
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
// Float32 version.
int LaunchBlockScores(StreamHandle stream, int64_t units, const BlockScoresArguments& arguments);

struct TensorScoresArguments {
  BlockScoresArguments scores;  // without units
  const ScoresTile* tiles;
  const PackedTile* row_tiles;
  int block_tokens;
  int parts;          // per query: 1 or kExactParts
  int tile_rows;      // queries in a packed tile, not counting their parts
  int depth;          // of packed rows: a multiple of kScoredDepth, at least two steps
  int block_columns;  // a power of two up to kScoredColumns, or a multiple of it
  std::byte* packed;  // [tiles][kScoredRows][depth], 16 bits each
  float* factors;     // [tiles][kScoredRows], the factors of the rows' sums
};
// Tensor core version, for pages of all types except float32: first pack the rounded queries, then
// multiply.
int LaunchPackQueries(StreamHandle stream, int64_t row_tiles,
                      const TensorScoresArguments& arguments);
int LaunchTensorScores(StreamHandle stream, int64_t tiles, const TensorScoresArguments& arguments);

// SummaryRuns with device addresses.
struct SummaryRunsView {
  float* const* runs;
  int64_t pages;  // per run
};

struct KeySummaryArguments {
  PageLayout layout;
  const KvPageView* pages;
  SummaryRunsView to;
  int64_t first;  // index of pages[0] within `to`
  int64_t least;  // offsets of the planes; negative: not computed
  int64_t greatest;
  int64_t mean;
  int parts;  // per page
  int part_tokens;
};
int LaunchKeySummary(StreamHandle stream, int64_t pages, const KeySummaryArguments& arguments);

struct SummaryScoresArguments {
  int kv_heads;
  int heads;
  int k_dim;
  int parts;  // per page
  int64_t pages;
  ConstMatrixView query;
  SummaryRunsView from;
  int64_t least;
  int64_t greatest;
  float* scores;
  int run;  // summaries per thread block, in shared memory: a power of two up to 32, whole pages
};
// Shared memory for `keys` least and greatest keys: first the addresses of the summaries, then the
// keys.
constexpr size_t SummaryBytes(int k_dim, int keys) {
  // odd, so that neighbours lie in different banks
  const size_t width = static_cast<size_t>(k_dim) | 1;
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
