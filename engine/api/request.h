#ifndef ANNULUS_ENGINE_API_REQUEST_H_
#define ANNULUS_ENGINE_API_REQUEST_H_

// What to generate, and from what.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/options.h"
#include "engine/base/steady_time.h"
#include "engine/base/tenant_id.h"
#include "engine/sparse/assignment.h"

namespace annulus {

using RequestId = uint64_t;

// Sampling, in the order applied: logit_bias, penalties, temperature, top_k, top_p, min_p, draw.
struct SamplingParams {
  int32_t max_tokens = 256;             // >= 1
  int32_t min_tokens = 0;               // end-of-text and stops are held back until then
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
  std::optional<int32_t> logprobs;      // 0..20 alternatives beside the chosen token
  std::map<int32_t, float> logit_bias;  // at most 1024 entries in [-100, 100]
  // The answer begins with these, whatever the logits say: to measure how fast an answer comes.
  std::vector<int32_t> forced;

  bool operator==(const SamplingParams&) const = default;
};

// A stored document in a prompt.
struct PromptDocument {
  int32_t begin = 0;    // its first token in the prompt
  std::string content;  // what names its text: a hash of it
};

struct RequestSpec {
  // Reuses what this tenant's requests left, and leaves its own to this tenant alone.
  TenantId tenant;
  // Whose share it uses among the tenant's; empty: nobody's in particular. And which of that one's
  // connections it came by.
  std::string client;
  std::string connection;
  // -2 to 2; above 0: served before others of its tenant, below: after them. Without an identity:
  // of its client.
  int32_t priority = 0;
  std::vector<int32_t> prompt;  // at least 1 id, each below the vocabulary size
  // Lengths of beginnings of the prompt that other prompts are likely to share, ascending, each at
  // most the prompt's: where its documents end. At most 64. Keys and values up to there are kept
  // for reuse, as they are up to the prompt's end.
  std::vector<int32_t> shared_prefixes;
  std::vector<PromptDocument> documents;  // so that ForgetDocument finds what they left
  // Reads whole pages of the prompt, keeps them for reuse and generates nothing: no sampling, no
  // delta. Usage::prompt_tokens is what is kept; a prompt shorter than a page leaves nothing.
  bool prefill_only = false;
  // With prefill_only and a document: what is kept stays whatever room others need, until
  // Engine::UnpinDocument or ForgetDocument of the last of `documents`, or its time to live is
  // over. A request beyond EngineOptions::max_pinned ends with RESOURCE_EXHAUSTED (kLimitPayload:
  // pinned).
  bool pin = false;
  // With prefill_only and a document: so long after it was read that document is forgotten in
  // memory, as by ForgetDocument. 1 s to a year; absent: never.
  std::optional<std::chrono::milliseconds> ttl;
  // When these were looked up, or before: what is forgotten later leaves nothing of this request on
  // kv_disk. Absent: when it is submitted.
  std::optional<SteadyTime> documents_found;
  SamplingParams sampling;
  // Absent: EngineOptions::attention. Layers whose own window the model states stay exact.
  std::optional<AttentionAssignment> attention;
  bool attention_details = false;  // fill AttentionReport::details
  bool digest = false;             // fill Completion::digest
  // Computes the whole prompt although its beginning may be cached; what it computes is kept.
  bool ignore_cache = false;
  // Absent: EngineOptions::speculation.
  std::optional<Speculation> speculation;
  SteadyTime deadline = SteadyTime::max();
  // Orders as a deadline does, but ends nothing.
  SteadyTime wanted_by = SteadyTime::max();
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_REQUEST_H_
