#ifndef ANNULUS_ENGINE_COORDINATOR_ADMISSION_TENANT_QUOTA_H_
#define ANNULUS_ENGINE_COORDINATOR_ADMISSION_TENANT_QUOTA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/coordinator/ledger.h"
#include "engine/coordinator/serving.h"
#include "engine/request/request.h"
#include "engine/runner/rank_port.h"
#include "engine/scheduler/placement.h"

namespace annulus {

// Limits how many bytes of the ranks' pages a tenant may have (TenantRoom::kv_bytes; 0: no limit).
// Pages that are cached for the tenant count, and are freed for its own requests first. `choice`
// below: the pages that a request of `spec` would take, besides the cached ones that it uses. Used
// by the coordinator's thread alone.
class TenantQuota {
 public:
  // The references must outlive the object.
  TenantQuota(const RankPort& ranks, const PlanLimits& limits, Ledger& ledger,
              const Serving& serving)
      : ranks_(ranks), limits_(limits), ledger_(ledger), serving_(serving) {}

  // Whether the tenant may have what `choice` takes once all its pages that are only cached are
  // freed.
  bool MayHave(const RequestSpec& spec, const RingChoice& choice) const;
  // The same, once no page is held only to be written to a disk, which it ends if that helps.
  bool FindRoom(const RequestSpec& spec, const RingChoice& choice);
  // Frees the tenant's own cached prefixes until it may have what `choice` takes. False: all are
  // freed, and it still may not.
  bool MakeRoom(const RequestSpec& spec, const RingChoice& choice);
  // RESOURCE_EXHAUSTED: the tenant may not have what `choice` takes now. With a retry hint if pages
  // of the tenant will become free.
  absl::Status FullError(const RequestSpec& spec, const RingChoice& choice) const;

 private:
  int64_t NewBytes(const RingChoice& choice) const;
  int64_t BytesOf(int64_t pages) const;

  const RankPort& ranks_;
  const PlanLimits& limits_;
  Ledger& ledger_;
  const Serving& serving_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_ADMISSION_TENANT_QUOTA_H_
