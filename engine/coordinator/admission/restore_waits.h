#ifndef ANNULUS_ENGINE_COORDINATOR_ADMISSION_RESTORE_WAITS_H_
#define ANNULUS_ENGINE_COORDINATOR_ADMISSION_RESTORE_WAITS_H_

#include <cstdint>
#include <optional>

#include "engine/coordinator/admission/page_needs.h"
#include "engine/coordinator/admission/start_finder.h"
#include "engine/coordinator/admission/tenant_quota.h"
#include "engine/coordinator/coordinator_options.h"
#include "engine/coordinator/ledger.h"
#include "engine/coordinator/serving.h"
#include "engine/request/request.h"

namespace annulus {

// Lets a request wait while the tier reads back the beginning of its prompt, and has the tier read
// it: if the tier has more of it than memory, there is room, and reading is faster than computing
// (RestoreVerdicts). Used by the coordinator's thread alone.
class RestoreWaits {
 public:
  // The references must outlive the object.
  RestoreWaits(const CoordinatorOptions& options, Ledger& ledger, const Serving& serving,
               const PageNeeds& needs, StartFinder& finder, TenantQuota& quota)
      : options_(options),
        ledger_(ledger),
        serving_(serving),
        needs_(needs),
        finder_(finder),
        quota_(quota) {}

  // Whether the waiting request waits for the tier. `large`: see StartFinder. Adds the tokens that
  // it hashed to `hashed`.
  bool Waits(const Request& request, const Request* large, int64_t& hashed);

 private:
  std::optional<AttentionAssignment> OwnPolicies(const Request& request) const;
  // The verdict on a request that has none yet. `begun`: its restore has begun.
  RestoreVerdicts::Verdict Judge(const Request& request, const Request* large, PageOwner owner,
                                 bool& begun);
  bool Begin(const Request& request, SavedBeginning& saved, const PrefixReuse::Found* before,
             PageOwner owner, const Request* large);

  const CoordinatorOptions& options_;
  Ledger& ledger_;
  const Serving& serving_;
  const PageNeeds& needs_;
  StartFinder& finder_;
  TenantQuota& quota_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_ADMISSION_RESTORE_WAITS_H_
