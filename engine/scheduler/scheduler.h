#ifndef ANNULUS_ENGINE_SCHEDULER_SCHEDULER_H_
#define ANNULUS_ENGINE_SCHEDULER_SCHEDULER_H_

#include <cstdint>
#include <limits>

#include "engine/scheduler/cost_model.h"
#include "engine/scheduler/placement.h"
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

// The next step of all ranks: one sampled row for every sequence that decodes, and prompt chunks,
// while no rank gets more than its rows of each kind. Chunk ends fall on multiples of ring degree x
// page, except the last of a prompt. Where rows run out, sequences take turns by step number. Pure:
// reads the state, changes nothing, needs no model. Empty items: nothing can be computed now
// (`ended` may still hold ids that the ranks should forget).
StepPlan PlanStep(const EngineState& state, const PlanLimits& limits, const ModePolicy& policy);

// Records that `plan` (from PlanStep on this very state) has run: page tables grow, computed
// lengths advance.
void CommitStep(const StepPlan& plan, const PlanLimits& limits, EngineState& state);

// After CommitStep, and after pages were shared with whoever keeps them: window groups give the
// pages that no later row can see back to their sequence.
void DropBehindWindows(const PlanLimits& limits, EngineState& state);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_SCHEDULER_H_
