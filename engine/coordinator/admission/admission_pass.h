#ifndef ANNULUS_ENGINE_COORDINATOR_ADMISSION_ADMISSION_PASS_H_
#define ANNULUS_ENGINE_COORDINATOR_ADMISSION_ADMISSION_PASS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/coordinator/admission/prefix_waits.h"
#include "engine/coordinator/admission/request_starter.h"
#include "engine/coordinator/admission/restore_waits.h"
#include "engine/coordinator/document_keeper.h"
#include "engine/coordinator/ledger.h"
#include "engine/coordinator/planning/policy_chooser.h"
#include "engine/coordinator/serving.h"
#include "engine/scheduler/admission.h"
#include "engine/scheduler/owner_slots.h"

namespace annulus {

// One pass over the waiting requests, which begins those that fit, in serving order: what Admission
// asks of the engine. Make a new one for each pass. Used by the coordinator's thread alone.
class AdmissionPass final : public AdmissionHost {
 public:
  // What a pass works with. All of it must outlive the pass.
  struct Parts {
    Ledger& ledger;
    Serving& serving;
    PolicyChooser& policies;
    const DocumentKeeper& documents;
    PrefixWaits& prefix_waits;
    RestoreWaits& restore_waits;
    RequestStarter& starter;
  };
  explicit AdmissionPass(const Parts& parts)
      : use_(parts),
        slots_(parts.serving.CountSlots(parts.ledger.state(), parts.ledger.requests())) {}

  // What the caller must do after the pass.
  struct Outcome {
    std::vector<RequestId> begun;  // that wait no more, because they run
    // Requests that end: the system had no memory for them, or pinned documents or their tenants'
    // quotas leave no room.
    std::vector<std::pair<RequestId, absl::Status>> failed;
    std::vector<RequestId>
        kept;  // that end because their whole prompt, to be read ahead, is cached
  };
  // Runs the pass, and tells those that still wait their place in the queue.
  Outcome Run(SteadyTime now);

  bool HasTime() override;
  bool HasSlot(const Contender& contender) override { return slots_.Has(contender.share.owner()); }
  bool Waits(const Contender& contender, const Contender* large) override;
  Answer TryAdmit(const Contender& contender, const Contender* large) override;

 private:
  // Null: there is no contender.
  const Request* RequestOf(const Contender* contender) const;
  // Whether the request is only to read ahead, and its whole prompt is cached.
  bool IsKept(Request& request);

  const Parts use_;
  OwnerSlots slots_;
  Outcome outcome_;
  int64_t hashed_ = 0;  // prompt tokens
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_ADMISSION_ADMISSION_PASS_H_
