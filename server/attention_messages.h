#ifndef ANNULUS_SERVER_ATTENTION_MESSAGES_H_
#define ANNULUS_SERVER_ATTENTION_MESSAGES_H_

#include <optional>

#include "absl/status/statusor.h"
#include "annulus/v1/attention.pb.h"
#include "engine/api.h"

namespace annulus {

// The policies that a request names, with its contract; nothing where it leaves the choice to the
// engine. `place` is where the message stands in the request: "spec.attention". INVALID_ARGUMENT
// with the field: no such policy, a value out of range, a contract that the policy cannot keep.
absl::StatusOr<std::optional<AttentionAssignment>> ReadAttention(const v1::AttentionSpec& message,
                                                                 absl::string_view place);

// What to draw, by a policy of the request or else `default_attention`. INVALID_ARGUMENT with the
// field; also where the policy has rules, as a map shows one layer's heads under one policy.
absl::StatusOr<BlockMapSpec> ReadMapRequest(const v1::MapAttentionRequest& request,
                                            const AttentionAssignment& default_attention);

v1::AttentionReport ToMessage(const AttentionReport& report);
v1::MapAttentionResponse ToMessage(const BlockMap& map, const AttentionPolicy& policy);

}  // namespace annulus

#endif  // ANNULUS_SERVER_ATTENTION_MESSAGES_H_
