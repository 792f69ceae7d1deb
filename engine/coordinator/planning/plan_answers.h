#ifndef ANNULUS_ENGINE_COORDINATOR_PLANNING_PLAN_ANSWERS_H_
#define ANNULUS_ENGINE_COORDINATOR_PLANNING_PLAN_ANSWERS_H_

#include "engine/api/plan.h"
#include "engine/base/clock.h"
#include "engine/coordinator/admission/page_needs.h"
#include "engine/coordinator/admission/start_finder.h"
#include "engine/coordinator/admission/tenant_quota.h"
#include "engine/coordinator/coordinator_options.h"
#include "engine/coordinator/ledger.h"
#include "engine/coordinator/planning/policy_chooser.h"
#include "engine/coordinator/serving.h"
#include "engine/runner/rank_port.h"

namespace annulus {

// Says what a request would take if it were submitted now: see Engine::Plan. Takes and frees no
// page. Used by the coordinator's thread alone.
class PlanAnswers {
 public:
  // What the answers are made of. All of it must outlive the object.
  struct Parts {
    const CoordinatorOptions& options;
    const RankPort& ranks;
    Ledger& ledger;
    const Serving& serving;
    PolicyChooser& policies;
    const PageNeeds& needs;
    StartFinder& finder;
    const TenantQuota& quota;
    const Clock& clock;
  };
  explicit PlanAnswers(const Parts& parts) : use_(parts) {}

  // Requires that Engine::Validate accepts `spec`. The cached prefix that it finds counts as used.
  RequestPlan Answer(const RequestSpec& spec);

 private:
  // Where it would begin: tries the candidates in the order in which its admission would. Sets
  // `hit`, which points into `found`, to what it would reuse; null: nothing.
  std::optional<RingChoice> ChooseNow(const RequestSpec& spec, const PageDemand& demand,
                                      std::vector<PrefixReuse::Found>& found,
                                      const PrefixIndex::Hit*& hit);
  // Fills in where it would begin, now or once there is room.
  RingChoice PlanStart(const RequestSpec& spec, const AttentionAssignment* attention,
                       RequestPlan& plan);
  void DescribeRanks(const RingChoice& choice, const PrefixIndex::Hit* hit,
                     RequestPlan& plan) const;

  const Parts use_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_PLANNING_PLAN_ANSWERS_H_
