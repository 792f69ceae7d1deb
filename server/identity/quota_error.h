#ifndef ANNULUS_SERVER_IDENTITY_QUOTA_ERROR_H_
#define ANNULUS_SERVER_IDENTITY_QUOTA_ERROR_H_

#include "absl/status/status.h"
#include "server/identity/quota_book.h"

namespace annulus::server {

// RESOURCE_EXHAUSTED: names the tenant's quota that a call would exceed, and says when to retry or
// what to do.
absl::Status QuotaError(const TenantId& tenant, const QuotaRefusal& refusal);

// Takes the status with which the engine ended a request of `caller`. If the reason is the quota
// kv_bytes, counts the refusal in `quotas` and adds the quota and its limit to the status, as
// QuotaError does. Returns the status.
absl::Status NoteKvRefusal(absl::Status status, const Caller& caller, QuotaBook& quotas);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_IDENTITY_QUOTA_ERROR_H_
