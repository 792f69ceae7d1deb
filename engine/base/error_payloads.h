#ifndef ANNULUS_ENGINE_BASE_ERROR_PAYLOADS_H_
#define ANNULUS_ENGINE_BASE_ERROR_PAYLOADS_H_

// Names of the payloads that an absl::Status carries in addition to its message.

namespace annulus {

// The field that an error is about: "input" (the prompt), "sampling.top_p", "sampling.stop[2]".
inline constexpr char kFieldPayload[] = "annulus/field";
// The limit that a request exceeds. In an OUT_OF_RANGE error:
// - "context", "memory";
// - "answer": the prompt fits in memory, but not together with the answer.
// In a RESOURCE_EXHAUSTED completion:
// - "pinned": pinned documents take the memory that it needs, or would take more than they may, or
//   (with kRetryPayload) too much beside the answers that are being generated;
// - "kv_bytes": the quota of its tenant (TenantRoom), with kRetryPayload if waiting helps;
// - "reader": the sink had no room for too long.
inline constexpr char kLimitPayload[] = "annulus/limit";
// The internal cause, for the server's log; never for clients.
inline constexpr char kCausePayload[] = "annulus/cause";
inline constexpr char kRetryPayload[] = "annulus/retry_ms";

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_ERROR_PAYLOADS_H_
