#ifndef ANNULUS_ENGINE_SCHEDULER_PLACEMENT_H_
#define ANNULUS_ENGINE_SCHEDULER_PLACEMENT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/ops/shards.h"

namespace annulus {

// The fixed numbers of a running engine that planning and admission share.
struct PlanLimits {
  int ranks = 1;
  int shards = ShardsFor(1);           // virtual shards, ShardsFor(ranks) or more
  int page_tokens = 64;                // also the stripe unit
  int prefill_rows_per_rank = 2048;    // most prompt rows of one rank in a step, at least a page
  int sampled_rows_per_rank = 64;      // most rows to be sampled of one rank in a step, at least 1
  int draft_rows_per_rank = 0;         // most rows of guessed tokens besides
  int tokens_per_rank = 2048;          // a sequence takes one more rank for each of these
  std::vector<int32_t> group_windows;  // per cache group: 0 = full, else the window

  int rows_per_rank() const {
    return prefill_rows_per_rank + sampled_rows_per_rank + draft_rows_per_rank;
  }
};

// Index into a sequence's ring of the rank that a new page is placed on. A rank has whole shards
// (kernels/ops/shards.h), so no shard's pages ever lie on two ranks: in a ring that divides the
// shards, page p is on the index that has the residue p mod degree. `degree`: at most `shards`.
inline int PlaceOnRing(int32_t first_position, int page_tokens, int degree, int shards) {
  return RingIndexOfLeaf(LeafOfPage(first_position / page_tokens, shards), degree, shards);
}

// Tokens of whole rounds of a ring: in each, every rank has its share.
inline int32_t RoundTokens(int degree, const PlanLimits& limits) {
  return limits.page_tokens * (limits.shards % degree == 0 ? degree : limits.shards);
}

// What a new sequence will fill.
struct PageDemand {
  int64_t tokens = 0;       // positions that it can grow to
  int32_t cached = 0;       // of them at the beginning, in pages that exist; whole pages
  int32_t checkpoints = 0;  // times that the pages of its windows are kept for others
  // Pages whose summaries fill one more (PagesSummarised); 0: no summaries are kept.
  int64_t summarised = 0;
  // [rank] where the cached pages of a full group lie; empty: nothing is cached.
  std::vector<int32_t> cached_on = {};
};

// New pages for keys and values that each ring index needs, all cache groups together, over a ring
// of `degree`. A full group keeps everything. A window group keeps the window, the chunk being
// computed and one page of alignment at each end, and at each checkpoint gives the pages of one
// window away.
std::vector<int64_t> PagesNeeded(const PageDemand& demand, int degree, const PlanLimits& limits);

// Pages for summaries that each ring index needs, of one full group: for all complete pages that
// the sequence can have there, cached ones too, whose earlier summaries have gone.
std::vector<int64_t> SummaryPagesNeeded(const PageDemand& demand, const std::vector<int32_t>& ring,
                                        const PlanLimits& limits);

// What both add up to over the largest useful ring with nothing cached.
int64_t AllPagesNeeded(const PageDemand& demand, const PlanLimits& limits);

// The ranks that a new sequence is spread over.
struct RingChoice {
  std::vector<int32_t> ring;   // ascending ranks
  std::vector<int32_t> pages;  // [ring index], from PagesNeeded
  // [ring index], from SummaryPagesNeeded: as many for each full group. Both together fit.
  std::vector<int32_t> summary_pages;
  bool summarises = false;  // whether summaries are kept at all
};

// Elastic degree: the smallest ring that gives each rank about `tokens_per_rank` tokens and that
// fits `free_pages` (one entry per rank); larger rings are tried where smaller ones do not fit.
// Rings whose fullest rank has more than a tenth above the mean come after all others, and those
// that are no use (IsUsefulDegree) are not made. The emptiest ranks are taken. `fixed`: the ring of
// cached pages, which alone will do then; empty: any. Nothing when no ring fits.
std::optional<RingChoice> ChooseRing(const PageDemand& demand,
                                     const std::vector<int32_t>& free_pages,
                                     const std::vector<int32_t>& fixed, const PlanLimits& limits);

// What the busiest rank has still to do for `tokens` of a sequence over `ring`, as if it took turns
// with the `running` sequences (one entry per rank) that use it: to compare rings by.
double RestOfWork(int64_t tokens, const std::vector<int32_t>& ring, const std::vector<int>& running,
                  const PlanLimits& limits);

// The same for all tokens of the demand over the idlest ring of the degree that ChooseRing tries
// first.
double FreshWork(const PageDemand& demand, const std::vector<int>& running,
                 const PlanLimits& limits);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_PLACEMENT_H_
