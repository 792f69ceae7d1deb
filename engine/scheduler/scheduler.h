#ifndef ANNULUS_ENGINE_SCHEDULER_SCHEDULER_H_
#define ANNULUS_ENGINE_SCHEDULER_SCHEDULER_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/memory/page_book.h"
#include "engine/scheduler/cost_model.h"
#include "engine/scheduler/placement.h"
#include "engine/scheduler/step_pacer.h"
#include "engine/state/sequence.h"
#include "engine/state/step_plan.h"

namespace annulus {

// How prefill items exchange: in a fixed mode, or as the cost model chooses (kAuto).
struct ModePolicy {
  RingMode mode = RingMode::kAuto;
  AttentionGeometry geometry;
  ExchangeRates rates;
  // How many pages of one layer a rank can receive from its peers in one ring step. An item whose
  // pages would not fit next to those of earlier items uses pass-Q, whatever the mode.
  int64_t visiting_pages = std::numeric_limits<int64_t>::max();
};

// Plans the next step of all ranks: one sampled row for every decoding sequence, followed by rows
// of its draft, and prompt chunks. No rank exceeds its limits for each kind of row. If rows run
// out, sequences alternate by step number.
//
// Chunks end at multiples of ring degree x page, except at a prompt's end and where `turns` ends
// them earlier. If `turns` is given, only the prompts it lists continue, in its order and no
// further than it says. Sequences that are apart are left out. Pages come from each sequence's
// reserve; one that needs_pages() waits. A sequence that has lost rows (Sequence::lost) computes
// those as if they were its prompt's; at most one such sequence has rows in a step.
//
// Pure: reads `state` and `pages`, changes nothing, needs no model. A plan without items means that
// nothing can be computed now; its `ended` may still list sequences that the ranks must forget.
StepPlan PlanStep(const EngineState& state, const PageBook& pages, const PlanLimits& limits,
                  const ModePolicy& policy,
                  std::optional<std::span<const PrefillTurn>> turns = std::nullopt);

// The same, with rows of this sequence alone; those of its prompt end no further than the turn
// says.
StepPlan PlanAlone(const EngineState& state, const PageBook& pages, const PlanLimits& limits,
                   const ModePolicy& policy, const PrefillTurn& turn);

// The rows that PlanStep gives to decoding sequences, those of their drafts included. Pure.
std::vector<StreamRows> RowsOfStreams(const EngineState& state, const PageBook& pages,
                                      const PlanLimits& limits);

// Plans only the next layers of one chunk, which is suspended between layers: the sequence's
// suspended chunk, or else a new one, from its first layer on. A new chunk ends no further than the
// turn says.
//
// PlanStep leaves a sequence with a suspended chunk alone.
StepPlan PlanStretch(const EngineState& state, const PageBook& pages, const PlanLimits& limits,
                     const ModePolicy& policy, const StretchTurn& turn);

// Plans the step after `running`, which has started and whose tokens are not known yet: one more
// row for each of its sequences, with the token that the ranks will know by then (kLastSampled). A
// row is computed in vain if its sequence ends with the row before. Possible only if `running` has
// one sampled row for every sequence that is not paused, and nothing else, and every sequence has
// the page for its next row; otherwise returns nothing. Pure.
std::optional<StepPlan> PlanSuccessor(const StepPlan& running, const EngineState& state,
                                      const PageBook& pages, const PlanLimits& limits);

// Call when `plan`, which was made from this state, is about to run: appends its pages to the page
// tables, marks them in the book as being written, and records what the plan tells the ranks. If
// the step then fails, running sequences continue only after TellAnew.
void StartStep(const StepPlan& plan, const PlanLimits& limits, EngineState& state, PageBook& pages);

// Checks that the ranks' answers fit the plan. Each sampled item whose rows are computed now must
// have one or more tokens from its home rank, at most one per row, and each further token requires
// that the previous one equals the guess in its row. Otherwise INTERNAL. Does not allocate.
absl::Status CheckAnswered(const StepPlan& plan, const std::vector<RankResult>& results);

// Applies a finished step to the state: sampled tokens are appended, computed lengths advance over
// rows that count, fully written pages become complete, lost rows that were computed again are lost
// no more, drafts are cleared. After a stretch that
// does not end its chunk, the chunk is suspended, and nothing else changes.
// `results` must have passed CheckAnswered.
void CommitStep(const StepPlan& plan, const std::vector<RankResult>& results,
                const PlanLimits& limits, EngineState& state, PageBook& pages);

// Removes pages from the page tables that no later row can see, because they have left their
// group's window. They return to their sequence's reserve unless others hold or keep them too. Call
// after CommitStep, and after the step's prefixes have been made known (PrefixReuse::Keep).
void DropOutsideWindows(const PlanLimits& limits, EngineState& state, PageBook& pages);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_SCHEDULER_H_
