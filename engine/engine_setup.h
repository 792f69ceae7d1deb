#ifndef ANNULUS_ENGINE_ENGINE_SETUP_H_
#define ANNULUS_ENGINE_ENGINE_SETUP_H_

#include "absl/status/status.h"
#include "engine/api/options.h"
#include "engine/runner/rank_model.h"
#include "engine/runner/rank_set.h"
#include "engine/scheduler/placement.h"
#include "engine/scheduler/scheduler.h"
#include "kernels/backend.h"

// Settings that follow from EngineOptions, for engines that run and for those that are only
// planned.

namespace annulus {

// INVALID_ARGUMENT: a value that its row of VisitOptions does not allow; the message says what is.
// Sizes of memory are checked by those that take it, who know how much they need.
absl::Status CheckOptions(const EngineOptions& options);

// Returns the options with everything chosen that they leave to the engine and that does not depend
// on the model: threads, stall_budget and speculation. The functions below, the ranks and the
// coordinator take such options.
EngineOptions Settle(EngineOptions options, const Backend& backend);

PlanLimits PlanLimitsOf(const EngineOptions& options, const RankModel& model);

RankSetOptions RankSetOptionsOf(const EngineOptions& options, const PlanLimits& limits);

// How ring modes are chosen, by rates that were measured or read from a profile.
ModePolicy ModePolicyOf(const EngineOptions& options, const RankModel& model,
                        const ExchangeRates& rates);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_ENGINE_SETUP_H_
