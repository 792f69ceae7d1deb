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

// One item of a plan, as seen by one rank of its ring: which rank computes which rows, and in which
// order rows meet the keys of other ranks (Ring Attention, Liu et al. 2023).
//
// In ring step s, rows of ring index i meet the keys of index (i xor s). So two ranks visit each
// other in the same step. Since PlaceOnRing assigns subtrees of the merging tree to ring indices
// from left to right, tree neighbours meet first, and a row keeps at most log2(k) states. If the
// degree k is not a power of two, some steps visit nobody.
struct RingItem {
  std::vector<int32_t> ring;  // ranks in ring order
  int index = 0;              // of this rank
  RingMode mode = RingMode::kPassKv;
  bool sampled = false;
  int32_t begin = 0;  // positions [begin, end) of the item
  int32_t end = 0;
  // [ring index] positions of the rows it runs, ascending.
  std::vector<std::vector<int32_t>> positions;
  int sampled_anchor = 0;  // sampled items: the ring index that holds their page
  int64_t first_row = 0;   // index of this rank's first row of the item among its rows of the step
  // Set by RingAttention::Reserve: first rows in the step's `served` and `kept` states (StateRows).
  int64_t state_offset = 0;
  int64_t kept_offset = 0;
  // Set by RingAttention::Note: the most subtrees that this rank has, and the most states that an
  // own row keeps at a time, in any cache group.
  int states = 1;
  int kept_slots = 1;
  // Chosen key blocks for the blocks of [begin, end). Null: attend all that the mask allows.
  std::shared_ptr<const BlockPattern> pattern;
  // If not empty, rows attend by these branches; `pattern` then only says which blocks they need.
  std::vector<DilatedBranch> branches;

  int degree() const { return static_cast<int>(ring.size()); }
  int64_t own_rows() const { return static_cast<int64_t>(positions[index].size()); }
  // Number of ring steps.
  int steps() const { return static_cast<int>(std::bit_ceil(static_cast<uint32_t>(degree()))); }
  // The ring index that rows run at `runner` visit in ring step s. If it is `degree` or more, they
  // visit nobody.
  static int Visits(int runner, int s) { return runner ^ s; }
  // The ring index of `rank`; -1 if it is not in the ring.
  int index_of(int rank) const;
  // The lowest ring index that runs rows; for a sampled item this is its home.
  int home_index() const;
  // Whether the home's message to `holder` carries the sampled row's key and value, because
  // `holder` has the row's page.
  bool carries_row(int holder) const { return sampled && holder == sampled_anchor; }
  // Among the states that this rank computes for other ranks' rows: the first row of the n-th state
  // for the rows of ring index `runner`. They are ordered by ring index.
  int64_t served_offset(int runner, int n) const;
};

// A page of some rank, limited to the tokens that an item may see.
struct ShardPage {
  int32_t page = 0;
  int32_t first_position = 0;
  int32_t tokens = 0;
};

// The pages in `entries` that are on `rank`, begin before `end`, and are visible to at least one of
// the rows at `positions` (ascending). A page is visible to a row if its first position is at most
// the row's; with window > 0, its last position must also be above row - window; and with a
// pattern, the row's block must have chosen the page's block for at least one head. Both ends of an
// exchange call this on the same table, so they agree without negotiation, and blocks that nobody
// chose are not sent.
std::vector<ShardPage> VisiblePages(std::span<const PageEntry> entries, int32_t rank,
                                    std::span<const int32_t> positions, int32_t end, int32_t window,
                                    int32_t page_tokens, const BlockPattern* pattern = nullptr);

// Those of `pages` whose block was chosen by the block of at least one row, for at least one head.
std::vector<ShardPage> ChosenPages(const BlockPattern& pattern, std::span<const int32_t> positions,
                                   std::span<const ShardPage> pages);

// Owning storage for BlockLists.
struct PageLists {
  bool full = true;
  int head_groups = 1;
  std::vector<int32_t> query_block_rows;
  std::vector<int32_t> offsets;
  std::vector<int32_t> pages;

  BlockLists view() const { return {full, head_groups, query_block_rows, offsets, pages}; }
};

// Converts the pattern for kernels: which of `pages` (ascending) the rows at `positions`
// (ascending) attend.
PageLists MakePageLists(const BlockPattern& pattern, std::span<const int32_t> positions,
                        std::span<const ShardPage> pages);

// What one item exchanges in the layers of one cache group.
struct ItemShards {
  std::vector<std::vector<ShardPage>> held_by;  // [ring index j] j's pages that own rows see
  std::vector<std::vector<ShardPage>> seen_by;  // [ring index i] own pages that i's rows see
  std::vector<PageLists> held_lists;           // [ring index j] which of held_by[j] own rows attend
  std::vector<PageLists> seen_lists;           // [ring index i] which of seen_by[i] i's rows attend
  std::vector<std::vector<Subtree>> subtrees;  // [ring index] see SubtreesOf
};

// If the model has a `window`, attention is exact: ignores the item's pattern and branches.
ItemShards BuildItemShards(const RingItem& item, std::span<const PageEntry> entries, int32_t window,
                           int32_t page_tokens, int shards);

// All subtrees that an item's own rows will merge: those of every ring index whose pages they see,
// in the order of visits.
std::vector<Subtree> SubtreesSeen(const RingItem& item, const ItemShards& shards);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_SHARD_MAP_H_
