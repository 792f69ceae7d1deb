#ifndef ANNULUS_ENGINE_SCHEDULER_REPAIR_H_
#define ANNULUS_ENGINE_SCHEDULER_REPAIR_H_

#include <cstdint>
#include <optional>
#include <span>

#include "engine/memory/page_book.h"
#include "engine/scheduler/placement.h"
#include "engine/state/sequence.h"
#include "engine/state/step_plan.h"

// Repair: ranks have lost the contents of their pages, and running sequences keep what the other
// ranks hold. Only the rows of the lost pages are computed again, by prefill items of rows that
// were computed before (IsRepair): ascending, on the ranks that hold the pages, without a new page
// or a token. The keys and values of a row depend only on earlier rows, so they get the bits that
// they had. Pure but for what is passed to be changed.

namespace annulus {

// Whether the item computes rows again. Meaningless once its step is committed.
inline bool IsRepair(const PlanItem& item, const Sequence& sequence) {
  return !item.sampled && item.end <= sequence.computed;
}

// The ranks have lost the contents of their pages: marks those with rows that running sequences
// have computed as lost, and sets Sequence::lost. The prefix index must have forgotten them. Leaves
// checks as they are: their pages are those of a restore, which ends with them.
void LosePages(std::span<const int32_t> ranks, const PlanLimits& limits, EngineState& state,
               PageBook& pages);

// Whether the sequence can go on in its place. Its policy must not choose by content, since such
// choices may depend on how its rows were cut into steps. If it lost rows, no window group may have
// given up a page that these read, nor share a lost page with others.
bool CanRepair(const Sequence& sequence, const PlanLimits& limits, const PageBook& pages);

// The first lost rows of the sequence, from position `from` on; nothing if there are none. `from`:
// where a page begins, or the end of lost rows.
std::optional<RowRange> FindLost(const Sequence& sequence, int32_t from, const PlanLimits& limits,
                                 const PageBook& pages);

// The ranks have forgotten the sequence: its next plan tells them all of it.
void TellAnew(Sequence& sequence);

// The item, a repair, was computed: the pages have its rows again. Leaves Sequence::lost as it was.
void CommitRepair(const PlanItem& item, const Sequence& sequence, const PlanLimits& limits,
                  PageBook& pages);
// Call after CommitRepair: sets Sequence::lost of all, since sequences share pages.
void FindNextLost(const PlanLimits& limits, EngineState& state, const PageBook& pages);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_REPAIR_H_
