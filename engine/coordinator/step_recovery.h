#ifndef ANNULUS_ENGINE_COORDINATOR_STEP_RECOVERY_H_
#define ANNULUS_ENGINE_COORDINATOR_STEP_RECOVERY_H_

#include <functional>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "engine/base/steady_time.h"
#include "engine/coordinator/admission/page_growth.h"
#include "engine/coordinator/ledger.h"
#include "engine/coordinator/restore_checks.h"
#include "engine/coordinator/serving.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/state/step_plan.h"

namespace annulus {

// What clients are told of a step that failed. `again`: another step may succeed.
absl::Status StepError(const absl::Status& cause, bool again);

// Lets requests go on after a step has failed on ranks that are up. All that ran is set back, as by
// a preemption, and goes on with the same answer.
//
// The request that made the step fail is not known, so those of the step are suspects. A suspect
// runs in steps of its own until it has computed what failed; if such a step fails too, it is that
// request's doing, and the request ends alone. Nobody is a suspect if a rank lost its pages. Used
// by the coordinator's thread alone.
class StepRecovery {
 public:
  // What the recovery works with. All of it must outlive the object.
  struct Parts {
    Ledger& ledger;
    const Serving& serving;
    PageGrowth& growth;
    const RestoreChecks& checks;
    EngineMetrics& metrics;
    // Ends a request.
    std::function<void(RequestId, absl::Status)> end;
  };
  explicit StepRecovery(Parts parts) : use_(std::move(parts)) {}

  // Call after steps of these plans have failed for `cause`. `lost`: RankPort::lost. The ranks must
  // have forgotten all sequences, or be told with their next step that these ended.
  void Recover(std::span<const StepPlan* const> failed, const absl::Status& cause,
               std::span<const int32_t> lost);

  // The suspect that the next step is for; nothing if no running request is one. The first in
  // serving order that can compute something now.
  std::optional<SequenceId> RunsAlone(SteadyTime now) const;

  // Call after a step of this plan was committed.
  void Passed(const StepPlan& plan);

 private:
  const Parts use_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_STEP_RECOVERY_H_
