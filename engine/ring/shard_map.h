#ifndef ANNULUS_ENGINE_RING_SHARD_MAP_H_
#define ANNULUS_ENGINE_RING_SHARD_MAP_H_

#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/ring/subtrees.h"
#include "engine/sparse/block_pattern.h"
#include "engine/state/step_plan.h"
#include "kernels/ops/attention.h"

namespace annulus {

// One item of a plan as one rank of its ring sees it: who computes which rows, and in which order
// rows meet the keys of the others (Ring Attention, Liu et al. 2023).
//
// Rows of ring index i visit index i xor s at ring step s. So two ranks visit each other in the
// same step, and as PlaceOnRing gives ring indices the subtrees of the merging tree from left to
// right, neighbours in the tree come together: log2(k) states of a row are kept at most. Where k is
// no power of two some steps visit nobody.
struct RingItem {
  std::vector<int32_t> ring;  // ranks in ring order
  int index = 0;              // of this rank
  RingMode mode = RingMode::kPassKv;
  bool sampled = false;
  int32_t begin = 0;  // positions of the item
  int32_t end = 0;
  std::vector<std::vector<int32_t>> positions;  // [ring index] of the rows run there, ascending
  int sampled_anchor = 0;                       // for a sampled item: index holding its page
  int64_t first_row = 0;                        // of this rank's rows among all rows of the step
  int64_t state_offset = 0;                     // reserved by RingAttention: see there
  int64_t kept_offset = 0;                      // likewise
  int states = 1;      // most subtrees of this rank, over all cache groups: see RingAttention::Note
  int kept_slots = 1;  // most states of own rows that are kept at a time, likewise
  // Key blocks of the blocks of [begin, end); null: rows attend everything that the mask allows.
  std::shared_ptr<const BlockPattern> pattern;
  // Where there are any, rows attend by them; the pattern only says what they need.
  std::vector<DilatedBranch> branches;

  int degree() const { return static_cast<int>(ring.size()); }
  int64_t own_rows() const { return static_cast<int64_t>(positions[index].size()); }
  // Ring steps of the item.
  int steps() const { return static_cast<int>(std::bit_ceil(static_cast<uint32_t>(degree()))); }
  // The index that rows run at `runner` visit at ring step s; it may not be there: `degree` or
  // more.
  static int Visits(int runner, int s) { return runner ^ s; }
  // The ring index of a rank; -1: it is not of the ring.
  int index_of(int rank) const;
  // The index that runs the first of the rows; of a sampled item its home.
  int home_index() const;
  // The home's message to the holder of a sampled row's page carries the row's key and value.
  bool carries_row(int holder) const { return sampled && holder == sampled_anchor; }
  // First row of the n-th state for `runner` among those attended for others: peers in ring order,
  // this rank left out.
  int64_t served_offset(int runner, int n) const;
};

// A page of some rank, with the tokens of it that an item may see.
struct ShardPage {
  int32_t page = 0;
  int32_t first_position = 0;
  int32_t tokens = 0;
};

// The pages of `entries` that lie on `rank`, begin before `end`, and are seen by at least one of
// the rows at `positions` (ascending): page start <= row, and row - window < page end when window >
// 0, and with a pattern also the page's block is chosen by the row's block for some head. Both ends
// of an exchange call this on the same table, so they agree without a word, and a block that nobody
// chose does not travel.
std::vector<ShardPage> VisiblePages(std::span<const PageEntry> entries, int32_t rank,
                                    std::span<const int32_t> positions, int32_t end, int32_t window,
                                    int32_t page_tokens, const BlockPattern* pattern = nullptr);

// Those of `pages` whose block some row's block chose, for some head.
std::vector<ShardPage> ChosenPages(const BlockPattern& pattern, std::span<const int32_t> positions,
                                   std::span<const ShardPage> pages);

// BlockLists that own their arrays.
struct PageLists {
  bool full = true;
  int head_groups = 1;
  std::vector<int32_t> query_block_rows;
  std::vector<int32_t> offsets;
  std::vector<int32_t> pages;

  BlockLists view() const { return {full, head_groups, query_block_rows, offsets, pages}; }
};

// The pattern in a kernel's terms: which of `pages` (ascending) the rows at `positions` (ascending)
// attend.
PageLists MakePageLists(const BlockPattern& pattern, std::span<const int32_t> positions,
                        std::span<const ShardPage> pages);

// What one item exchanges in the layers of one cache group.
struct ItemShards {
  std::vector<std::vector<ShardPage>> held_by;  // [ring index j] pages of j that own rows see
  std::vector<std::vector<ShardPage>> seen_by;  // [ring index i] own pages that rows of i see
  std::vector<PageLists> held_lists;            // [ring index j] own rows in held_by[j]
  std::vector<PageLists> seen_lists;            // [ring index i] rows of i in seen_by[i]
  std::vector<std::vector<Subtree>> subtrees;   // [ring index] see SubtreesOf
};

// A window of the model is exact: it leaves the item's pattern and branches out.
ItemShards BuildItemShards(const RingItem& item, std::span<const PageEntry> entries, int32_t window,
                           int32_t page_tokens, int shards);

// What the own rows of an item will merge: the subtrees of all indices whose pages they see, in the
// order of visits.
std::vector<Subtree> SubtreesSeen(const RingItem& item, const ItemShards& shards);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_SHARD_MAP_H_
