#ifndef ANNULUS_ENGINE_SCHEDULER_PLACEMENT_H_
#define ANNULUS_ENGINE_SCHEDULER_PLACEMENT_H_

#include <cstdint>
#include <optional>
#include <vector>

namespace annulus {

// The fixed numbers of a running engine that planning and admission share.
struct PlanLimits {
  int ranks = 1;
  int page_tokens = 64;                // also the stripe unit
  int rows_per_rank = 2048;            // most rows that one rank computes in a step
  int tokens_per_rank = 2048;          // a sequence takes one more rank for each of these
  std::vector<int32_t> group_windows;  // per cache group: 0 = full, else the window
};

// Index into a sequence's ring of the rank that a new page is placed on: stripes of one page.
inline int PlaceOnRing(int32_t first_position, int page_tokens, int degree) {
  return static_cast<int>((first_position / page_tokens) % degree);
}

// Pages that each ring index needs, all cache groups together, for a sequence that grows to
// `tokens` positions over a ring of `degree`. A full group keeps everything. A window group keeps
// the window, the chunk being computed and one page of alignment at each end.
std::vector<int32_t> PagesNeeded(int64_t tokens, int degree, const PlanLimits& limits);

// The ranks that a new sequence is spread over.
struct RingChoice {
  std::vector<int32_t> ring;   // ascending ranks
  std::vector<int32_t> pages;  // [ring index], from PagesNeeded
};

// Elastic degree: the smallest ring that gives each rank about `tokens_per_rank` tokens and that
// fits `free_pages` (one entry per rank); larger rings are tried where smaller ones do not fit. The
// emptiest ranks are taken. Nothing when no ring fits.
std::optional<RingChoice> ChooseRing(int64_t tokens, const std::vector<int32_t>& free_pages,
                                     const PlanLimits& limits);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_PLACEMENT_H_
