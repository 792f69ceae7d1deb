#ifndef ANNULUS_SERVER_GENERATION_ATTENTION_MESSAGES_H_
#define ANNULUS_SERVER_GENERATION_ATTENTION_MESSAGES_H_

#include <optional>

#include "absl/status/statusor.h"
#include "annulus/v1/attention.pb.h"
#include "engine/api.h"

namespace annulus::server {

// Returns the policies that a request names, with the coverage it asks for; nullopt if it leaves
// the choice to the engine. `place` is the path of the message in the request: "spec.attention".
// INVALID_ARGUMENT with the field if there is no such policy, a value is out of range, or the
// policy cannot guarantee a coverage.
absl::StatusOr<std::optional<AttentionAssignment>> ReadAttention(const v1::AttentionSpec& message,
                                                                 absl::string_view place);

// Returns the map to draw, for the policy of the request or else `default_attention`.
// INVALID_ARGUMENT with the field if a value is not allowed, or if the policy has rules, because a
// map shows the heads of one layer under one policy.
absl::StatusOr<BlockMapSpec> ReadMapRequest(const v1::MapAttentionRequest& request,
                                            const AttentionAssignment& default_attention);

v1::AttentionReport ToMessage(const AttentionReport& report);
v1::MapAttentionResponse ToMessage(const BlockMap& map, const AttentionPolicy& policy);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_ATTENTION_MESSAGES_H_
