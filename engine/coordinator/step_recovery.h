#ifndef ANNULUS_ENGINE_COORDINATOR_STEP_RECOVERY_H_
#define ANNULUS_ENGINE_COORDINATOR_STEP_RECOVERY_H_

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/steady_time.h"
#include "engine/coordinator/admission/page_growth.h"
#include "engine/coordinator/coordinator_options.h"
#include "engine/coordinator/ledger.h"
#include "engine/coordinator/restore_checks.h"
#include "engine/coordinator/serving.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/state/step_plan.h"

namespace annulus {

// What clients are told of a step that failed. `again`: another step may succeed.
absl::Status StepError(const absl::Status& cause, bool again);

// Lets requests go on after a step has failed on ranks that are up, with the same answer.
//
// If ranks lost their pages, a request keeps its place and what the other ranks hold, and computes
// only the lost rows again (scheduler/repair.h). It is set back, as by a preemption, if it cannot
// (CanRepair), if its policy has only read what was lost, which it began from, or if a tier gives
// that sooner: the prefix before the first lost page stays cached then.
//
// If no page is lost, all that ran is set back. The request that made the step fail is not known,
// so those of the step are suspects. A suspect runs in steps of its own (Sequence::apart), between
// those of all others, until it has computed what failed; if such a step fails too, it is that
// request's doing, and the request ends alone. What fails on the way from one rank to another
// (IsBetweenRanks) is no request's doing, and ends one only if it comes again and again.
// Used by the coordinator's thread alone.
class StepRecovery {
 public:
  // What the recovery works with. All of it must outlive the object.
  struct Parts {
    const CoordinatorOptions& options;
    Ledger& ledger;
    Serving& serving;
    PageGrowth& growth;
    const RestoreChecks& checks;
    EngineMetrics& metrics;
    // Forgets what others wait for of a request that runs, or it of them.
    std::function<void(const Request&)> forget_waits;
    // Ends a request.
    std::function<void(RequestId, absl::Status)> end;
  };
  explicit StepRecovery(Parts parts) : use_(std::move(parts)) {}

  // Call after steps of these plans have failed for `cause`. `lost`: RankPort::TakeLost. The ranks
  // must have forgotten all sequences, or be told with their next step that these ended.
  void Recover(std::span<const StepPlan* const> failed, const absl::Status& cause,
               std::span<const int32_t> lost);

  // Call when ranks have lost their pages, for `cause`, between steps; otherwise as Recover. Those
  // who wait for room may begin then: pins may be lost, and ranks have come back or need no
  // reserve.
  void RecoverLost(const absl::Status& cause, std::span<const int32_t> lost);

  // The suspect that has the next step of its own; nothing if no running request is one. The first
  // in serving order that can compute something now.
  std::optional<SequenceId> RunsAlone(SteadyTime now) const;

  // Call before a step of this plan is committed. Counts the rows that it computed again. Returns
  // the plan without them, for what reports progress and attention; nothing if it has none.
  std::optional<StepPlan> WithoutRepairs(const StepPlan& plan) const;
  // Call after a step of this plan was committed.
  void Passed(const StepPlan& plan);

 private:
  std::vector<SequenceId> Running() const;
  void EndAll(const absl::Status& cause);
  bool SetBack(Request& request, const absl::Status& cause);
  // Whether the request keeps its place.
  bool Repairs(const Request& request) const;
  bool ReadsSooner(const Request& request) const;
  void Keep(Request& request, const absl::Status& cause);

  const Parts use_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_STEP_RECOVERY_H_
