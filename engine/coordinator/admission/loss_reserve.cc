#include "engine/coordinator/admission/loss_reserve.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/state/sequence.h"

namespace annulus {
namespace {

bool All(RequestId) { return true; }

// The group by whose pages beginnings are compared: the first full one. Nothing: all have windows,
// whose pages are few, and requests share none of those that they keep.
std::optional<size_t> ComparedGroup(const PlanLimits& limits) {
  const std::vector<int32_t>& windows = limits.group_windows;
  const auto full = std::find(windows.begin(), windows.end(), 0);
  if (full == windows.end()) return std::nullopt;
  return static_cast<size_t>(full - windows.begin());
}

// The last page of a hit.
std::optional<PrefixPage> LastOf(const PrefixIndex::Hit* hit, const PlanLimits& limits) {
  const std::optional<size_t> group = ComparedGroup(limits);
  if (hit == nullptr || !group.has_value() || hit->groups[*group].empty()) return std::nullopt;
  return hit->groups[*group].back();
}

// The page that ends the first `cached` tokens of a sequence.
std::optional<PrefixPage> LastOf(const Sequence& sequence, int32_t cached,
                                 const PlanLimits& limits) {
  const std::optional<size_t> group = ComparedGroup(limits);
  if (cached == 0 || !group.has_value()) return std::nullopt;
  const int32_t first = cached - limits.page_tokens;
  const PageEntry* const entry = sequence.groups[*group].At(first, limits.page_tokens);
  if (entry == nullptr) return std::nullopt;
  return PrefixPage{first, {entry->rank, entry->page}};
}

}  // namespace

bool LossReserve::is_kept() const {
  return options_.tolerated_ranks > 0 && ledger_.book().usable_ranks() > options_.ranks_left();
}

// Of the ranks with the least room, since any may be lost. `more_pins`: pages that are to be pinned
// besides those that are.
std::vector<int32_t> LossReserve::Rooms(int64_t more_pins) const {
  const PageBook& book = ledger_.book();
  std::vector<int32_t> rooms;
  int64_t pinned = more_pins;
  for (int rank = 0; rank < book.ranks(); ++rank) {
    if (!book.is_usable(rank)) continue;
    rooms.push_back(book.room(rank));
    pinned += book.pinned_count(rank);
  }
  rooms = SmallestRooms(std::move(rooms), options_.ranks_left());
  const int64_t each = (pinned + options_.ranks_left() - 1) / options_.ranks_left();
  for (int32_t& room : rooms) room = static_cast<int32_t>(std::max<int64_t>(0, room - each));
  return rooms;
}

// Whether the pages up to `last` are counted already: as pinned, as those of the request that has
// written them, or as the beginning of another that reuses them.
bool LossReserve::IsCounted(const PrefixPage& last, const Chosen& chosen,
                            const Placed& placed) const {
  const PageBook& book = ledger_.book();
  if (book.IsPinned(last.id) || placed.beginnings.contains(last.id)) return true;
  const PageOwner writer = book.page(last.id).owner;
  if (writer.kind != PageOwner::Kind::kRequest || !chosen(writer.id)) return false;
  const auto found = ledger_.requests().find(writer.id);
  if (found == ledger_.requests().end() || found->second->sequence() == nullptr) return false;
  const Request& request = *found->second;
  // It may run again since, and have begun with this page or computed the rows anew elsewhere.
  if (request.begun_from() > last.first_position) return false;
  const auto& table = request.sequence()->groups[*ComparedGroup(options_.limits)];
  const PageEntry* const entry = table.At(last.first_position, options_.limits.page_tokens);
  return entry != nullptr && PageId{entry->rank, entry->page} == last.id;
}

// The first `cached` tokens need no pages of the sequence's own.
void LossReserve::LeaveOut(int32_t cached, PageDemand& demand) const {
  demand.cached = cached;
  if (demand.summarised == 0) return;
  // Where these pages would lie is not known: each rank has summaries for all of them.
  demand.cached_on.assign(static_cast<size_t>(options_.limits.ranks),
                          cached / options_.limits.page_tokens);
}

PageDemand LossReserve::DemandOf(const Newcomer& newcomer, const Chosen& chosen,
                                 const Placed& placed) const {
  PageDemand demand = newcomer.demand;
  const std::optional<PrefixPage> last = LastOf(newcomer.hit, options_.limits);
  if (last.has_value() && IsCounted(*last, chosen, placed)) LeaveOut(newcomer.hit->tokens, demand);
  return demand;
}

// Places those of the requests that run for which `chosen` returns true.
LossReserve::Placed LossReserve::Place(const Chosen& chosen, int64_t more_pins) const {
  Placed placed{TrialRing(options_.limits, Rooms(more_pins))};
  for (const auto& sequence : ledger_.state().running) {
    const auto found = ledger_.requests().find(sequence->id);
    if (found == ledger_.requests().end() || !chosen(sequence->id)) continue;  // or it is leaving
    const Request& request = *found->second;
    PageDemand demand = needs_.Of(request.spec(), sequence->attention.get());
    demand.reserved = sequence->reserved < demand.tokens ? sequence->reserved : 0;
    const int32_t cached = request.begun_from();
    const std::optional<PrefixPage> last = LastOf(*sequence, cached, options_.limits);
    if (last.has_value() && IsCounted(*last, chosen, placed)) {
      LeaveOut(cached, demand);
    } else if (last.has_value()) {
      placed.beginnings.insert(last->id);
    }
    if (placed.ring.Place(demand)) continue;
    placed.fits = false;  // answers have grown, or others were placed in another order
    break;
  }
  return placed;
}

bool LossReserve::Fits(const Newcomer& newcomer) {
  if (!is_kept()) return true;
  if (!placed_.has_value()) placed_.emplace(Place(All, 0));
  return placed_->fits && placed_->ring.Fits(DemandOf(newcomer, All, *placed_));
}

void LossReserve::NoteBegun(const Newcomer& newcomer) {
  if (!placed_.has_value()) return;
  placed_->fits = placed_->ring.Place(DemandOf(newcomer, All, *placed_)) && placed_->fits;
  const std::optional<PrefixPage> last = LastOf(newcomer.hit, options_.limits);
  if (last.has_value()) placed_->beginnings.insert(last->id);
}

bool LossReserve::LeavesRoom(const PageDemand& large, const Chosen& stays,
                             const Newcomer& newcomer) const {
  if (!is_kept()) return true;
  Placed placed = Place(stays, 0);
  return placed.fits && placed.ring.Place(DemandOf(newcomer, stays, placed)) &&
         placed.ring.Fits(large);
}

bool LossReserve::FitsPin(const PrefixIndex::Hit& pin) const {
  if (!is_kept()) return true;
  int64_t more = 0;
  for (const auto& group : pin.groups) {
    for (const PrefixPage& page : group) more += ledger_.book().IsPinned(page.id) ? 0 : 1;
  }
  return Place(All, more).fits;
}

std::optional<int64_t> LossReserve::PagesBesidePins() const {
  if (!is_kept()) return std::nullopt;
  const std::vector<int32_t> rooms = Rooms(0);
  return std::accumulate(rooms.begin(), rooms.end(), int64_t{0});
}

}  // namespace annulus
