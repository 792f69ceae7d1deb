#ifndef ANNULUS_ENGINE_API_REQUEST_H_
#define ANNULUS_ENGINE_API_REQUEST_H_

// A generation request: the prompt, how to sample, and what to report.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/answer.h"
#include "engine/api/options.h"
#include "engine/api/output.h"
#include "engine/base/steady_time.h"
#include "engine/base/tenant_id.h"
#include "engine/sparse/assignment.h"

namespace annulus {

using RequestId = uint64_t;

// Sampling parameters. Order of application: logit_bias, penalties, temperature, top_k, top_p,
// min_p, draw.
struct SamplingParams {
  int32_t max_tokens = 256;             // >= 1
  int32_t min_tokens = 0;               // end-of-text ids and stops cannot end the answer before
  float temperature = 1;                // 0: greedy; else (0, 2]
  float top_p = 1;                      // (0, 1]
  int32_t top_k = 0;                    // 0: off
  float min_p = 0;                      // [0, 1]
  float frequency_penalty = 0;          // [-2, 2], over generated tokens
  float presence_penalty = 0;           // [-2, 2], over generated tokens
  float repetition_penalty = 1;         // (0, 10], over prompt and generated tokens
  std::optional<uint64_t> seed;         // absent: drawn by the engine
  std::vector<std::string> stop;        // at most 16, each 1..1024 bytes of UTF-8
  std::vector<int32_t> stop_token_ids;  // at most 1024
  bool ignore_eos = false;
  std::optional<int32_t> logprobs;      // 0..20 alternatives in addition to the chosen token
  std::map<int32_t, float> logit_bias;  // at most 1024 entries in [-100, 100]
  // 0..20 alternatives at each token of the prompt but the first. The prompt is then computed as
  // with RequestSpec::ignore_cache.
  std::optional<int32_t> prompt_logprobs;

  bool operator==(const SamplingParams&) const = default;
};

// A stored document inside a prompt.
struct PromptDocument {
  int32_t begin = 0;    // index of its first token in the prompt
  std::string content;  // identifies its text: a hash
  int32_t tokens = 0;   // how many tokens of the prompt are its text, from `begin` on
};

// How much of the engine's room a tenant may have, all its requests together; 0: no limit but the
// engine's own.
struct TenantRoom {
  // Pages of keys and values on all ranks: those of running requests, and those that are cached or
  // pinned. To make room, the tenant's cached pages are evicted first. A request that still finds
  // too little ends with RESOURCE_EXHAUSTED (kLimitPayload: kv_bytes).
  int64_t kv_bytes = 0;
  // Pages in kv_host. To make room, the tenant's least recently used ones leave. A page for which
  // there is still no room goes to kv_disk.
  int64_t host_bytes = 0;
  // Files on kv_disk. To make room, the tenant's least recently used pages leave. A page for which
  // there is still no room is not written.
  int64_t disk_bytes = 0;
};

struct RequestSpec {
  // The request reuses cached keys and values of this tenant only, and its own are cached for this
  // tenant only.
  TenantId tenant;
  TenantRoom tenant_room;
  // Fair sharing within the tenant: the client, and which of that client's connections the request
  // came by. Empty: an anonymous share.
  std::string client;
  std::string connection;
  // -2 to 2. Above 0: served before other requests of the same tenant; below 0: after them. Without
  // a tenant identity it only orders requests of the same client.
  int32_t priority = 0;
  std::vector<int32_t> prompt;  // at least 1 id, each below the vocabulary size
  // For the engine alone; 0 at submission. When a request is preempted, the answer so far becomes
  // the last `answered` tokens of `prompt`. They count towards max_tokens.
  int32_t answered = 0;
  // Lengths of prompt prefixes that other prompts are likely to share, such as the end of each
  // document. Ascending, each at most the prompt's length, at most 64. Keys and values up to each
  // of them are kept for reuse, as they are up to the end of the prompt.
  std::vector<int32_t> shared_prefixes;
  std::vector<PromptDocument> documents;  // lets ForgetDocument find the cached pages
  // Compute the whole pages of the prompt, keep them for reuse, and generate nothing: no sampling,
  // no delta. Usage::prompt_tokens is the number of tokens kept; a prompt shorter than a page keeps
  // none.
  bool prefill_only = false;
  // Requires prefill_only and a document. Protects the kept pages from eviction until
  // Engine::UnpinDocument or ForgetDocument is called for the last of `documents`, or its ttl has
  // passed. A request that would exceed EngineOptions::max_pinned ends with RESOURCE_EXHAUSTED
  // (kLimitPayload: pinned).
  bool pin = false;
  // Requires prefill_only and a document. How long after the prefill to forget that document in
  // memory, as ForgetDocument does. 1 s to a year; absent: never.
  std::optional<std::chrono::milliseconds> ttl;
  // A time at or before the caller looked `documents` up. If one of them is forgotten after this
  // time, nothing more of the request is kept in memory, in kv_host or on kv_disk. Absent: the time
  // of submission.
  std::optional<SteadyTime> documents_found;
  SamplingParams sampling;
  CompiledOutput output;  // what the answer must look like; default: anything
  // How to read the answer. Stop texts end its text alone, not reasoning or calls.
  AnswerReading reading;
  // Absent: EngineOptions::attention. Layers for which the model itself defines a window stay
  // exact.
  std::optional<AttentionAssignment> attention;
  bool attention_details = false;  // fill in AttentionReport::details
  bool digest = false;             // fill in Completion::digest
  // Report which parts of `documents` the answer attends: Delta::evidence and Completion::evidence.
  // The documents must lie in the prompt in order. Tokens and bits of the answer stay the same.
  bool evidence = false;
  // Compute the whole prompt even if a prefix of it is cached. The new results are cached.
  bool ignore_cache = false;
  // Absent: EngineOptions::speculation.
  std::optional<Speculation> speculation;
  SteadyTime deadline = SteadyTime::max();
  // Orders the request as a deadline would, but never ends it.
  SteadyTime wanted_by = SteadyTime::max();
  // Released when the engine keeps nothing of the request any more, which may be a step later than
  // its cancel: what the caller accounts its memory by.
  std::shared_ptr<const void> account;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_REQUEST_H_
