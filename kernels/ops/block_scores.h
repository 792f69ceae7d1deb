#ifndef ANNULUS_KERNELS_OPS_BLOCK_SCORES_H_
#define ANNULUS_KERNELS_OPS_BLOCK_SCORES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/tensor_view.h"
#include "kernels/ops/attention.h"

namespace annulus {

// What attention would give to whole blocks of keys: estimated, or exactly.

// The rows of one sequence against some of its pages, scored by block.
struct BlockScoresItem {
  ConstMatrixView query;               // [rows, heads * k_dim], already rotated
  std::span<const int32_t> positions;  // [rows], ascending
  std::span<const KvPageView> pages;   // ascending first_position; gaps are allowed
  // With stride 1: keys that no branch keeps for a row and head are left out. None: all count.
  std::span<const DilatedBranch> branches;
  float* scores = nullptr;  // [row groups][heads][blocks]
};

// Positions are cut into tiles of `stride`. A row group is the rows of one tile: the rows of an
// item in runs of equal position / stride. A block is `block_tokens` positions; an item's blocks
// are those that its pages lie in, ascending.
//
// stride 1: a row group is one row, and its score of a block is the exact log of the sum of
// exp(score) over the block's keys that the row sees (j <= position), by the rules of Attention
// without a window.
//
// stride 8 or 16 (XAttention, arXiv 2503.16428, section 2.1): a tile of queries meets a tile of
// keys along an antidiagonal: the mean of scale * (query r . key t) over the pairs that meet
// (MeetingSlot) and are there (rows given, keys inside the pages' tokens), then the soft cap. The
// score of a block is the log of the sum of exp(mean) over its tiles up to the group's own.
//
// Nothing seen: -infinity. Queries and keys may be rounded as the table's Attention rounds them, so
// that with stride 1 the score is what this attention gives the block; scores are good to 1e-5
// beside that and beside what float32 loses in a sum of stride * k_dim products. FLOPs: 2 * heads *
// k_dim / stride for each (row, key) pair of the tiles visited. Bytes: each page's keys once for
// each kv head and 32 row groups of its query heads; 4 for each score.
//
// Tables of GPUs multiply by tensor cores where pages are not float32. Keys of bf16, f16 and fp8
// are exact there, and int8 with stride 1. With stride 8 and 16 queries are rounded as by
// Attention, and int8's keys to bf16; with stride 1 queries are not rounded, at 3 times the FLOPs.
// Bytes: keys from memory once for all rows of an item; from the cache once for 128 pairs of a row
// group and a query head (stride 1: 40).
struct BlockScoresParams {
  KvPageShape shape;
  int heads = 0;  // multiple of shape.kv_heads
  float scale = 1;
  float soft_cap = 0;
  int32_t block_tokens = 64;  // multiple of shape.page_tokens
  int32_t stride = 1;         // 1, 8 or 16
  std::span<const BlockScoresItem> items;
};

// The slot of every tile of keys that the row at `position` meets. In the paper r + t = stride - 1,
// and all pairs have odd distances; here tiles of queries in turn have those and the even ones, so
// that no distance is overlooked by all.
constexpr int32_t MeetingSlot(int32_t position, int32_t stride) {
  const int32_t even = position / stride % 2;
  return (2 * stride - 1 - even - position % stride) % stride;
}

// The rows of an item that lie in one tile of positions.
struct RowGroup {
  int32_t first;
  int32_t count;
  int32_t tile;
  uint32_t slots;  // bit t: a row meets slot t
};
std::vector<RowGroup> RowGroups(std::span<const int32_t> positions, int32_t stride);

// Sizes of an item's scores.
int64_t CountRowGroups(std::span<const int32_t> positions, int32_t stride);
int64_t CountBlocks(std::span<const KvPageView> pages, int32_t block_tokens);

// Where the summaries of pages lie, in memory that ops reach: those of `pages` pages one behind the
// other in each run. A run has planes, one for each kind of summary: [pages, parts, kv_heads *
// k_dim], each beginning a number of elements behind the run.
struct SummaryRuns {
  std::span<float* const> runs;
  int64_t pages = 0;  // of each run

  // Where page `page` begins, in a plane that begins `plane` elements behind its run and has `size`
  // elements for each page.
  float* At(int64_t page, int64_t plane, int64_t size) const {
    return runs[static_cast<size_t>(page / pages)] + plane + page % pages * size;
  }
};

// The least, the greatest and the mean key of each part of each page, element by element. A page
// has one part, its first `tokens` slots, tokens >= 1; or, where all pages are complete, several.
struct KeySummaryParams {
  KvPageShape shape;
  std::span<const KvPageView> pages;
  int parts = 1;  // of page_tokens / parts slots, a multiple of 16
  SummaryRuns to;
  int64_t first = 0;  // the place of pages[0] among those of all runs; the others follow
  // Where a run's plane begins; negative: not wanted.
  int64_t least = -1;
  int64_t greatest = -1;
  int64_t mean = -1;

  int part_tokens() const { return shape.page_tokens / parts; }
};

// scores[row][head][page] = max over the page's parts of the sum over d of max(query_d * least_d,
// query_d * greatest_d), of the head's kv head: no key of the page scores higher (Quest, arXiv
// 2406.10774, section 3.2). With the mean for both it is the score of the mean. Not scaled. Float32
// throughout: a bound that was rounded would be none. FLOPs: 4 * k_dim for each part, row and head.
// Bytes on GPUs: least and greatest once for all rows and heads (once, not twice, where both are
// the mean), queries twice, 4 for each score.
struct SummaryScoresParams {
  int kv_heads = 0;
  int heads = 0;  // multiple of kv_heads
  int k_dim = 0;
  int64_t pages = 0;      // the first of all runs
  int parts = 1;          // of a page: a power of two, at most kMostParts
  ConstMatrixView query;  // [rows, heads * k_dim]
  SummaryRuns from;
  int64_t least = 0;  // as in KeySummaryParams
  int64_t greatest = 0;
  float* scores = nullptr;  // [rows, heads, pages]
};
inline constexpr int kMostParts = 16;

// output[i, :] = the mean of rows [ends[i - 1], ends[i]) of the input, the first run from row 0. A
// run has one row or more. Sums are float32, row after row, so all tables give the same bits.
// Bytes: input and output once.
struct RowMeansParams {
  ConstMatrixView input;
  std::span<const int32_t> ends;  // [runs], ascending, at most input.rows
  MatrixView output;              // [runs, cols]; must not overlap input
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_BLOCK_SCORES_H_
