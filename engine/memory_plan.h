#ifndef ANNULUS_ENGINE_MEMORY_PLAN_H_
#define ANNULUS_ENGINE_MEMORY_PLAN_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/api/load.h"
#include "engine/runner/rank_set.h"

namespace annulus {

// What ranks would take of their devices, now that weights are loaded. `program`: what the process
// holds in the host's memory beside them, which counts where that is the device's. Errors of asking
// a device for its free memory.
absl::StatusOr<MemoryPlan> PlanMemory(const RankModel& model, const RankSetOptions& ranks,
                                      size_t program, Backend& backend);

// RESOURCE_EXHAUSTED, with all the numbers and what to do, where that is more than is free, and the
// most that --kv-memory may be for all `ranks`, however many share the device;
// OfDevice where it would do if nobody else held memory of the device. Each allocation is checked
// by the backend on its own, but pages of the host's memory are only taken as they fill, and a
// device has other users: what cannot all be there at once is refused now.
absl::Status CheckPlan(const MemoryPlan& plan, int ranks);

// Bytes of keys and values of all ranks if --kv-memory is not given: a quarter of the memory; for
// devices with memory of their own, less by as much as would not fit there.
absl::StatusOr<size_t> DefaultKvMemory(const RankModel& model, RankSetOptions ranks,
                                       Backend& backend);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_PLAN_H_
