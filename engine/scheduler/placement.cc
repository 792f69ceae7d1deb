#include "engine/scheduler/placement.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace annulus {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Pages u < count with u mod degree = index.
int64_t Placed(int64_t count, int degree, int index) {
  return count / degree + (index < count % degree ? 1 : 0);
}

int64_t FullGroups(const PlanLimits& limits) {
  return std::count(limits.group_windows.begin(), limits.group_windows.end(), 0);
}

}  // namespace

std::vector<int64_t> PagesNeeded(const PageDemand& demand, int degree, const PlanLimits& limits) {
  const int64_t page = limits.page_tokens;
  const int64_t total = CeilDivide(demand.tokens, page);
  const int64_t cached = demand.cached / page;
  std::vector<int64_t> needed(degree, 0);
  for (const int32_t window : limits.group_windows) {
    const int64_t chunk = static_cast<int64_t>(limits.rows_per_rank()) * degree;
    const int64_t live = CeilDivide(window + chunk, page) + 2;
    const int64_t given = window == 0 ? 0 : CeilDivide(CeilDivide(window, page), degree);
    for (int index = 0; index < degree; ++index) {
      const int64_t full = Placed(total, degree, index) - Placed(cached, degree, index);
      const int64_t pages =
          window == 0 ? full
                      : std::min(full, CeilDivide(live, degree) + given * demand.checkpoints);
      needed[index] += pages;
    }
  }
  return needed;
}

std::vector<int64_t> SummaryPagesNeeded(const PageDemand& demand, const std::vector<int32_t>& ring,
                                        const PlanLimits& limits) {
  std::vector<int64_t> needed(ring.size(), 0);
  if (demand.summarised == 0) return needed;
  const auto degree = static_cast<int>(ring.size());
  const int64_t complete = demand.tokens / limits.page_tokens;
  const int64_t cached = demand.cached / limits.page_tokens;
  for (int index = 0; index < degree; ++index) {
    const int64_t own = Placed(complete, degree, index) - Placed(cached, degree, index);
    const int64_t found = demand.cached_on.empty() ? 0 : demand.cached_on[ring[index]];
    needed[index] = CeilDivide(own + found, demand.summarised);
  }
  return needed;
}

int64_t AllPagesNeeded(const PageDemand& demand, const PlanLimits& limits) {
  std::vector<int32_t> ring(limits.ranks);
  std::iota(ring.begin(), ring.end(), 0);
  int64_t all = 0;
  for (const int64_t pages : PagesNeeded(demand, limits.ranks, limits)) all += pages;
  for (const int64_t pages : SummaryPagesNeeded(demand, ring, limits)) {
    all += pages * FullGroups(limits);
  }
  return all;
}

std::optional<RingChoice> ChooseRing(const PageDemand& demand,
                                     const std::vector<int32_t>& free_pages,
                                     const std::vector<int32_t>& included,
                                     const PlanLimits& limits) {
  std::vector<int32_t> emptiest(limits.ranks);
  std::iota(emptiest.begin(), emptiest.end(), 0);
  std::stable_sort(emptiest.begin(), emptiest.end(),
                   [&](int32_t a, int32_t b) { return free_pages[a] > free_pages[b]; });
  const int64_t wanted = CeilDivide(demand.tokens, limits.tokens_per_rank);
  for (int64_t degree = std::clamp<int64_t>(wanted, 1, limits.ranks); degree <= limits.ranks;
       ++degree) {
    std::set<int32_t> ring(included.begin(), included.end());
    ring.insert(emptiest.begin(), emptiest.begin() + degree);
    RingChoice choice;
    choice.ring.assign(ring.begin(), ring.end());
    const std::vector<int64_t> pages = PagesNeeded(demand, static_cast<int>(ring.size()), limits);
    const std::vector<int64_t> summaries = SummaryPagesNeeded(demand, choice.ring, limits);
    bool fits = true;
    for (size_t index = 0; index < choice.ring.size(); ++index) {
      const int64_t all = pages[index] + summaries[index] * FullGroups(limits);
      fits = fits && all <= free_pages[choice.ring[index]];
    }
    if (!fits) continue;
    choice.pages.assign(pages.begin(), pages.end());
    choice.summary_pages.assign(summaries.begin(), summaries.end());
    choice.summarises = demand.summarised > 0;
    return choice;
  }
  return std::nullopt;
}

}  // namespace annulus
