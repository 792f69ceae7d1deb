#ifndef ANNULUS_BENCH_MODEL_EMPTY_STEPS_H_
#define ANNULUS_BENCH_MODEL_EMPTY_STEPS_H_

#include "absl/status/statusor.h"
#include "engine/runner/rank_port.h"

namespace annulus::bench {

// Median seconds of a step that has no rows, from its plan until all ranks have ended it: what
// ranks cost a step before they compute anything. For ranks in other processes that is the control
// stream there and back. `ranks` must have no step. Errors of RankPort::Run.
absl::StatusOr<double> EmptyStepSeconds(RankPort& ranks);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_EMPTY_STEPS_H_
