#ifndef ANNULUS_ENGINE_COORDINATOR_ADMISSION_PREFIX_WAITS_H_
#define ANNULUS_ENGINE_COORDINATOR_ADMISSION_PREFIX_WAITS_H_

#include <cstdint>
#include <map>
#include <utility>

#include "engine/base/clock.h"
#include "engine/coordinator/coordinator_options.h"
#include "engine/coordinator/ledger.h"
#include "engine/request/request.h"
#include "engine/scheduler/standstill.h"

namespace annulus {

// Lets a request wait while a running one computes the beginning of its prompt: to wait for those
// pages is faster than to compute them a second time. If the running request ends early, its pages
// are kept, and the waiting one goes on from there; if it stands still, nobody waits for it. Used
// by the coordinator's thread alone.
class PrefixWaits {
 public:
  // The references must outlive the object.
  PrefixWaits(const CoordinatorOptions& options, Ledger& ledger, const Clock& clock)
      : options_(options), ledger_(ledger), clock_(clock) {}

  // Whether the waiting request waits for a running one. When that one has computed what both begin
  // with, makes it known and returns false.
  bool Waits(const Request& request);
  // Call when the request has ended or is preempted, before its sequence ends.
  void Forget(const Request& request);

 private:
  const CoordinatorOptions& options_;
  Ledger& ledger_;
  const Clock& clock_;
  // For a waiting request and one whose prompt is being computed: how many reusable tokens their
  // prompts have in common (PrefixReuse::Common).
  std::map<std::pair<RequestId, RequestId>, int32_t> common_;
  // For the one being computed: up to which token its prompt has been made known for others.
  std::map<RequestId, int32_t> kept_;
  Standstill standstill_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_ADMISSION_PREFIX_WAITS_H_
