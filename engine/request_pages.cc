#include "engine/request_pages.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/base/check.h"

namespace annulus {

void CountCached(const PrefixIndex::Hit& hit, const PlanLimits& limits, PageDemand& demand) {
  demand.cached = hit.tokens;
  demand.cached_on.assign(static_cast<size_t>(limits.ranks), 0);
  const std::vector<int32_t>& windows = limits.group_windows;
  const auto full = std::find(windows.begin(), windows.end(), 0);
  if (full == windows.end()) return;
  for (const OwnedPage& page : hit.groups[full - windows.begin()]) ++demand.cached_on[page.rank];
}

Request::Pages TakePages(const RingChoice& choice, std::optional<PrefixIndex::Hit> hit,
                         const PlanLimits& limits, RankSet& ranks, Sequence& sequence) {
  Request::Pages pages(static_cast<size_t>(ranks.size()));
  sequence.groups.resize(limits.group_windows.size());
  for (size_t g = 0; hit.has_value() && g < hit->groups.size(); ++g) {
    GroupTable& group = sequence.groups[g];
    group.mapped_end = hit->tokens;
    for (OwnedPage& page : hit->groups[g]) {
      group.entries.push_back({page.rank, page.page.id(), page.first_position});
      if (limits.group_windows[g] > 0) group.shared.insert(page.first_position);
      pages[page.rank].emplace(page.page.id(), std::move(page.page));
    }
  }
  const auto take = [&](size_t index, int32_t count) {
    const int32_t rank = choice.ring[index];
    auto taken = ranks.pool(rank).allocator().AllocateMany(count, sequence.id);
    ANNULUS_CHECK(taken.ok()) << taken.status().ToString();
    std::vector<int32_t> ids;
    for (PageRef& page : *taken) {
      ids.push_back(page.id());
      pages[rank].emplace(page.id(), std::move(page));
    }
    return ids;
  };
  SummaryPages summaries(sequence.groups.size());
  for (size_t index = 0; index < choice.ring.size(); ++index) {
    sequence.spare.push_back(take(index, choice.pages[index]));
    for (size_t g = 0; g < summaries.size(); ++g) {
      if (limits.group_windows[g] > 0) continue;
      summaries[g].push_back(take(index, choice.summary_pages[index]));
    }
  }
  if (choice.summarises) {
    sequence.summaries = std::make_shared<const SummaryPages>(std::move(summaries));
  }
  return pages;
}

}  // namespace annulus
