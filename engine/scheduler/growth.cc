#include "engine/scheduler/growth.h"

#include <algorithm>

namespace annulus {

std::vector<int32_t> PagesToGrow(const PageDemand& demand, int64_t from, int64_t to, int degree,
                                 const PlanLimits& limits) {
  PageDemand before = demand;
  before.tokens = from;
  PageDemand after = demand;
  after.tokens = to;
  const std::vector<int64_t> had = PagesNeeded(before, degree, limits);
  const std::vector<int64_t> needed = PagesNeeded(after, degree, limits);
  std::vector<int32_t> more;
  for (int index = 0; index < degree; ++index) {
    more.push_back(static_cast<int32_t>(needed[index] - had[index]));
  }
  return more;
}

std::vector<Grower> GrowthOrder(std::span<const Grower> running, std::span<const size_t> order) {
  std::vector<Grower> sorted;
  for (const size_t i : order) sorted.push_back(running[i]);
  const auto parked = std::stable_partition(sorted.begin(), sorted.end(),
                                            [](const Grower& one) { return !one.is_parked; });
  const auto eldest =
      std::min_element(sorted.begin(), parked,
                       [](const Grower& one, const Grower& other) { return one.id < other.id; });
  if (eldest != parked) std::rotate(sorted.begin(), eldest, eldest + 1);
  return sorted;
}

bool GrowSequences(std::span<const Grower> order, GrowthHost& host) {
  bool waits = false;
  std::vector<bool> gone(order.size(), false);
  for (size_t i = 0; i < order.size(); ++i) {
    if (!order[i].grows || gone[i]) continue;
    bool grown = host.Grow(order[i].id);
    for (size_t j = order.size() - 1; !grown && j > i; --j) {
      if (gone[j] || !order[j].may_yield || !host.Helps(order[j].id, order[i].id)) continue;
      host.Preempt(order[j].id);
      gone[j] = true;
      grown = host.Grow(order[i].id);
    }
    if (grown) continue;
    if (i == 0 || !order[i].may_yield) {
      waits = true;
    } else {
      host.Preempt(order[i].id);
      gone[i] = true;
    }
  }
  return waits;
}

}  // namespace annulus
