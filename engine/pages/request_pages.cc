#include "engine/pages/request_pages.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace annulus {

void CountCached(const PrefixIndex::Hit& hit, const PlanLimits& limits, PageDemand& demand) {
  demand.cached = hit.tokens;
  demand.cached_on.assign(static_cast<size_t>(limits.ranks), 0);
  const std::vector<int32_t>& windows = limits.group_windows;
  const auto full = std::find(windows.begin(), windows.end(), 0);
  if (full == windows.end()) return;
  for (const PrefixPage& page : hit.groups[full - windows.begin()]) {
    ++demand.cached_on[page.id.rank];
  }
}

void LeaveHeld(const PrefixIndex::Hit& hit, const PageBook& book, PageDemand& demand) {
  if (demand.reserved == 0) return;
  for (const auto& group : hit.groups) {
    for (const PrefixPage& page : group) {
      if (!book.IsPinned(page.id)) --demand.alone[page.id.rank];
    }
  }
}

void HoldPages(const PrefixIndex::Hit& hit, PageOwner owner, PageBook& book) {
  for (const auto& group : hit.groups) {
    for (const PrefixPage& page : group) book.Hold(owner, page.id);
  }
}

void ReservePages(const RingChoice& choice, const PlanLimits& limits, PageBook& book,
                  Sequence& sequence) {
  SummaryPages summaries(limits.group_windows.size());
  for (size_t index = 0; index < choice.ring.size(); ++index) {
    const int32_t rank = choice.ring[index];
    book.Reserve(sequence.owner, rank, choice.pages[index]);
    for (size_t g = 0; g < summaries.size(); ++g) {
      if (limits.group_windows[g] > 0) continue;
      summaries[g].push_back(
          book.ReserveSummaries(sequence.owner, rank, choice.summary_pages[index]));
    }
  }
  sequence.groups.resize(limits.group_windows.size());
  if (choice.summarises) {
    sequence.summaries = std::make_shared<const SummaryPages>(std::move(summaries));
  }
}

void MapCached(const PrefixIndex::Hit& hit, Sequence& sequence) {
  for (size_t g = 0; g < hit.groups.size(); ++g) {
    GroupTable& group = sequence.groups[g];
    group.mapped_end = hit.tokens;
    for (const PrefixPage& page : hit.groups[g]) {
      group.entries.push_back({page.id.rank, page.id.page, page.first_position});
    }
  }
}

}  // namespace annulus
