#ifndef ANNULUS_SERVER_QUOTA_ERROR_H_
#define ANNULUS_SERVER_QUOTA_ERROR_H_

#include "absl/status/status.h"
#include "server/identity/quota_book.h"

namespace annulus {

// RESOURCE_EXHAUSTED: which quota of its tenant a call would exceed, and when to try again.
absl::Status QuotaError(const TenantId& tenant, const QuotaRefusal& refusal);

}  // namespace annulus

#endif  // ANNULUS_SERVER_QUOTA_ERROR_H_
