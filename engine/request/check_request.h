#ifndef ANNULUS_ENGINE_REQUEST_CHECK_REQUEST_H_
#define ANNULUS_ENGINE_REQUEST_CHECK_REQUEST_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "engine/api/request.h"
#include "engine/runner/rank_model.h"
#include "engine/sparse/assignment.h"

// Checks of a request before it enters the queue. INVALID_ARGUMENT says what is allowed.

namespace annulus {

absl::Status CheckPrefixes(const RequestSpec& spec);

// RequestSpec::pin and ttl.
absl::Status CheckKeeping(const RequestSpec& spec);

// RESOURCE_EXHAUSTED with kLimitPayload "kv_bytes": the tenant may have `allowed` bytes of keys and
// values, has `held` that cannot make room, and the request needs `needed` more. `retry_ms`: when
// to try again; absent: time alone does not help.
absl::Status TenantFullError(int64_t needed, int64_t held, int64_t allowed,
                             std::optional<int64_t> retry_ms);
// Whether a request that needs `needed` bytes fits the tenant's quota if the tenant holds nothing
// else.
absl::Status CheckTenantRoom(const RequestSpec& spec, int64_t needed);

// Whether the kernels have all operations that policies need to score blocks.
bool CanScoreBlocks(const OpTable& ops);

// Whether the model has what the policy needs beyond CheckPolicy: gates, kernels that score blocks.
absl::Status CheckMeans(const AttentionPolicy& policy, const RankModel& model);

// CheckAssignment for the model, and CheckMeans of all its policies.
absl::Status CheckAttention(const AttentionAssignment& attention, const RankModel& model);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_REQUEST_CHECK_REQUEST_H_
