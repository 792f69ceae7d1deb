#ifndef ANNULUS_ENGINE_ENGINE_WORKERS_H_
#define ANNULUS_ENGINE_ENGINE_WORKERS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/api.h"
#include "engine/engine_seams.h"
#include "engine/loading/loaded_model.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/runner/rank_port.h"
#include "engine/runner/rank_set.h"
#include "engine/tiers/rank_shelves.h"
#include "kernels/backend.h"

// What an engine does differently if some of its ranks are at workers, and the workers' side.

namespace annulus {

// INVALID_ARGUMENT: an option that does not go together with ranks at workers.
absl::Status CheckWorkers(const EngineOptions& options, const EngineWorkers& workers);

struct GatheredRanks {
  std::unique_ptr<RankPort> ranks;
  // Beside them, if kv_host_bytes are set; else null. Lives as long as the ranks.
  RankShelves* shelves = nullptr;
};

// Waits for the workers: see RemoteRanks::Create; INVALID_ARGUMENT if kv_host_bytes are too few.
// `set`: of the ranks here; `kv_bytes`: of all ranks together; `metrics` counts what breaks the
// ring. `model`, `backend` and `metrics` must outlive the ranks, as what `seams` points to.
absl::StatusOr<GatheredRanks> GatherRanks(const EngineSeams& seams, const LoadedModel& model,
                                          Backend& backend, const RankSetOptions& set,
                                          size_t kv_bytes, EngineMetrics& metrics);

// CreateWorker with `seams`, of which only the clock and open_carrier count.
absl::StatusOr<std::unique_ptr<Worker>> CreateWorkerWith(const EngineSeams& seams,
                                                         const EngineOptions& options,
                                                         const WorkerOptions& worker,
                                                         Backend& backend,
                                                         const KernelRegistry& kernels);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_ENGINE_WORKERS_H_
