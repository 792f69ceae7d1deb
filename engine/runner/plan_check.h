#ifndef ANNULUS_ENGINE_RUNNER_PLAN_CHECK_H_
#define ANNULUS_ENGINE_RUNNER_PLAN_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/runner/rank_executor.h"
#include "engine/state/step_plan.h"

namespace annulus {

// A plan may come from another process: what a rank cannot follow is INVALID_ARGUMENT, never a
// failed CHECK. The codec has looked at each plan by itself; here it is held against what the
// plans before it have said.

// Whether the update's tables can be added to what the rank knows of the sequence. Its terms have
// been applied.
absl::Status CheckTables(const SequenceUpdate& update, const RankSequence& sequence,
                         const RankModel& model);

// Whether `rank` can run its part of the item, all updates of the step applied. Every row runs
// where its pages are, or at home if it is sampled: else its keys and values would stay unwritten.
absl::Status CheckItem(const PlanItem& item, const RankSequence& sequence, const RankModel& model,
                       int32_t rank);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_PLAN_CHECK_H_
