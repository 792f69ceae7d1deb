#ifndef ANNULUS_ENGINE_COORDINATOR_ADMISSION_PAGE_NEEDS_H_
#define ANNULUS_ENGINE_COORDINATOR_ADMISSION_PAGE_NEEDS_H_

#include "absl/status/status.h"
#include "engine/coordinator/coordinator_options.h"
#include "engine/coordinator/ledger.h"
#include "engine/coordinator/serving.h"
#include "engine/request/request.h"
#include "engine/runner/rank_port.h"
#include "engine/scheduler/placement.h"

namespace annulus {

// Says how many pages requests need: all that they can ever need, so that they cannot run out
// later, or those that they are expected to need. Used by the coordinator's thread alone.
class PageNeeds {
 public:
  // The references must outlive the object.
  PageNeeds(const CoordinatorOptions& options, const RankPort& ranks, const Ledger& ledger,
            const Serving& serving)
      : options_(options), ranks_(ranks), ledger_(ledger), serving_(serving) {}

  // What the request needs if nothing of it is cached.
  PageDemand Of(const Request& request) const;
  // The same under the policies that it will have; null: dense.
  PageDemand Of(const RequestSpec& spec, const AttentionAssignment* attention) const;

  // UNAVAILABLE if the ring goes on without some of its ranks, and the others together have not the
  // pages that the request may need.
  absl::Status CheckFits(const Request& request) const;

  // Whether the request reserves only the pages that it is expected to need. Such a request grows
  // and may be preempted; any other one reserves all pages at admission.
  bool ReservesExpected(const RequestSpec& spec, const AttentionAssignment* attention) const;

 private:
  void ReserveExpected(const RequestSpec& spec, PageDemand& demand) const;

  const CoordinatorOptions& options_;
  const RankPort& ranks_;
  const Ledger& ledger_;
  const Serving& serving_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_ADMISSION_PAGE_NEEDS_H_
