#include "engine/scheduler/repair.h"

#include <algorithm>
#include <limits>

#include "engine/scheduler/step_cost.h"

namespace annulus {
namespace {

// Whether a group's page from position `first` on is lost.
bool IsLost(const Sequence& sequence, int32_t first, int32_t page_tokens, const PageBook& pages) {
  return std::any_of(sequence.groups.begin(), sequence.groups.end(), [&](const GroupTable& group) {
    const PageEntry* const entry = group.At(first, page_tokens);
    return entry != nullptr && pages.state({entry->rank, entry->page}) == PageState::kLost;
  });
}

// Whether another sequence uses a lost page of the group.
bool SharesLost(const GroupTable& group, const PageBook& pages) {
  return std::any_of(group.entries.begin(), group.entries.end(), [&](const PageEntry& entry) {
    const PageId id{entry.rank, entry.page};
    return pages.state(id) == PageState::kLost && pages.holders(id) > 1;
  });
}

}  // namespace

void LosePages(std::span<const int32_t> ranks, const PlanLimits& limits, EngineState& state,
               PageBook& pages) {
  for (const auto& sequence : state.running) {
    if (sequence->is_check()) continue;
    for (const GroupTable& group : sequence->groups) {
      for (const PageEntry& entry : group.entries) {
        if (entry.first_position >= sequence->computed) break;  // it has no row yet
        if (std::find(ranks.begin(), ranks.end(), entry.rank) == ranks.end()) continue;
        pages.Lose({entry.rank, entry.page});
      }
    }
    sequence->lost = FindLost(*sequence, 0, limits, pages);
  }
}

bool CanRepair(const Sequence& sequence, const PlanLimits& limits, const PageBook& pages) {
  if (ClassOf(sequence.attention.get()) == AttentionClass::kContent) return false;
  if (!sequence.lost.has_value() || !limits.has_windows()) return true;
  const std::vector<int32_t>& windows = limits.group_windows;
  for (size_t g = 0; g < windows.size(); ++g) {
    const GroupTable& group = sequence.groups[g];
    // Another could have repaired the page of one group and not that of the next; nobody may write
    // the whole one again.
    if (SharesLost(group, pages)) return false;
    if (windows[g] == 0) continue;
    const int32_t oldest = std::max(0, sequence.lost->begin - windows[g] + 1);
    if (group.entries.empty() || group.entries.front().first_position > oldest) return false;
  }
  return true;
}

std::optional<RowRange> FindLost(const Sequence& sequence, int32_t from, const PlanLimits& limits,
                                 const PageBook& pages) {
  const int32_t page = limits.page_tokens;
  const auto is_lost = [&](int32_t first) {
    return first < sequence.computed && IsLost(sequence, first, page, pages);
  };
  int32_t begin = from;
  while (begin < sequence.computed && !is_lost(begin)) begin += page;
  if (begin >= sequence.computed) return std::nullopt;
  int32_t end = begin;
  while (is_lost(end)) end += page;
  return RowRange{begin, std::min(end, sequence.computed)};
}

void TellAnew(Sequence& sequence) {
  sequence.announced = false;
  sequence.setup_sent = false;
  sequence.suspended.reset();
  for (GroupTable& group : sequence.groups) group.pending_drop = 0;
}

void CommitRepair(const PlanItem& item, const Sequence& sequence, const PlanLimits& limits,
                  PageBook& pages) {
  const int32_t page = limits.page_tokens;
  for (const GroupTable& group : sequence.groups) {
    for (int32_t first = item.begin; first < item.end; first += page) {
      const PageEntry* const entry = group.At(first, page);
      if (entry == nullptr) continue;
      const PageId id{entry->rank, entry->page};
      pages.Repair(id);
      if (first + page <= sequence.computed) pages.Complete(id);
    }
  }
}

void FindNextLost(const PlanLimits& limits, EngineState& state, const PageBook& pages) {
  for (const auto& sequence : state.running) {
    if (!sequence->lost.has_value()) continue;
    sequence->lost = FindLost(*sequence, sequence->lost->begin, limits, pages);
  }
}

}  // namespace annulus
