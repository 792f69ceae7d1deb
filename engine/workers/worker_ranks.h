#ifndef ANNULUS_ENGINE_WORKERS_WORKER_RANKS_H_
#define ANNULUS_ENGINE_WORKERS_WORKER_RANKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/api/options.h"
#include "engine/base/clock.h"
#include "engine/ring/wire/carrier.h"
#include "engine/runner/rank_set.h"
#include "engine/workers/ring_agreement.h"
#include "engine/workers/worker_board.h"
#include "engine/workers/worker_link.h"
#include "kernels/backend.h"

namespace annulus {

struct WorkerRanksOptions {
  std::string name;      // for people
  int ranks = 1;         // that the worker hosts
  EngineOptions engine;  // settled; what Assign says replaces its own
  RingAgreement agreement;
  // Opens the carrier of a rank's wire.
  std::function<absl::StatusOr<std::unique_ptr<Carrier>>()> open_carrier;
  // Refuses ranks for which there is no room, with the numbers. Null: nobody does.
  std::function<absl::Status(const RankSetOptions&)> check_memory;
  // Told once, with the rank, if a rank does not end within the exchange timeout though the service
  // is over, or if its wire hangs in a probe of links, which ends the service. ServeRanks then
  // waits for it without a bound, as the rank uses what the caller owns: whoever cannot wait ends
  // the process in this call. Null: nobody is told.
  std::function<void(const absl::Status&)> on_stuck = nullptr;
  // Told of what the worker does; must outlive the call of ServeRanks. Null: nobody is.
  WorkerBoard* board = nullptr;
  // The clock of all timeouts; not null, and must outlive the call of ServeRanks.
  const Clock* clock = &Clock::Real();
};

// The worker's side of a ring over processes: hosts the ranks that the coordinator at the other end
// of `link` assigns (RankSet), and runs the steps that it sends; until it assigns some, the worker
// waits as a spare. Uses the calling thread, and one for beats. Returns once the link is closed and
// all ranks have ended:
// - OK if the coordinator closed it with OK;
// - the coordinator's status if it closed the link with another;
// - INVALID_ARGUMENT, after closing the link, if what it sent cannot be understood;
// - the status for which the ranks cannot go on: no memory (RESOURCE_EXHAUSTED, with numbers), no
//   wires, a rank that ended too late or a wire that hangs (see on_stuck);
// - UNAVAILABLE if the coordinator has fallen silent, by the limit that it has told. The ranks have
//   let go of its steps.
// A step that fails ends nobody: the coordinator is told why, and aborts the epoch.
//
// `link` must not be started; `model` and `backend` must outlive the call.
absl::Status ServeRanks(const RankModel& model, Backend& backend, const WorkerRanksOptions& options,
                        WorkerLink& link);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_WORKERS_WORKER_RANKS_H_
