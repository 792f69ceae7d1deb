#ifndef ANNULUS_ENGINE_API_RESULT_H_
#define ANNULUS_ENGINE_API_RESULT_H_

// The results of a request: progress, text, statistics, and how it ended.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/api/answer.h"

namespace annulus {

// Why the rest of a prompt was not reused from the cache.
struct CacheMiss {
  enum class Reason : uint8_t {
    kOtherTokens,     // the nearest cached prompt continues with other tokens
    kEvicted,         // its pages were evicted
    kOtherAttention,  // it was computed under another attention policy
    // kv_disk has it for another model, or for this one under another build, kernels or dtypes.
    kOtherModel,
    kIgnored,  // RequestSpec::ignore_cache
    // Reading it from kv_host or kv_disk would have taken longer than computing it, by measured
    // rates, or did.
    kDiskSlower,
    // Pages from kv_host or kv_disk were not as they had been written, or not what computing gives.
    kDiskRefused,
    // The server puts this in place of other reasons for callers that it does not know; the engine
    // never does.
    kNotTold,
  };
  Reason reason = Reason::kOtherTokens;
  int64_t position = 0;  // the first prompt token that the reason applies to
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // prompt tokens reused from cached keys and values of its tenant
  // Of cached_tokens: restored for this request from kv_host or kv_disk.
  int64_t restored_tokens = 0;
  int64_t host_tokens = 0;  // of restored_tokens: from kv_host
  // Position of the restored page that was computed again and compared (KvVerify::kSample), whether
  // it was equal or not; absent: none was.
  std::optional<int64_t> checked_position;
  int64_t reasoning_tokens = 0;         // of completion_tokens: of reasoning, with its marks
  int64_t drafted_tokens = 0;           // tokens guessed ahead: see Speculation
  int64_t accepted_tokens = 0;          // of drafted_tokens: guesses that were right
  std::optional<CacheMiss> cache_miss;  // considers cache entries of its own tenant only
};

// What the engine keeps of a stored document, in each tier.
struct KeptDocument {
  bool pinned = false;
  std::optional<double> expires_in;  // seconds; absent: never expires
  // Tokens kept from the document's first token on: in memory the longest run left by any prompt,
  // in kv_host and on kv_disk an estimate. May exceed the document's length, since tokens that
  // followed it in a prompt count too.
  int64_t memory_tokens = 0;
  int64_t host_tokens = 0;
  int64_t disk_tokens = 0;
};

// Durations in seconds. time_to_first_token and total start at submission; the others cover one
// phase.
struct Timings {
  double queue = 0;
  double prefill = 0;
  double time_to_first_token = 0;
  double decode = 0;
  double total = 0;
  double longest_gap = 0;   // between two tokens, while the reader kept up
  int64_t stalls = 0;       // number of such gaps longer than the stall budget
  double ring_wait = 0;     // over its steps: time the slowest rank idled, waiting for a peer
  double host = 0;          // over its steps: planning and handling results, outside the ranks
  int64_t preemptions = 0;  // how often it gave up its pages and waited again: see AdmissionMode
  // How often it went on after a step that computed it had failed. The answer is the same, but for
  // policies that choose blocks by content, or had begun from dense pages that are lost.
  int64_t recovered = 0;
  // How often, of these, it kept its place and only the keys and values that ranks had lost were
  // computed again. Otherwise it waited again and went on from a cached prefix.
  int64_t repaired = 0;
};

// Details for one layer and one key/value head, over the rows that AttentionReport covers.
struct AttentionDetail {
  int32_t layer = 0;
  int32_t kv_head = 0;
  double density = 1;
  // Mean over query blocks; absent if the policy estimates nothing.
  std::optional<double> estimated_coverage;
  std::optional<double> sampled_coverage;  // mean over sampled rows and the head's query heads
  // A picture of the prompt: [kSide rows of queries][kSide columns of keys]. Each cell holds the
  // share of its causal pairs that were attended, scaled to 0..255; cells without causal pairs hold
  // 0. Cell edges are multiples of prompt / kSide.
  static constexpr int kSide = 64;
  std::vector<uint8_t> map;
  // [kSide] For each row of the map: the share of its queries that this request computed, 0 (none;
  // the row's cells hold 0) to 255 (all). The others were reused from the cache, or the last layer
  // did not need them.
  std::vector<uint8_t> computed;
};

// How a request attended, over all prompt and answer rows it computed, in layers without a window
// of their own.
//
// Coverage of a row: the share of its softmax mass, under the model's own mask, that lies inside
// its chosen blocks (policy `dilated`: on keys that one of its branches keeps). Sampled rows
// measure it exactly, before attending, in each layer and step:
// - Prompts: whenever the policy leaves anything out. At least 16 seeded, uniformly drawn rows with
//   a causal length of 16 blocks or more, or all such rows if there are fewer.
// - Answers: when rows choose blocks by content. The first row, and each row at a multiple of 64
//   positions; the row's own key is left out.
//
// A contract (AttentionPolicy::coverage) raises tau until the layer's mean over these rows and all
// heads reaches the promised coverage; if nothing less is enough, the layer attends everything in
// this step. Steps without sampled rows, and answers under an adaptive policy, attend everything.
struct AttentionReport {
  std::string policy = "dense";  // the policy in effect, with all parameters: see ParseAssignment
  std::string choice;            // if `auto` was requested: what it chose and why
  double density = 1;            // share of causal (row, key) pairs attended
  int ring_degree = 1;
  int64_t steps_pass_kv = 0;  // prefill and decode steps that ran in this mode
  int64_t steps_pass_q = 0;
  // The coverage that the policy's estimator predicted, mean over rows; absent if it estimates
  // nothing.
  std::optional<double> estimated_coverage;
  // Present once a row was sampled.
  struct Sampled {
    double coverage = 1;          // mean over rows, heads, layers
    double minimum = 1;           // the smallest mean of any layer in any step
    double first_percentile = 1;  // over all layers' heads, each head's mean over rows
    int64_t rows = 0;             // (row, layer) pairs that were sampled
  };
  std::optional<Sampled> sampled;
  int64_t layer_steps = 0;    // number of (layer, step) pairs that ran under the policy
  int64_t layers_raised = 0;  // of layer_steps: those whose tau was raised for the contract
  int64_t layers_dense = 0;   // of layer_steps: those that attended everything for the contract
  bool contract_met = true;   // in every sampled (layer, step) pair; true without a contract
  // The smallest mean coverage of any reused keys and values when they were computed; absent:
  // exact.
  std::optional<double> inherited_coverage;
  double estimate_seconds = 0;  // estimating, sampling and choosing, all ranks together
  double attend_seconds = 0;    // attending, all ranks together
  // The same two as the request waited for them: those of the slowest rank in each step.
  double estimate_wall_seconds = 0;
  double attend_wall_seconds = 0;
  std::vector<AttentionDetail> details;  // by layer, then kv head; empty unless requested
};

// How a request ended. kPrefilled: a RequestSpec::prefill_only request is complete.
enum class FinishReason : uint8_t { kStop, kLength, kPrefilled, kCancelled, kDeadline, kError };

// The log probability of a chosen token, or of a prompt's, and its best alternatives.
struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;  // natural log, before temperature
  // Descending; as many as `logprobs` asks for.
  std::vector<std::pair<int32_t, float>> alternatives;
  // The text of each token by itself, as Detokenize returns it: the chosen token's first, then the
  // alternatives'. Filled in just before the sink gets it; empty inside the engine.
  std::vector<std::string> texts;
  // The bytes of each token that is not whole characters, in the same order; empty for other
  // tokens. Without entries if all are.
  std::vector<std::string> partial;

  // The bytes of the token with this index in `texts`.
  absl::string_view BytesOf(size_t index) const {
    if (index < partial.size() && !partial[index].empty()) return partial[index];
    return index < texts.size() ? absl::string_view(texts[index]) : "";
  }

  bool operator==(const TokenLogprob&) const = default;
};

// Progress of a prompt, in tokens.
struct PromptProgress {
  int64_t total = 0;
  int64_t cached = 0;
  int64_t processed = 0;  // including cached ones, and the share of a chunk whose layers are done
  double elapsed_seconds = 0;
  double eta_seconds = 0;
  int ring_degree = 0;  // ranks that the request is spread over
};

// Where a passage lies in the text of its document, as a client knows it. The engine knows only
// tokens and leaves it empty: the owner of the documents fills it in.
struct PassagePlace {
  std::string document;    // its name
  int64_t byte_begin = 0;  // of the text as it was uploaded; byte_end 0: not known
  int64_t byte_end = 0;
  int64_t character_begin = 0;  // in code points
  int64_t character_end = 0;
  std::string label;  // the mark that it lies under; empty: none
  std::string text;   // empty unless the document's text is kept
};

// A stretch of a document that a sentence of an answer attends.
struct Passage {
  int32_t document = 0;  // index into RequestSpec::documents
  int32_t begin = 0;     // tokens [begin, end) of the document
  int32_t end = 0;
  double score = 0;  // (0, 1]: see EvidenceAccount
  PassagePlace place;
};

// The passages that one sentence of an answer attends most, the best first.
struct SentenceEvidence {
  int64_t begin = 0;  // bytes [begin, end) of the answer's text
  int64_t end = 0;
  std::vector<Passage> passages;  // at least one
};

// The next piece of an answer. Its reasoning, its text and its calls follow each other in the
// answer in this order.
struct Delta {
  std::string text;                    // whole UTF-8 characters; may be empty
  std::vector<int32_t> token_ids;      // the tokens of this delta
  std::vector<TokenLogprob> logprobs;  // one per token when asked for
  // SamplingParams::prompt_logprobs: the next tokens of the prompt, the first of all being its
  // second. Deltas that have them have nothing else, and come before all others.
  std::vector<TokenLogprob> prompt_logprobs;
  std::string reasoning;             // what the model thinks before it answers, as `text`
  std::vector<ToolCallDelta> calls;  // of tools
  // RequestSpec::evidence: of sentences that end in this text or before it, before what follows.
  std::vector<SentenceEvidence> evidence;
};

// How a request ended, and its statistics.
struct Completion {
  absl::Status status;  // OK for kStop, kLength and kPrefilled; else why the request ended
  FinishReason finish_reason = FinishReason::kStop;
  std::string matched_stop;  // the stop string that ended the answer, if any
  // RequestSpec::output was complete and could not go on before min_tokens.
  bool output_below_min_tokens = false;
  std::vector<ToolCall> calls;  // of tools, in the answer's order
  // Why text that looked like a call of a tool is none, or a call is not complete: a line each.
  std::vector<std::string> broken_calls;
  Usage usage;
  Timings timings;
  AttentionReport attention;
  // RequestSpec::evidence: of all sentences that have any, in their order.
  std::vector<SentenceEvidence> evidence;
  // Whose attention that is, for people: filled in together with PassagePlace.
  std::string evidence_heads;
  std::string failed_step;  // why the last step failed that it recovered from; empty: none
  // "short" or "long" if the model's rotary frequencies depend on the prompt's length (longrope,
  // dynamic NTK). Empty otherwise, and for a request that never ran.
  std::string rope_factors;
  // If RequestSpec::digest: hexadecimal SHA-256 over 8 bytes per token: its id and the bits of its
  // log probability, both little-endian.
  std::string digest;
};

// Receives the results of one request. The engine calls it from its own thread, one call at a time;
// Submit also calls OnQueued, before any other call. No call may block. OnDone is always the last
// call and comes exactly once.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void OnQueued(int position) = 0;  // 0: next in line
  virtual void OnProgress(const PromptProgress& progress) = 0;
  virtual void OnDelta(Delta delta) = 0;
  virtual void OnDone(Completion completion) = 0;

  // Returns false while the reader is behind. The engine then parks the request: it keeps its
  // pages, but leaves the steps and frees its place among `max_running`. Once there is room again,
  // it takes the next free place, before requests that still wait to start. The engine ends a
  // request that stays behind for longer than EngineOptions::slow_reader_timeout. Any thread may
  // call this.
  virtual bool HasRoom() const = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_RESULT_H_
