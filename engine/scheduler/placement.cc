#include "engine/scheduler/placement.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace annulus {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Of the first `count` pages, those on a ring index.
int64_t Placed(int64_t count, int degree, int index, int shards) {
  int64_t placed = 0;
  for (int page = 0; page < shards; ++page) {
    if (PlaceOnRing(page, 1, degree, shards) == index) {
      placed += count / shards + (page < count % shards ? 1 : 0);
    }
  }
  return placed;
}

// The most of any `count` pages in a row that a ring index has.
int64_t MostPlaced(int64_t count, int degree, int index, int shards) {
  int64_t most = 0;
  for (int64_t first = 0; first < shards; ++first) {
    most = std::max(
        most, Placed(first + count, degree, index, shards) - Placed(first, degree, index, shards));
  }
  return most;
}

int64_t FullGroups(const PlanLimits& limits) {
  return std::count(limits.group_windows.begin(), limits.group_windows.end(), 0);
}

// Whether the fullest rank has at most a tenth more than the mean.
bool IsEven(int degree, int shards) {
  return MostLeaves(degree, shards) * degree * 10 <= shards * 11;
}

// Degrees from the wanted one up, even ones first; then, if the wanted one is of no use, the
// largest below it.
std::vector<int> DegreesToTry(const PageDemand& demand, const PlanLimits& limits) {
  const int ranks = demand.most_ranks > 0 ? demand.most_ranks : limits.ranks;
  const int64_t most = std::min({ranks, limits.ranks, limits.shards});
  const auto wanted = static_cast<int>(
      std::clamp<int64_t>(CeilDivide(demand.tokens, limits.tokens_per_rank), 1, most));
  std::vector<int> degrees;
  for (const bool even : {true, false}) {
    for (int degree = wanted; degree <= most; ++degree) {
      if (IsUsefulDegree(degree, limits.ranks, limits.shards) &&
          IsEven(degree, limits.shards) == even) {
        degrees.push_back(degree);
      }
    }
  }
  int below = wanted;
  while (degrees.empty() && !IsUsefulDegree(below, limits.ranks, limits.shards)) --below;
  if (degrees.empty()) degrees.push_back(below);
  return degrees;
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
    for (int index = 0; index < degree; ++index) {
      const int64_t full = Placed(total, degree, index, limits.shards) -
                           Placed(cached, degree, index, limits.shards);
      if (window == 0) {
        needed[index] += full;
        continue;
      }
      const int64_t given = MostPlaced(CeilDivide(window, page), degree, index, limits.shards);
      needed[index] +=
          std::min(full, MostPlaced(live, degree, index, limits.shards) +
                             given * (demand.checkpoints + limits.passing_checkpoints));
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
    const int64_t own = Placed(complete, degree, index, limits.shards) -
                        Placed(cached, degree, index, limits.shards);
    const int64_t found = demand.cached_on.empty() ? 0 : demand.cached_on[ring[index]];
    needed[index] = CeilDivide(own + found, demand.summarised);
  }
  return needed;
}

namespace {

// The ring with the pages that it needs, if these are free.
std::optional<RingChoice> TryRing(const PageDemand& demand, const std::vector<int32_t>& free_pages,
                                  std::vector<int32_t> ring, const PlanLimits& limits) {
  RingChoice choice;
  choice.ring = std::move(ring);
  const auto degree = static_cast<int>(choice.ring.size());
  const std::vector<int64_t> most = PagesNeeded(demand, degree, limits);
  std::vector<int64_t> pages = most;
  if (demand.reserved > 0) {
    PageDemand first = demand;
    first.tokens = demand.reserved;
    pages = PagesNeeded(first, degree, limits);
  }
  const std::vector<int64_t> summaries = SummaryPagesNeeded(demand, choice.ring, limits);
  for (size_t index = 0; index < choice.ring.size(); ++index) {
    const int32_t rank = choice.ring[index];
    const int64_t all = pages[index] + summaries[index] * FullGroups(limits);
    if (all > free_pages[rank]) return std::nullopt;
    if (demand.reserved > 0 && most[index] > demand.alone[rank]) return std::nullopt;
  }
  choice.pages.assign(pages.begin(), pages.end());
  choice.most.assign(most.begin(), most.end());
  choice.summary_pages.assign(summaries.begin(), summaries.end());
  choice.summarises = demand.summarised > 0;
  return choice;
}

// The orders in which ChooseRing prefers ranks, the first one first.
std::vector<std::vector<int32_t>> OrdersOfRanks(const std::vector<int32_t>& free_pages,
                                                const std::vector<int>& running,
                                                const PlanLimits& limits) {
  std::vector<int32_t> emptiest(limits.ranks);
  std::iota(emptiest.begin(), emptiest.end(), 0);
  std::stable_sort(emptiest.begin(), emptiest.end(),
                   [&](int32_t a, int32_t b) { return free_pages[a] > free_pages[b]; });
  if (running.empty()) return {emptiest};
  std::vector<int32_t> idlest = emptiest;
  // Fuller ranks stay last: they keep their pages for long sequences, which need some on each rank.
  const auto full = std::partition_point(
      idlest.begin(), idlest.end(), [&](int32_t rank) { return LeavesRoom({rank}, free_pages); });
  std::stable_sort(idlest.begin(), full,
                   [&](int32_t a, int32_t b) { return running[a] < running[b]; });
  return {idlest, emptiest};
}

}  // namespace

int64_t AllPagesNeeded(const PageDemand& demand, const PlanLimits& limits) {
  int degree = std::min(limits.ranks, limits.shards);
  while (!IsUsefulDegree(degree, limits.ranks, limits.shards)) --degree;
  std::vector<int32_t> ring(degree);
  std::iota(ring.begin(), ring.end(), 0);
  int64_t all = 0;
  for (const int64_t pages : PagesNeeded(demand, degree, limits)) all += pages;
  for (const int64_t pages : SummaryPagesNeeded(demand, ring, limits)) {
    all += pages * FullGroups(limits);
  }
  return all;
}

std::optional<RingChoice> ChooseRing(const PageDemand& demand,
                                     const std::vector<int32_t>& free_pages,
                                     const std::vector<int32_t>& fixed, const PlanLimits& limits,
                                     const std::vector<int>& running) {
  if (!fixed.empty()) return TryRing(demand, free_pages, fixed, limits);
  const std::vector<std::vector<int32_t>> orders = OrdersOfRanks(free_pages, running, limits);
  for (const int degree : DegreesToTry(demand, limits)) {
    for (const std::vector<int32_t>& order : orders) {
      std::vector<int32_t> ring(order.begin(), order.begin() + degree);
      std::sort(ring.begin(), ring.end());
      std::optional<RingChoice> choice = TryRing(demand, free_pages, std::move(ring), limits);
      if (choice.has_value()) return choice;
    }
  }
  return std::nullopt;
}

bool LeavesRoom(const std::vector<int32_t>& ring, const std::vector<int32_t>& pages) {
  const int64_t most = *std::max_element(pages.begin(), pages.end());
  return std::all_of(ring.begin(), ring.end(),
                     [&](int32_t rank) { return int64_t{2} * pages[rank] >= most; });
}

std::optional<int32_t> RankToJoin(const PageDemand& demand, const std::vector<int>& homes,
                                  const std::vector<int32_t>& free_pages,
                                  const PlanLimits& limits) {
  if (DegreesToTry(demand, limits).front() > 1) return std::nullopt;
  std::optional<int32_t> best;
  for (int32_t rank = 0; rank < limits.ranks; ++rank) {
    if (homes[rank] == 0 || !LeavesRoom({rank}, free_pages)) continue;
    if (best.has_value() && homes[rank] <= homes[*best]) continue;
    if (TryRing(demand, free_pages, {rank}, limits).has_value()) best = rank;
  }
  return best;
}

double RestOfWork(int64_t tokens, const std::vector<int32_t>& ring, const std::vector<int>& running,
                  const PlanLimits& limits) {
  int most = 0;
  for (const int32_t rank : ring) most = std::max(most, running[rank]);
  const int leaves = MostLeaves(static_cast<int>(ring.size()), limits.shards);
  return static_cast<double>(tokens) * leaves / limits.shards * (1 + most);
}

double FreshWork(const PageDemand& demand, const std::vector<int>& running,
                 const PlanLimits& limits) {
  std::vector<int32_t> idlest(limits.ranks);
  std::iota(idlest.begin(), idlest.end(), 0);
  std::stable_sort(idlest.begin(), idlest.end(),
                   [&](int32_t a, int32_t b) { return running[a] < running[b]; });
  idlest.resize(DegreesToTry(demand, limits).front());
  return RestOfWork(demand.tokens, idlest, running, limits);
}

}  // namespace annulus
