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
#include "engine/scheduler/quantum.h"
#include "engine/state/sequence.h"
#include "engine/state/step_plan.h"

namespace annulus {

// How prefill items exchange: a fixed mode, or the cost model's choice when kAuto.
struct ModePolicy {
  RingMode mode = RingMode::kAuto;
  AttentionGeometry geometry;
  ExchangeRates rates;
  // Most pages of one layer that a rank can take in of its peers in one ring step. An item whose
  // pages would not fit beside those of the items before it is pass-Q, whatever the mode.
  int64_t visiting_pages = std::numeric_limits<int64_t>::max();
};

// The next step of all ranks: one sampled row for every sequence that decodes, behind it rows of
// its draft, and prompt chunks, while no rank gets more than its rows of each kind. Chunk ends fall
// on multiples of ring degree x page, except the last of a prompt and where `turns` says less.
// Where rows run out, sequences take turns by step number; prompts with `turns`, as these order and
// bound them, and no others. Pages come from each sequence's reserve. Pure: reads state and book,
// changes nothing, needs no model. Empty items: nothing can be computed now (`ended` may still hold
// ids that the ranks should forget).
StepPlan PlanStep(const EngineState& state, const PageBook& pages, const PlanLimits& limits,
                  const ModePolicy& policy,
                  std::optional<std::span<const PrefillTurn>> turns = std::nullopt);

// `plan` (from PlanStep on this very state) is about to run: the book says which pages are being
// written.
void StartStep(const StepPlan& plan, const EngineState& state, PageBook& pages);

// Whether the ranks answered as they were asked: each sampled item has tokens of its home rank, as
// many as its rows at most, each row but the first by the token before it. Allocates nothing.
absl::Status CheckAnswered(const StepPlan& plan, const std::vector<RankResult>& results);

// Records that it has run: page tables grow, tokens that were sampled are appended, computed
// lengths advance over the rows that count, pages whose rows are all written are complete. Drafts
// have been used. `results` passed CheckAnswered.
void CommitStep(const StepPlan& plan, const std::vector<RankResult>& results,
                const PlanLimits& limits, EngineState& state, PageBook& pages);

// After CommitStep, and after pages were kept for others: pages of window groups that no later row
// can see go back to their sequence's reserve, unless others have them too.
void DropBehindWindows(const PlanLimits& limits, EngineState& state, PageBook& pages);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_SCHEDULER_H_
