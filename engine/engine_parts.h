#ifndef ANNULUS_ENGINE_ENGINE_PARTS_H_
#define ANNULUS_ENGINE_ENGINE_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api/load.h"
#include "engine/api/options.h"
#include "engine/base/clock.h"
#include "engine/coordinator/coordinator.h"
#include "engine/engine_seams.h"
#include "engine/exchange/find_exchange.h"
#include "engine/loading/loaded_model.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/pages/page_stores.h"
#include "engine/runner/rank_port.h"
#include "engine/scheduler/placement.h"
#include "kernels/backend.h"
#include "kernels/registry.h"

namespace annulus {

// What an engine consists of once it runs. The parts point to each other, so it stays where
// StartParts made it. Each part says itself what several threads may call.
struct EngineParts {
  const Clock& clock() const { return *seams.clock; }
  bool has_workers() const { return seams.workers.source != nullptr; }
  // EngineWorkers::tolerated_ranks; 0 without workers.
  int tolerated_ranks() const { return has_workers() ? seams.workers.tolerated_ranks : 0; }
  // The ranks of this process.
  RankSpan span() const {
    RankSpan span = options.span();
    if (has_workers()) span.local = seams.workers.local_ranks;
    return span;
  }
  // Of a page of keys and values on the rank.
  int64_t page_bytes(int rank) const { return ranks->facts()[rank].page_bytes; }

  EngineOptions options;  // settled
  EngineSeams seams;
  LoadedModel model;
  std::vector<LayerHead> evidence_heads;  // FindEvidenceHeads
  EvidenceShape evidence_shape;           // of these heads
  EvidenceRoom evidence_room;
  PlanLimits limits;
  FoundExchange exchange;
  size_t program_bytes = 0;  // host memory of the process without the weights, after loading them
  MemoryPlan plan;
  std::unique_ptr<EngineMetrics> metrics;
  std::unique_ptr<RankPort> ranks;
  RankShelves* shelves = nullptr;  // GatheredRanks::shelves
  std::unique_ptr<PageStores> stores;
  std::unique_ptr<Coordinator> coordinator;  // last: ends first
};

// Loads the model, opens the ring and the tiers, takes all memory of the ranks and starts the loop.
// `seams`, `backend` and `kernels` as for CreateEngineWith. INVALID_ARGUMENT: an option that
// CheckOptions, CheckAttention or FindEvidenceHeads refuses; RESOURCE_EXHAUSTED: see CheckPlan;
// otherwise the errors of LoadModel, FindExchange, RankSet::Create and PageStores::Open.
absl::StatusOr<std::unique_ptr<const EngineParts>> StartParts(const EngineSeams& seams,
                                                              const EngineOptions& options,
                                                              Backend& backend,
                                                              const KernelRegistry& kernels);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_ENGINE_PARTS_H_
