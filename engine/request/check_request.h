#ifndef ANNULUS_ENGINE_REQUEST_CHECK_REQUEST_H_
#define ANNULUS_ENGINE_REQUEST_CHECK_REQUEST_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "engine/api/load.h"
#include "engine/api/request.h"
#include "engine/runner/rank_model.h"
#include "engine/sparse/assignment.h"

// Checks of a request before it enters the queue. INVALID_ARGUMENT says what is allowed.

namespace annulus {

// Checks RequestSpec::shared_prefixes. INVALID_ARGUMENT.
absl::Status CheckPrefixes(const RequestSpec& spec);

// Checks RequestSpec::output: whether the answer can end. INVALID_ARGUMENT.
absl::Status CheckOutput(const RequestSpec& spec, const ModelInfo& model);

// Checks RequestSpec::pin and ttl. INVALID_ARGUMENT.
absl::Status CheckKeeping(const RequestSpec& spec);

// Returns RESOURCE_EXHAUSTED with kLimitPayload "kv_bytes": the tenant may have `allowed` bytes of
// keys and values, holds `held` bytes that cannot be evicted, and the request needs `needed` more.
// `retry_ms`: when to try again; absent: waiting does not help.
absl::Status TenantFullError(int64_t needed, int64_t held, int64_t allowed,
                             std::optional<int64_t> retry_ms);
// Checks that a request of `needed` bytes fits its tenant's quota if the tenant holds nothing else.
// Error: TenantFullError.
absl::Status CheckTenantRoom(const RequestSpec& spec, int64_t needed);

// Whether the kernels have all operations that policies need to score blocks.
bool CanScoreBlocks(const OpTable& ops);

// Checks that the engine has what the policy needs: gates, and kernels that score blocks.
// INVALID_ARGUMENT. Does not check the policy's parameters: see CheckPolicy.
absl::Status CheckMeans(const AttentionPolicy& policy, const RankModel& model);

// Checks an assignment for the model: CheckAssignment, and CheckMeans of each of its policies.
absl::Status CheckAttention(const AttentionAssignment& attention, const RankModel& model);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_REQUEST_CHECK_REQUEST_H_
