#ifndef ANNULUS_ENGINE_SCHEDULER_PLACEMENT_H_
#define ANNULUS_ENGINE_SCHEDULER_PLACEMENT_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/api/options.h"
#include "kernels/ops/shards.h"

namespace annulus {

// What a row, and a pair of a row and a key, cost in a layer, relative to other layers.
struct LayerCost {
  double row = 0;
  double pair = 0;
};

// The constants of a running engine that planning and admission share.
struct PlanLimits {
  int ranks = 1;
  int shards = ShardsFor(1);                      // virtual shards, at least ShardsFor(ranks)
  int page_tokens = EngineOptions().page_tokens;  // a ring spreads a sequence in units of a page
  int prefill_rows_per_rank = 2048;  // most prompt rows per rank and step; at least a page
  int sampled_rows_per_rank = 64;    // most sampled rows per rank and step; at least 1
  int draft_rows_per_rank = 0;       // most rows of guessed tokens, in addition
  int layers = 1;                    // of the model
  // [layer]. Empty: all are alike, but the last one takes no time, since of rows without logits it
  // needs only keys and values.
  std::vector<LayerCost> layer_costs;
  double pairs_in_rows = 0;  // of the model: see StepCostModel
  // Most prompt rows per rank of a chunk that is suspended between layers; at least a page. 0: no
  // chunk is suspended.
  int suspended_rows_per_rank = 0;
  int tokens_per_rank =
      EngineOptions().tokens_per_rank;  // a sequence gets one more rank for each of these tokens
  // [cache group] 0: full attention; otherwise the window in tokens.
  std::vector<int32_t> group_windows;
  // How many checkpoints a sequence may have at a time besides PageDemand::checkpoints: see
  // PageTier.
  int passing_checkpoints = 0;

  bool has_windows() const {
    return std::any_of(group_windows.begin(), group_windows.end(),
                       [](int32_t window) { return window > 0; });
  }
  int rows_per_rank() const {
    return prefill_rows_per_rank + sampled_rows_per_rank + draft_rows_per_rank;
  }
};

// The ring index on which to place a new page. A rank owns whole shards (kernels/ops/shards.h), so
// the pages of one shard never lie on two ranks. If `degree` divides `shards`, all pages with the
// same p mod degree go to the same index. `degree` must be at most `shards`.
inline int PlaceOnRing(int32_t first_position, int page_tokens, int degree, int shards) {
  return RingIndexOfLeaf(LeafOfPage(first_position / page_tokens, shards), degree, shards);
}

// Tokens in a whole round of a ring, in which every rank gets its share.
inline int32_t RoundTokens(int degree, const PlanLimits& limits) {
  return limits.page_tokens * (limits.shards % degree == 0 ? degree : limits.shards);
}

// The positions that a new sequence will fill.
struct PageDemand {
  int64_t tokens = 0;       // the most positions it can grow to
  int32_t cached = 0;       // how many of `tokens` it begins with in cached pages; whole pages
  int32_t checkpoints = 0;  // how many prefixes' window pages are kept for other requests
  // How many pages one summary page covers (PagesSummarised); 0: no summaries.
  int64_t summarised = 0;
  // [rank] how many cached pages of a full group lie there; empty: nothing is cached.
  std::vector<int32_t> cached_on = {};
  // How many of `tokens` get their pages at the beginning; the others get theirs as the sequence
  // grows (scheduler/growth.h). 0: all. Must be 0 for a sequence with summaries.
  int64_t reserved = 0;
  // Over how many ranks the sequence may be spread; 0: over all.
  int32_t most_ranks = 0;
  // [rank] If `reserved` > 0: how many new pages the sequence could get if no other sequence ran.
  std::vector<int32_t> alone = {};
};

// New key/value pages that each ring index needs, over all cache groups, in a ring of `degree`. A
// full group keeps everything. A window group needs pages for its window, for the chunk being
// computed, and one for alignment at each end. Each checkpoint, also a passing one, keeps the pages
// of one window for others.
std::vector<int64_t> PagesNeeded(const PageDemand& demand, int degree, const PlanLimits& limits);

// Summary pages that each ring index needs for one full group. Covers all complete pages that the
// sequence can have there, also cached ones, since no cache keeps summaries.
std::vector<int64_t> SummaryPagesNeeded(const PageDemand& demand, const std::vector<int32_t>& ring,
                                        const PlanLimits& limits);

// The sum of PagesNeeded and SummaryPagesNeeded over the largest useful ring.
int64_t AllPagesNeeded(const PageDemand& demand, const PlanLimits& limits);

// The ranks over which to spread a new sequence.
struct RingChoice {
  std::vector<int32_t> ring;   // ascending ranks
  std::vector<int32_t> pages;  // [ring index], from PagesNeeded
  std::vector<int32_t> most;   // [ring index] the same for all tokens that it can grow to
  // [ring index] from SummaryPagesNeeded, for each full group. The choice fits both kinds of pages.
  std::vector<int32_t> summary_pages;
  bool summarises = false;  // whether summaries are kept
};

// Chooses the ring of a new sequence:
// - It must fit into `free_pages` ([rank]); a negative number keeps the rank out of every ring,
// even
//   of one that needs no page there. A sequence that reserves only a part of its tokens must
//   fit into `free_pages` with that part, and into PageDemand::alone with all of them.
// - The smallest degree at which no rank has more than about tokens_per_rank tokens is tried first,
//   then larger ones. Rings whose fullest rank exceeds the mean by more than a tenth come last;
//   degrees that are not useful (IsUsefulDegree) are skipped.
// - Of each degree, the ranks with the fewest `running` sequences are tried, of those that
//   LeavesRoom, and then the ranks with the most free pages.
// - `fixed`: if not empty, the only ring to try, because the cached pages are on it.
// - `running`: [rank]. Empty: no rank is slower because of what runs there.
// Returns nothing if no ring fits.
std::optional<RingChoice> ChooseRing(const PageDemand& demand,
                                     const std::vector<int32_t>& free_pages,
                                     const std::vector<int32_t>& fixed, const PlanLimits& limits,
                                     const std::vector<int>& running = {});

// Whether every rank of the ring has at least half as many `pages` ([rank]) as any rank: if
// sequences gather on it, all ranks keep room for long ones.
bool LeavesRoom(const std::vector<int32_t>& ring, const std::vector<int32_t>& pages);

// The rank that a new sequence should join, where ranks share a memory and processors: each rank
// with rows to compute reads all weights, so a step with many sequences on one rank is faster than
// one with a few on each. That is the rank where most sequences have their home, of those that
// LeavesRoom. `homes`, `free_pages`: [rank]. Nothing if no such rank has the pages free, or the
// sequence is longer than one rank should hold (tokens_per_rank): such are spread.
std::optional<int32_t> RankToJoin(const PageDemand& demand, const std::vector<int>& homes,
                                  const std::vector<int32_t>& free_pages, const PlanLimits& limits);

// A measure to compare rings by: how many tokens the busiest rank computes until it has computed
// its part of `tokens`, if it takes turns with its `running` sequences. `running`: [rank].
double RestOfWork(int64_t tokens, const std::vector<int32_t>& ring, const std::vector<int>& running,
                  const PlanLimits& limits);

// The same for all tokens of the demand, over the least busy ring of the degree that ChooseRing
// tries first.
double FreshWork(const PageDemand& demand, const std::vector<int>& running,
                 const PlanLimits& limits);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_PLACEMENT_H_
