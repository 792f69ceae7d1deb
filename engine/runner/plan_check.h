#ifndef ANNULUS_ENGINE_RUNNER_PLAN_CHECK_H_
#define ANNULUS_ENGINE_RUNNER_PLAN_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/runner/rank_state.h"
#include "engine/state/step_plan.h"

namespace annulus {

// Plans may come from another process, so a rank rejects what it cannot follow with
// INVALID_ARGUMENT instead of failing a CHECK. The codec has checked each plan by itself; these
// functions check it against earlier plans.

// Checks that the model has the heads that the terms want evidence of, in layers without a window,
// and that the kernels can give it.
absl::Status CheckEvidence(const SequenceTerms& terms, const RankModel& model);

// Checks that the update's tables can be applied to what the rank knows about the sequence. Call
// after the update's terms have been applied.
absl::Status CheckTables(const SequenceUpdate& update, const RankSequence& sequence,
                         const RankModel& model);

// Checks that `rank` can run its part of the item. Call after all updates of the step. Every row
// must run where its page is (a sampled row: at home), otherwise its keys and values would not be
// written.
absl::Status CheckItem(const PlanItem& item, const RankSequence& sequence, const RankModel& model,
                       int32_t rank);

// Checks that the plan runs layers that may run now. `suspended`: the chunk of which the plans
// before this one have run some layers; null: none. Call once the ranks have forgotten plan.ended.
absl::Status CheckStretch(const StepPlan& plan, const SuspendedChunk* suspended, int layers);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_PLAN_CHECK_H_
