#ifndef ANNULUS_ENGINE_ENGINE_SETUP_H_
#define ANNULUS_ENGINE_ENGINE_SETUP_H_

#include "absl/status/status.h"
#include "engine/api/options.h"
#include "engine/runner/rank_model.h"
#include "engine/runner/rank_set.h"
#include "engine/scheduler/placement.h"
#include "kernels/backend.h"

// What follows from EngineOptions alone, for engines that run and for those that are planned.

namespace annulus {

// INVALID_ARGUMENT: a number out of its range, which the message gives.
absl::Status CheckOptions(const EngineOptions& options);

PlanLimits PlanLimitsOf(const EngineOptions& options, const RankModel& model);

RankSetOptions RankSetOptionsOf(const EngineOptions& options, const PlanLimits& limits,
                                const Backend& backend);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_ENGINE_SETUP_H_
