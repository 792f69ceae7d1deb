#ifndef ANNULUS_ENGINE_COORDINATOR_RESTORE_CHECKS_H_
#define ANNULUS_ENGINE_COORDINATOR_RESTORE_CHECKS_H_

#include <map>

#include "engine/base/clock.h"
#include "engine/coordinator/admission/page_needs.h"
#include "engine/coordinator/admission/sequence_maker.h"
#include "engine/coordinator/admission/start_finder.h"
#include "engine/coordinator/coordinator_options.h"
#include "engine/coordinator/ledger.h"
#include "engine/memory/page_owner.h"
#include "engine/pages/page_restorer.h"
#include "engine/request/request.h"

namespace annulus {

// Checks pages that the tier read back: computes one of them again, as the last page of a prompt
// whose earlier pages are cached, in a sequence without a client. Used by the coordinator's thread
// alone.
class RestoreChecks {
 public:
  // What the checks work with. All of it must outlive the object.
  struct Parts {
    const CoordinatorOptions& options;
    Ledger& ledger;
    const PageNeeds& needs;
    StartFinder& finder;
    const SequenceMaker& sequences;
    const Clock& clock;
  };
  explicit RestoreChecks(const Parts& parts) : use_(parts) {}

  // Begins the checks that wait, as many as find a slot (EngineOptions::max_running) and room;
  // the others wait on. Each is served as the request that waits for it.
  void Begin();
  // Ends a check, whose request was taken from the ledger. `computed`: whether its page was. The
  // restored pages become known, or are dropped: see PageRestorer::EndCheck.
  void End(const Request& request, bool computed);

  // Whether this is the sequence of a check that runs.
  bool Has(SequenceId id) const { return restores_.contains(id); }
  int count() const { return static_cast<int>(restores_.size()); }

 private:
  // Returns false if there is no room.
  bool BeginOne(PageRestorer::Check check);
  RequestSpec SpecOf(PageRestorer::Check& check) const;

  const Parts use_;
  SequenceId next_ = kFirstCheck;
  std::map<SequenceId, PageOwner> restores_;  // running checks, with the restore that each is for
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_RESTORE_CHECKS_H_
