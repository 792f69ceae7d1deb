#include "engine/scheduler/placement.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace annulus {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

std::vector<int64_t> PagesNeeded(const PageDemand& demand, int degree, const PlanLimits& limits) {
  const int64_t page = limits.page_tokens;
  const int64_t total = CeilDivide(demand.tokens, page);
  const int64_t cached = demand.cached / page;
  // Pages u < count with u mod degree = index.
  const auto placed = [degree](int64_t count, int index) {
    return count / degree + (index < count % degree ? 1 : 0);
  };
  std::vector<int64_t> needed(degree, 0);
  for (const int32_t window : limits.group_windows) {
    const int64_t chunk = static_cast<int64_t>(limits.rows_per_rank()) * degree;
    const int64_t live = CeilDivide(window + chunk, page) + 2;
    const int64_t given = window == 0 ? 0 : CeilDivide(CeilDivide(window, page), degree);
    for (int index = 0; index < degree; ++index) {
      const int64_t full = placed(total, index) - placed(cached, index);
      const int64_t pages =
          window == 0 ? full
                      : std::min(full, CeilDivide(live, degree) + given * demand.checkpoints);
      needed[index] += pages;
    }
  }
  return needed;
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
    bool fits = true;
    for (size_t index = 0; index < choice.ring.size(); ++index) {
      fits = fits && pages[index] <= free_pages[choice.ring[index]];
    }
    if (!fits) continue;
    choice.pages.assign(pages.begin(), pages.end());
    return choice;
  }
  return std::nullopt;
}

}  // namespace annulus
