#include "server/identity/quota_error.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "server/base/errors.h"

namespace annulus::server {

absl::Status QuotaError(const TenantId& tenant, const QuotaRefusal& refusal) {
  const bool helps = refusal.retry.count() > 0;
  absl::Status status = ReasonError(
      absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_QUOTA_EXCEEDED,
      absl::StrCat("the tenant ", tenant.name(), " has used its quota ", QuotaName(refusal.quota),
                   " of ", refusal.limit, "; ",
                   helps ? "try again when the retry delay is over" : "delete documents",
                   ", or ask the operator to raise the quota in the tokens file"),
      {{"quota", QuotaName(refusal.quota)}, {"limit", absl::StrCat(refusal.limit)}});
  return helps ? WithRetry(std::move(status), refusal.retry.count()) : status;
}

absl::Status NoteKvRefusal(absl::Status status, const Caller& caller, QuotaBook& quotas) {
  const char* const name = QuotaName(Quota::kKvBytes);
  if (status.ok() || status.GetPayload(kLimitPayload) != absl::Cord(name)) return status;
  quotas.CountKvRefusal();
  return WithMetadata(std::move(status),
                      {{"quota", name}, {"limit", absl::StrCat(caller.quotas.room.kv_bytes)}});
}

}  // namespace annulus::server
