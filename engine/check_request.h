#ifndef ANNULUS_ENGINE_CHECK_REQUEST_H_
#define ANNULUS_ENGINE_CHECK_REQUEST_H_

#include "absl/status/status.h"
#include "engine/api/request.h"
#include "engine/runner/rank_model.h"
#include "engine/sparse/assignment.h"

// What is checked of a request before it waits. INVALID_ARGUMENT says what is allowed.

namespace annulus {

absl::Status CheckPrefixes(const RequestSpec& spec);

// RequestSpec::pin and ttl.
absl::Status CheckKeeping(const RequestSpec& spec);

// Whether the model has what the policy needs beyond CheckPolicy: gates, kernels that score blocks.
absl::Status CheckMeans(const AttentionPolicy& policy, const RankModel& model);

// CheckAssignment for the model, and CheckMeans of all its policies.
absl::Status CheckAttention(const AttentionAssignment& attention, const RankModel& model);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_CHECK_REQUEST_H_
