#include "engine/scheduler/trial_ring.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/base/check.h"

namespace annulus {

TrialRing::TrialRing(const PlanLimits& limits, std::vector<int32_t> rooms)
    : limits_(limits), ranks_(static_cast<int32_t>(rooms.size())), rooms_(std::move(rooms)) {
  ANNULUS_CHECK(ranks_ >= 1 && ranks_ <= limits.ranks) << ranks_ << " ranks of " << limits.ranks;
  // Not even a sequence that needs no page there is placed on a rank that is not one of the ring's.
  rooms_.resize(static_cast<size_t>(limits.ranks), -1);
  free_ = rooms_;
}

std::optional<RingChoice> TrialRing::Choose(PageDemand demand) const {
  demand.most_ranks = ranks_;
  if (demand.reserved > 0) demand.alone = rooms_;
  return ChooseRing(demand, free_, {}, limits_);
}

bool TrialRing::Place(const PageDemand& demand) {
  const std::optional<RingChoice> choice = Choose(demand);
  if (!choice.has_value()) return false;
  const std::vector<int32_t>& windows = limits_.group_windows;
  const auto full = static_cast<int32_t>(std::count(windows.begin(), windows.end(), 0));
  for (size_t i = 0; i < choice->ring.size(); ++i) {
    free_[choice->ring[i]] -= choice->pages[i] + full * choice->summary_pages[i];
  }
  return true;
}

int64_t TrialRing::LongestFit(PageDemand demand) const {
  int64_t fits = 0;
  int64_t too_long = int64_t{std::numeric_limits<int32_t>::max()} + 1;
  while (too_long - fits > 1) {
    demand.tokens = fits + (too_long - fits) / 2;
    (Fits(demand) ? fits : too_long) = demand.tokens;
  }
  return fits;
}

std::vector<int32_t> SmallestRooms(std::vector<int32_t> rooms, int count) {
  std::sort(rooms.begin(), rooms.end());
  rooms.resize(static_cast<size_t>(count));
  return rooms;
}

}  // namespace annulus
