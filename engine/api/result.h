#ifndef ANNULUS_ENGINE_API_RESULT_H_
#define ANNULUS_ENGINE_API_RESULT_H_

// What a request brings: progress, text, and how it ended.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace annulus {

// Why the rest of a prompt was not reused.
struct CacheMiss {
  enum class Reason : uint8_t { kOtherTokens, kEvicted, kOtherAttention, kIgnored };
  Reason reason = Reason::kOtherTokens;
  int64_t position = 0;  // the first token of the prompt that this is about
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // prompt tokens whose keys and values, of its own tenant, were reused
  int64_t restored_tokens = 0;  // of these, those that came back from a tier below memory for it
  int64_t drafted_tokens = 0;   // guessed ahead: see Speculation
  int64_t accepted_tokens = 0;  // of these, those that were right
  std::optional<CacheMiss> cache_miss;  // nearest entries of its own tenant only
};

// What the engine keeps of a stored document.
struct KeptDocument {
  bool pinned = false;
  std::optional<double> expires_in;  // seconds; absent: it has no time to live
  // Tokens from its first one on: in memory the most that one prompt left, on kv_disk about. What
  // follows the document can be among them, so there may be more than it has.
  int64_t memory_tokens = 0;
  int64_t disk_tokens = 0;
};

// Seconds since the request was submitted, or of the phase that the name says.
struct Timings {
  double queue = 0;
  double prefill = 0;
  double time_to_first_token = 0;
  double decode = 0;
  double total = 0;
  double longest_gap = 0;  // between two tokens, while the reader kept up
  int64_t stalls = 0;      // such gaps that were longer than the stall budget
  double ring_wait = 0;    // of its steps: the slowest rank waited and had nothing else to do
  double host = 0;         // of its steps: planning and using results, beside the ranks' work
};

// One layer and kv head of a request, over the rows that AttentionReport speaks of.
struct AttentionDetail {
  int32_t layer = 0;
  int32_t kv_head = 0;
  double density = 1;
  std::optional<double> estimated_coverage;  // mean over query blocks; where something estimates
  std::optional<double> sampled_coverage;    // mean over sampled rows and the head's query heads
  // Chosen over causal pairs, 0..255, in each cell of a map of the prompt: [kSide rows of queries]
  // [kSide columns of keys], cell edges at multiples of prompt / kSide. Cells without a causal pair
  // hold 0.
  static constexpr int kSide = 64;
  std::vector<uint8_t> map;
  // Of the map's rows: the share of their queries that this request computed, 0 (none, and the
  // row's cells hold 0) to 255 (all). Others were reused, or nothing needs them in a last layer.
  std::vector<uint8_t> computed;
};

// What attention did for a request, over all its prompt and answer rows that were computed, in
// layers without a window of their own.
//
// Coverage of a row: the share of its softmax mass, under the model's own mask, that lies inside
// its chosen blocks; of dilated, on keys that one of its branches keeps. Wherever a policy leaves
// anything out of a prompt, it is sampled before attending, for each layer and step: at least 16
// seeded uniform rows with a causal length of 16 blocks or more (all there are, where they are
// fewer), exact sums over their keys. Where rows of an answer choose blocks by content, so are the
// first and each at a multiple of 64 positions, without its own key. Under a contract
// (AttentionPolicy:: coverage) tau is raised until the layer's mean over these rows and the heads
// is enough, or the layer attends everything in this step. Steps without such rows, and answers
// under an adaptive policy, attend everything.
struct AttentionReport {
  std::string policy = "dense";  // in effect, with every parameter: see ParseAssignment
  std::string choice;            // where `auto` was asked for: what it took and why
  double density = 1;            // share of causal (row, key) pairs attended
  int ring_degree = 1;
  int64_t steps_pass_kv = 0;  // prefill and decode steps run in each mode
  int64_t steps_pass_q = 0;
  // What the policy's estimator believed to keep, mean over rows; absent where nothing estimates.
  std::optional<double> estimated_coverage;
  // Present once a row was sampled.
  struct Sampled {
    double coverage = 1;          // mean over rows, heads, layers
    double minimum = 1;           // the smallest mean of a layer in a step
    double first_percentile = 1;  // over heads of all layers, each its mean over rows
    int64_t rows = 0;             // (row, layer) pairs that were sampled
  };
  std::optional<Sampled> sampled;
  int64_t layer_steps = 0;    // (layer, step) pairs under the policy
  int64_t layers_raised = 0;  // of these: tau was raised for the contract
  int64_t layers_dense = 0;   // of these: went dense for the contract
  bool contract_met = true;   // by every sampled (layer, step); also true without a contract
  // The smallest mean coverage with which reused keys and values were computed; absent: exactly.
  std::optional<double> inherited_coverage;
  double estimate_seconds = 0;           // estimating, sampling and choosing, all ranks together
  double attend_seconds = 0;             // attending, all ranks together
  double estimate_wall_seconds = 0;      // the same two of the slowest rank in each step: what the
  double attend_wall_seconds = 0;        // request waited for
  std::vector<AttentionDetail> details;  // by layer, then kv head; if RequestSpec asked for them
};

// kPrefilled: RequestSpec::prefill_only is done.
enum class FinishReason : uint8_t { kStop, kLength, kPrefilled, kCancelled, kDeadline, kError };

struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;                                    // natural log, before temperature
  std::vector<std::pair<int32_t, float>> alternatives;  // descending, `logprobs` of them
  // Of each by itself, as Detokenize gives it: the token's, then the alternatives'. Filled on the
  // way to the sink; empty before.
  std::vector<std::string> texts;

  bool operator==(const TokenLogprob&) const = default;
};

struct PromptProgress {
  int64_t total = 0;
  int64_t cached = 0;
  int64_t processed = 0;  // cached ones included
  double elapsed_seconds = 0;
  double eta_seconds = 0;
};

struct Delta {
  std::string text;                    // whole UTF-8 characters only; may be empty
  std::vector<int32_t> token_ids;      // the tokens of this delta
  std::vector<TokenLogprob> logprobs;  // one per token when asked for
};

struct Completion {
  absl::Status status;  // OK for kStop, kLength and kPrefilled; else why the request ended
  FinishReason finish_reason = FinishReason::kStop;
  std::string matched_stop;  // the stop string that ended it, if one did
  Usage usage;
  Timings timings;
  AttentionReport attention;
  // "short" or "long" where the model's rotary frequencies depend on the prompt's length (longrope,
  // dynamic NTK), else empty; empty too for a request that never ran.
  std::string rope_factors;
  // If RequestSpec::digest: the SHA-256, in hexadecimal, of 8 bytes for each token: its id and the
  // bits of its log probability, little-endian.
  std::string digest;
};

// Where one request's results go. The engine calls it from its own thread, one call at a time, and
// OnQueued also from Submit before that; no call may block. OnDone comes exactly once, last, and
// always.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void OnQueued(int position) = 0;  // 0: next
  virtual void OnProgress(const PromptProgress& progress) = 0;
  virtual void OnDelta(Delta delta) = 0;
  virtual void OnDone(Completion completion) = 0;

  // False while the reader is behind. The engine then parks the request: it keeps its pages, is
  // left out of steps and gives its place among `max_running` to another. With room again it takes
  // the next place that is free, before requests that still wait. It is ended when the reader is
  // behind for longer than EngineOptions::slow_reader_timeout. Called from any thread.
  virtual bool HasRoom() const = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_RESULT_H_
