#include "engine/scheduler/placement.h"

#include <algorithm>
#include <numeric>

namespace annulus {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

std::vector<int32_t> PagesNeeded(int64_t tokens, int degree, const PlanLimits& limits) {
  const int64_t total = CeilDivide(tokens, limits.page_tokens);
  std::vector<int32_t> needed(degree, 0);
  for (const int32_t window : limits.group_windows) {
    const int64_t chunk = static_cast<int64_t>(limits.rows_per_rank) * degree;
    const int64_t live = CeilDivide(window + chunk, limits.page_tokens) + 2;
    for (int index = 0; index < degree; ++index) {
      const int64_t full = total / degree + (index < total % degree ? 1 : 0);
      const int64_t pages = window == 0 ? full : std::min(full, CeilDivide(live, degree));
      needed[index] += static_cast<int32_t>(pages);
    }
  }
  return needed;
}

std::optional<RingChoice> ChooseRing(int64_t tokens, const std::vector<int32_t>& free_pages,
                                     const PlanLimits& limits) {
  std::vector<int32_t> emptiest(limits.ranks);
  std::iota(emptiest.begin(), emptiest.end(), 0);
  std::stable_sort(emptiest.begin(), emptiest.end(),
                   [&](int32_t a, int32_t b) { return free_pages[a] > free_pages[b]; });
  const int64_t wanted = CeilDivide(tokens, limits.tokens_per_rank);
  for (int64_t degree = std::clamp<int64_t>(wanted, 1, limits.ranks); degree <= limits.ranks;
       ++degree) {
    RingChoice choice;
    choice.ring.assign(emptiest.begin(), emptiest.begin() + degree);
    std::sort(choice.ring.begin(), choice.ring.end());
    choice.pages = PagesNeeded(tokens, static_cast<int>(degree), limits);
    bool fits = true;
    for (int64_t index = 0; index < degree; ++index) {
      fits = fits && choice.pages[index] <= free_pages[choice.ring[index]];
    }
    if (fits) return choice;
  }
  return std::nullopt;
}

}  // namespace annulus
