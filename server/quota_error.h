#ifndef ANNULUS_SERVER_QUOTA_ERROR_H_
#define ANNULUS_SERVER_QUOTA_ERROR_H_

#include "absl/status/status.h"
#include "server/identity/quota_book.h"

namespace annulus {

// RESOURCE_EXHAUSTED: which quota of its tenant a call would exceed, and when to try again.
absl::Status QuotaError(const TenantId& tenant, const QuotaRefusal& refusal);

// What the engine ended a request of `caller` with. Where that is for want of kv_bytes, `quotas`
// counts the refusal, and the status tells the quota and its limit as QuotaError does.
absl::Status NoteKvRefusal(absl::Status status, const Caller& caller, QuotaBook& quotas);

}  // namespace annulus

#endif  // ANNULUS_SERVER_QUOTA_ERROR_H_
