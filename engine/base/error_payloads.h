#ifndef ANNULUS_ENGINE_BASE_ERROR_PAYLOADS_H_
#define ANNULUS_ENGINE_BASE_ERROR_PAYLOADS_H_

// Names of the payloads that an absl::Status carries beside its message.

namespace annulus {

// What an error is about: "input" (the prompt), "sampling.top_p", "sampling.stop[2]".
inline constexpr char kFieldPayload[] = "annulus/field";
// What of an OUT_OF_RANGE error is too small for the request: "context", "memory", or, where the
// prompt fits and the answer does not, "answer". Of a RESOURCE_EXHAUSTED completion: "pinned", if
// pinned documents take what it needs, or would take more than they may; "kv_bytes", if its tenant
// may not have so much (TenantRoom), with kRetryPayload if waiting helps; "reader", if the sink had
// no room for too long.
inline constexpr char kLimitPayload[] = "annulus/limit";
// What went wrong inside, for the server's log; never for clients.
inline constexpr char kCausePayload[] = "annulus/cause";
inline constexpr char kRetryPayload[] = "annulus/retry_ms";

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_ERROR_PAYLOADS_H_
