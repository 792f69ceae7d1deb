#include "engine/coordinator/admission/room_kept.h"

#include <algorithm>

namespace annulus {
namespace {

// `pages`: new ones, [ring index].
std::vector<int32_t> CountHeld(const RingChoice& choice, const std::vector<int32_t>& pages,
                               const PrefixIndex::Hit* hit, const PlanLimits& limits) {
  const std::vector<int32_t>& windows = limits.group_windows;
  const auto full = static_cast<int32_t>(std::count(windows.begin(), windows.end(), 0));
  std::vector<int32_t> held(static_cast<size_t>(limits.ranks), 0);
  for (size_t i = 0; i < choice.ring.size(); ++i) {
    held[choice.ring[i]] += pages[i] + full * choice.summary_pages[i];
  }
  if (hit == nullptr) return held;
  for (const auto& group : hit->groups) {
    for (const PrefixPage& page : group) ++held[page.id.rank];
  }
  return held;
}

}  // namespace

std::vector<int32_t> PagesHeld(const RingChoice& choice, const PrefixIndex::Hit* hit,
                               const PlanLimits& limits) {
  return CountHeld(choice, choice.pages, hit, limits);
}

std::vector<int32_t> MostPagesHeld(const RingChoice& choice, const PrefixIndex::Hit* hit,
                                   const PlanLimits& limits) {
  return CountHeld(choice, choice.most, hit, limits);
}

bool RoomKept::LeavesRoom(RequestId large, const PageDemand& demand,
                          const std::vector<int32_t>& held, const PageBook& book,
                          const PlanLimits& limits) {
  if (large_ != large) newer_.clear();
  large_ = large;
  std::vector<int32_t> left;
  for (int rank = 0; rank < limits.ranks; ++rank) {
    left.push_back(book.room(rank) - held[rank]);
    for (const auto& [id, pages] : newer_) left.back() -= pages[rank];
  }
  return ChooseRing(demand, left, {}, limits).has_value();
}

}  // namespace annulus
