#ifndef ANNULUS_KERNELS_OPS_BLOCK_SCORES_H_
#define ANNULUS_KERNELS_OPS_BLOCK_SCORES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/tensor_view.h"
#include "kernels/ops/attention.h"

namespace annulus {

// Ops that score blocks of keys, so that sparse policies can choose among them. block_scores gives
// the log of a block's attention before it is normalised, exact or estimated; block_masses.h turns
// that into shares. summary_scores is cheaper: it reads only summaries of the pages.

// Rows of one sequence and the pages whose blocks are scored for them.
struct BlockScoresItem {
  ConstMatrixView query;               // [rows, heads * k_dim], already rotated
  std::span<const int32_t> positions;  // [rows], ascending
  std::span<const KvPageView> pages;   // ascending first_position; gaps are allowed
  // With stride 1, keys that no branch keeps for a row and head are left out. If empty, all keys
  // count.
  std::span<const DilatedBranch> branches;
  float* scores = nullptr;  // [row groups][heads][blocks]
};

// Positions are cut into tiles of `stride` tokens. A row group is all rows of an item that lie in
// one tile (equal position / stride). A block is `block_tokens` positions; an item's blocks are
// those that contain any of its pages, in ascending order.
//
// stride 1: a row group is one row. Its score of a block is the exact log of the sum of exp(score)
// over the block's keys that the row sees (j <= position), by the rules of AttentionParams without
// a window.
//
// stride 8 or 16 (XAttention, arXiv 2503.16428, section 2.1): of two tiles, only the (query, key)
// pairs on one antidiagonal are multiplied: see MeetingSlot. The score of two tiles is the mean of
// scale * (query . key) over those pairs whose row is in the item and whose key is in a page,
// followed by the soft cap. The score of a block is the log of the sum of exp(that mean) over the
// block's tiles up to the group's own.
//
// If the group sees nothing of a block, its score is -infinity.
//
// Precision. A table may round queries and keys just as its attention does, so that the exact
// scores (stride 1) are what this table's attention gives the block. Apart from that, the error of
// a score is 1e-5 plus the rounding of a float32 sum of stride * k_dim products. GPU tables use
// tensor cores unless pages are float32. Keys of bf16, f16 and fp8 are exact there. With stride 1
// int8 keys are exact too, and queries are not rounded, at 3 times the FLOPs. With stride 8 or 16
// int8 keys are rounded to bf16, and queries as in attention.
//
// FLOPs: 2 * heads * k_dim / stride for each (row, key) pair of the tiles visited. Bytes: 4 per
// score, and a page's keys once for each kv head and each 32 row groups of its query heads. With
// tensor cores: the keys once from memory for all rows of an item, and once from the cache for each
// 128 pairs of a row group and a query head (40 pairs with stride 1).
struct BlockScoresParams {
  KvPageShape shape;
  int heads = 0;  // multiple of shape.kv_heads
  float scale = 1;
  float soft_cap = 0;
  int32_t block_tokens = 64;  // multiple of shape.page_tokens
  int32_t stride = 1;         // 1, 8 or 16
  std::span<const BlockScoresItem> items;
};

// The slot, in every tile of keys, that the row at `position` is multiplied with. In the paper r +
// t = stride - 1 for slot r of the query tile and slot t of the key tile, so all pairs have odd
// distances. Here every second tile of queries uses even distances instead, so that no distance is
// missed by all tiles.
constexpr int32_t MeetingSlot(int32_t position, int32_t stride) {
  const int32_t even = position / stride % 2;
  return (2 * stride - 1 - even - position % stride) % stride;
}

// The rows of an item that lie in one tile of positions.
struct RowGroup {
  int32_t first;
  int32_t count;
  int32_t tile;
  uint32_t slots;  // bit t: some row of the group meets slot t
};
std::vector<RowGroup> RowGroups(std::span<const int32_t> positions, int32_t stride);

// Dimensions of BlockScoresItem::scores.
int64_t CountRowGroups(std::span<const int32_t> positions, int32_t stride);
int64_t CountBlocks(std::span<const KvPageView> pages, int32_t block_tokens);

// Where page summaries lie in device memory. A run is one block of memory for the summaries of
// `pages` consecutive pages. It holds a plane for each kind of summary (least, greatest, mean). A
// plane is [pages, parts, kv_heads * k_dim] floats, at the same offset in every run.
struct SummaryRuns {
  std::span<float* const> runs;
  int64_t pages = 0;  // per run

  // The summary of page `page`, counted over all runs. `plane`: where the plane begins, in elements
  // from the run's start. `size`: the plane's elements per page.
  float* At(int64_t page, int64_t plane, int64_t size) const {
    return runs[static_cast<size_t>(page / pages)] + plane + page % pages * size;
  }
};

// Computes the elementwise least, greatest and mean key of each part of each page. With several
// parts, every page must be complete. With one, a page may be partial: its summary covers its first
// `tokens` >= 1 slots.
struct KeySummaryParams {
  KvPageShape shape;
  std::span<const KvPageView> pages;
  int parts = 1;  // per page, each of page_tokens / parts slots, a multiple of 16
  SummaryRuns to;
  int64_t first = 0;  // index of pages[0] within `to`; the other pages follow it
  // Offset of each plane within a run, in elements; negative: that summary is not computed.
  int64_t least = -1;
  int64_t greatest = -1;
  int64_t mean = -1;

  int part_tokens() const { return shape.page_tokens / parts; }
};

// scores[row][head][page] = max over the page's parts of the sum over d of max(query_d * least_d,
// query_d * greatest_d), with the summaries of the head's kv head. No key of the page scores higher
// (Quest, arXiv 2406.10774, section 3.2). If `least` and `greatest` both name the plane of means,
// it is the score of the mean key. Not scaled. All float32: a rounded bound is no bound. FLOPs: 4 *
// k_dim for each part, row and head. Bytes on GPUs: both planes once for all rows and heads (one
// plane if both are the mean), queries twice, 4 per score.
struct SummaryScoresParams {
  int kv_heads = 0;
  int heads = 0;  // multiple of kv_heads
  int k_dim = 0;
  int64_t pages = 0;      // how many to score: the first ones of `from`, across its runs
  int parts = 1;          // per page: a power of two, at most kMostParts
  ConstMatrixView query;  // [rows, heads * k_dim]
  SummaryRuns from;
  int64_t least = 0;  // as in KeySummaryParams
  int64_t greatest = 0;
  float* scores = nullptr;  // [rows, heads, pages]
};
inline constexpr int kMostParts = 16;

// output[i, :] = the mean of the input's rows [ends[i - 1], ends[i]); the first run starts at row
// 0. Every run has at least one row. Rows are added one after the other in float32, so all tables
// give the same bits. Bytes: input and output once.
struct RowMeansParams {
  ConstMatrixView input;
  std::span<const int32_t> ends;  // [runs], ascending, at most input.rows
  MatrixView output;              // [runs, cols]; must not overlap input
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_BLOCK_SCORES_H_
