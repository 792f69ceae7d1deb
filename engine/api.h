#ifndef ANNULUS_ENGINE_API_H_
#define ANNULUS_ENGINE_API_H_

// All that the server sees of the engine. Everything here is plain data or an interface; every
// method of Engine is thread-safe.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/tenant_id.h"
#include "engine/base/work_meter.h"
#include "engine/sparse/assignment.h"
#include "engine/sparse/block_map.h"
#include "kernels/base/activations.h"
#include "kernels/base/dtype.h"

namespace annulus {

class Backend;
class DiskCalls;
class KernelRegistry;

// Deadlines and durations use the steady clock only: wall-clock jumps do nothing.
using SteadyTime = std::chrono::steady_clock::time_point;

// How the ring exchanges data (Meta, arXiv 2411.01783): keys and values circulate, or queries
// circulate and states return. Automatic lets the scheduler's cost model choose.
enum class RingMode : uint8_t { kAuto, kPassKv, kPassQ };

// How ranks on several devices exchange: copies from memory to memory, copies through pinned memory
// of the host, or NCCL. Automatic takes the first of peer, nccl and staged that this machine has.
// Ranks of one device hand addresses over, and only automatic fits them.
enum class RingTransport : uint8_t { kAuto, kPeer, kStaged, kNccl };

struct EngineOptions {
  // A directory; "builtin:recall" or "builtin:recall3"; "random:CONFIG.json" for seeded random
  // weights of the shape that a Hugging Face config.json describes, to measure speed.
  std::string model = "builtin:recall";
  int ranks = 1;    // 1..64
  int threads = 0;  // all ranks together; 0: the processor's
  // All ranks together; 0: a quarter of the memory, of GPUs as far as that is free.
  size_t kv_memory_bytes = 0;
  DType kv_dtype = DType::kF32;
  std::optional<DType> weights_dtype;  // absent: each matrix as the checkpoint stores it
  // How layers take their inputs; int8 and fp8_e4m3 need weights in the same (WeightsFor). The
  // head, the choice of experts, and single matrices that are stored in another dtype take float
  // whatever this says.
  Activations activations = Activations::kFloat;
  int max_context = 0;      // tokens; 0: the model's own
  int page_tokens = 64;     // 16, 32, 64, 128 or 256
  int chunk_tokens = 2048;  // prompt tokens of one step, all ranks together; at least a page each
  int tokens_per_rank = 2048;  // a sequence takes one more rank for each of these
  // The longest that a running stream should wait between two tokens while prompts are computed
  // beside it: chunks are made to fit, see engine/scheduler/quantum.h. Absent: 250 ms, on GPUs 50;
  // 0: chunk_tokens alone bounds them.
  std::optional<std::chrono::milliseconds> stall_budget = std::chrono::milliseconds(0);
  int max_running = 64;   // most requests computed at once; those with slow readers aside
  int max_waiting = 256;  // most requests in the queue
  RingMode ring_mode = RingMode::kAuto;
  RingTransport ring_transport = RingTransport::kAuto;
  bool device_graphs = true;  // steps that decode go to a device as graphs, where it has them
  // File of measured exchange rates: read where it exists, else written after measuring at start.
  // Empty: measured at every start.
  std::string profile;
  // A folder where complete pages of prompts are kept, so that they outlive the process: see
  // engine/tiers. Empty: none. Only where ranks' memory is the host's.
  std::string kv_disk;
  int64_t kv_disk_bytes = 0;  // that its files may take; with kv_disk at least 1 MiB
  // A call to the disk that takes longer turns kv_disk off.
  std::chrono::milliseconds kv_disk_timeout{30'000};
  // For tests: what stands for the system's calls to the disk; it outlives the engine. Null: none.
  DiskCalls* kv_disk_calls = nullptr;
  AttentionAssignment attention;  // of requests that name none
  // A safetensors file with the gates of the policy `learned`: see engine/sparse/gates.h. Empty:
  // that policy is not to be had.
  std::string attention_gates;
  std::string kernels;               // force one OpTable by name; empty: the best
  bool steps_through_bytes = false;  // plans and results become bytes and back: for tests
  // Longest silence of all ranks while one waits for another; work that goes on is no silence.
  std::chrono::milliseconds exchange_timeout{600'000};
  std::chrono::milliseconds slow_reader_timeout{30'000};  // longest a full sink may stall a request
};

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
  // When these were looked up, or before: what is forgotten later leaves nothing of this request on
  // kv_disk. Absent: when it is submitted.
  std::optional<SteadyTime> documents_found;
  SamplingParams sampling;
  // Absent: EngineOptions::attention. Layers whose own window the model states stay exact.
  std::optional<AttentionAssignment> attention;
  bool attention_details = false;  // fill AttentionReport::details
  bool digest = false;             // fill Completion::digest
  SteadyTime deadline = SteadyTime::max();
  // Orders as a deadline does, but ends nothing.
  SteadyTime wanted_by = SteadyTime::max();
};

// One message of a conversation, as the model's chat template gets it. What is absent has no member
// there. All texts are UTF-8.
struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool" or what else the template knows
  std::optional<std::string> content;
  std::optional<std::string> name;
  std::optional<std::string> reasoning;     // "reasoning_content" and "thinking" in templates
  std::optional<std::string> tool_calls;    // JSON: an array of calls
  std::optional<std::string> tool_call_id;  // which call a message of the role "tool" answers
};

// A document of a prompt, as its frame shows it. The text's ids are put in by the caller.
struct ChatDocument {
  std::string name;  // UTF-8, of any characters
  // Ends the frame of a document for which TextStream::holds_end_mark: letters and digits that the
  // text cannot hold. Else empty.
  std::string mark;
};

struct ChatRequest {
  std::vector<ChatMessage> messages;            // at least 1
  std::optional<std::string> tools;             // JSON: an array of definitions
  bool add_generation_prompt = true;            // ends with the beginning of an answer
  std::optional<std::string> template_options;  // JSON: an object of more variables
  // They stand in front of the first user message's content, or where a template with a variable
  // `documents` puts them.
  std::vector<ChatDocument> documents;
  // Documents get a frame: the template's own, or the plain one (engine/document_frame.h).
  bool framed = false;
};

// Where a document's ids go.
struct DocumentPlace {
  size_t at = 0;         // in front of token_ids[at]
  size_t frame_end = 0;  // token_ids from `at` up to here end the document's frame
};

struct RenderedChat {
  std::string text;                // without documents
  std::vector<int32_t> token_ids;  // the text's; the template writes the special tokens itself
  // One for each document, ascending. What stands between documents is tokenized separately, and
  // names and frames as plain text. So all ids up to the end of a document's frame are the same
  // for every prompt with the same documents up to there, whatever follows.
  std::vector<DocumentPlace> places;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // prompt tokens whose keys and values, of its own tenant, were reused
  int64_t restored_tokens = 0;  // of these, those that came back from a tier below memory for it
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

// A document's text whose bytes come in parts, turned into the same ids as the whole. The texts of
// control tokens in it ("<|im_start|>") are plain text: it may have been written by anybody. One
// thread at a time.
class TextStream {
 public:
  virtual ~TextStream() = default;

  // Takes the next bytes, which may end inside a character, and appends the ids that no later byte
  // can change. INVALID_ARGUMENT: not UTF-8, with the offset in the text, or a stretch of tens of
  // megabytes that offers no cut. After an error the stream is over.
  virtual absl::Status Append(absl::string_view bytes, std::vector<int32_t>& ids) = 0;

  // The text is at its end: appends the ids still to come. The last call.
  virtual absl::Status Finish(std::vector<int32_t>& ids) = 0;

  // Bytes of memory that what is held back may take until its ids are out. Little for text with
  // words; a stretch without any takes dozens of times its length.
  virtual size_t memory_bytes() const = 0;

  // Whether the text so far holds the words that end the plain frame: see ChatDocument::mark.
  virtual bool holds_end_mark() const = 0;
};

struct ModelInfo {
  std::string architecture;  // "LlamaForCausalLM", "builtin:recall"
  std::string description;   // one sentence for people; for the recall model says what it is
  int64_t parameters = 0;
  int32_t layers = 0;
  int32_t hidden_size = 0;
  int32_t vocabulary = 0;
  int64_t max_context = 0;            // tokens, prompt and answer together
  DType weights_dtype = DType::kF32;  // of the layers' matrices, or of most of them
  size_t weights_bytes = 0;           // that the packed weights hold, once for all ranks
  Activations activations = Activations::kFloat;
  double weights_error = 0;  // |w - w'| / |w| over what was quantised while loading; else 0
  std::optional<double> conversion_error;  // the same of an earlier conversion, where there was one
  DType kv_dtype = DType::kF32;
  int64_t kv_bytes_per_token = 0;  // of the full-attention groups, all ranks together
  std::string kernels;             // OpTable in use
  bool has_chat_template = false;
  // Documents of conversations get a frame. False for the builtin models, which continue a text as
  // it stands.
  bool frames_documents = true;
  std::vector<int32_t> end_of_text_ids;
  SamplingParams default_sampling;  // for what a request leaves out: the model's own, where it says
  std::vector<std::string> warnings;  // what the operator should know of the model's files
};

// How fast one rank attends, in FLOP/s, when a call has so many rows.
struct AttentionRate {
  int rows = 1;
  double flops = 50e9;        // while all ranks of its ring do the same
  double alone_flops = 50e9;  // while the others wait; higher where ranks share processors
  // What pass-Q takes more than pass-KV besides where one rank has all rows, for each other rank;
  // less than 0 where that one gains little from the processors that the others leave it.
  double query_seconds = 0;
};

// What the choice between pass-KV and pass-Q rests on.
struct ExchangeRates {
  // By ascending rows, at least one.
  std::vector<AttentionRate> attention = std::vector<AttentionRate>(1);
  double call_keys = 0;  // each call on one rank's keys takes as long as so many keys more
  double link_bytes_per_second = 5e9;  // 0: messages are handed over where they lie, none is copied
  double message_seconds = 20e-6;      // from a send until the receiver goes on
  double part_seconds = 0;             // more for each further part (a page) of a message
};

struct RankLoad {
  int rank = 0;
  bool up = true;
  std::string device;
  int node = -1;  // memory node that its memory and threads are kept on; -1: anywhere
  std::map<std::string, int64_t> memory_bytes;  // kind ("weights", "kv_full", ..) -> bytes held
  int64_t kv_bytes_used = 0;
  int64_t kv_bytes_total = 0;
};

// The most memory that the engine has needed at once since it started, in bytes of the process,
// as admission foresees it: what is resident once every planned byte has been touched.
struct MemoryForecast {
  int64_t program = 0;  // resident when the model was loaded, beside its weights: code, tokenizer
  int64_t weights = 0;
  int64_t kv = 0;         // pages taken: once written they stay resident
  int64_t step = 0;       // step arenas of all ranks
  int64_t ring = 0;       // slots that travel; none where ranks share their memory
  int64_t workspace = 0;  // of kernels, as large as it has become
  int64_t requests = 0;   // ids and page tables of requests and of cached prefixes

  int64_t total() const { return program + weights + kv + step + ring + workspace + requests; }
};

// What the ranks of one device take of its memory as long as they live, in bytes: of the device
// with most ranks.
struct MemoryPlan {
  bool of_host = true;  // its memory is the host's
  int ranks = 1;        // on it
  size_t total = 0;
  // Beside the weights and, of the host's, the program: what the device said when they were loaded.
  size_t free = 0;
  size_t weights = 0;
  size_t program = 0;    // of the host's memory
  size_t kv = 0;         // keys and values
  size_t step = 0;       // activations
  size_t workspace = 0;  // of kernels; of the host's memory they take it as they need it
  size_t slots = 0;      // for what comes from ranks of other devices
  size_t reserve = 0;    // that is left to the driver

  size_t needed() const { return kv + step + workspace + slots + reserve; }  // of `free`
};

// What the system says of the process, in bytes; 0 where it does not say.
struct ProcessMemory {
  int64_t resident = 0;
  int64_t resident_most = 0;  // since the process started
};

struct EngineLoad {
  int running = 0;
  int waiting = 0;
  double kv_usage = 0;            // used over total pages, 0..1
  double seconds_since_step = 0;  // since the engine last got anything done, idle turns included
  bool healthy = true;            // work goes on or none is due, and every rank is up
  std::vector<RankLoad> ranks;
  ExchangeRates exchange;
  // EngineOptions::stall_budget, and how long the smallest chunk of a prompt takes: if that is
  // more, the budget cannot be kept. 0: not known.
  double stall_budget_seconds = 0;
  double smallest_chunk_seconds = 0;
  std::string kv_disk_off;      // why the folder kv_disk is not used any more; empty: it is
  std::string exchange_source;  // where the rates come from, for people
  std::string ring_transport;   // how messages between ranks travel, for people
  MemoryForecast memory;
  MemoryPlan plan;
  ProcessMemory process;
};

// Metrics as plain data; the server turns them into whatever it exposes.
struct MetricSample {
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;                                  // counters and gauges
  std::vector<std::pair<double, uint64_t>> buckets;  // histograms: upper bound, cumulative count
  uint64_t count = 0;
  double sum = 0;
};
struct MetricFamily {
  enum class Type : uint8_t { kCounter, kGauge, kHistogram };
  std::string name;  // with the "annulus_" prefix
  std::string help;
  Type type = Type::kCounter;
  std::vector<MetricSample> samples;
};

using RequestId = uint64_t;

class Engine {
 public:
  virtual ~Engine() = default;  // cancels what runs, joins all threads

  // Validates and queues a request. INVALID_ARGUMENT names the offending field in the payload
  // kFieldPayload and the allowed range in the message; what can never fit is OUT_OF_RANGE
  // with the field that is too large, kLimitPayload, and needed and available numbers; a full queue
  // is RESOURCE_EXHAUSTED with the payload kRetryPayload (milliseconds). After OK the sink
  // gets exactly one OnDone.
  virtual absl::StatusOr<RequestId> Submit(RequestSpec spec, std::shared_ptr<TokenSink> sink) = 0;

  // The same checks without queueing.
  virtual absl::Status Validate(const RequestSpec& spec) const = 0;

  // Ends the request at the next chunk boundary with CANCELLED. Unknown or ended ids do nothing.
  virtual void Cancel(RequestId id) = 0;

  // The calls from here on that take a CancelFlag work on the caller's thread for as long as the
  // client's data takes. They count their steps (engine/base/work_meter.h) and end soon after the
  // flag is set, with CANCELLED; too many steps for the data are INVALID_ARGUMENT.

  // The tenant's document of this content (PromptDocument) is deleted. Keys and values of prompts
  // that held it leave kv_disk, and none of a request from before (RequestSpec::documents_found)
  // gets there any more; those in memory serve only whoever sends the same prompt, and go as others
  // do. Waits for the disk, some seconds at most, by CancelFlag::WaitAside. UNAVAILABLE if the disk
  // fails or takes longer, CANCELLED, RESOURCE_EXHAUSTED without memory: then nothing finds the
  // pages before the next start, and files may stay.
  virtual absl::Status ForgetDocument(const TenantId& tenant, absl::string_view content,
                                      const CancelFlag& cancel) = 0;

  // Text must be UTF-8 (INVALID_ARGUMENT with the byte offset otherwise). `add_special` adds what
  // the tokenizer's post-processor adds, for example a beginning-of-text id.
  virtual absl::StatusOr<std::vector<int32_t>> Tokenize(absl::string_view text, bool add_special,
                                                        const CancelFlag& cancel) const = 0;
  // The text of the ids, in UTF-8: bytes that form no character become U+FFFD.
  virtual absl::StatusOr<std::string> Detokenize(std::span<const int32_t> ids, bool skip_special,
                                                 const CancelFlag& cancel) const = 0;

  // A new text, without what `add_special` would add. Must end before the engine and the flag,
  // which ends its Append and Finish.
  virtual std::unique_ptr<TextStream> NewTextStream(const CancelFlag& cancel) const = 0;

  // The model's chat template applied to a conversation. INVALID_ARGUMENT names the field
  // ("messages.tools", or "messages" where the template refuses) in the payload kFieldPayload;
  // UNIMPLEMENTED if the model has no template.
  virtual absl::StatusOr<RenderedChat> ApplyChatTemplate(const ChatRequest& request,
                                                         const CancelFlag& cancel) const = 0;

  // The same for a model without a template: what the tokenizer adds in front of a text, the
  // documents in their plain frames, and `text` as the question.
  virtual absl::StatusOr<RenderedChat> FrameText(const std::vector<ChatDocument>& documents,
                                                 absl::string_view text,
                                                 const CancelFlag& cancel) const = 0;

  // Draws what a policy attends in a sequence of some length: see DrawBlockMap. `heads` 0: as many
  // as the model has for keys and values.
  virtual absl::StatusOr<BlockMap> MapAttention(BlockMapSpec spec,
                                                const CancelFlag& cancel) const = 0;

  virtual const ModelInfo& model() const = 0;
  virtual EngineLoad Load() const = 0;
  virtual std::vector<MetricFamily> Metrics() const = 0;
};

// What an error is about: "input" (the prompt), "sampling.top_p", "sampling.stop[2]".
inline constexpr char kFieldPayload[] = "annulus/field";
// What of an OUT_OF_RANGE error is too small for the request: "context", "memory", or, where the
// prompt fits and the answer does not, "answer".
inline constexpr char kLimitPayload[] = "annulus/limit";
// What went wrong inside, for the server's log; never for clients.
inline constexpr char kCausePayload[] = "annulus/cause";
inline constexpr char kRetryPayload[] = "annulus/retry_ms";

// Loads the model and starts the ranks. `backend` and `kernels` must outlive the engine.
absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& options, Backend& backend,
                                                     const KernelRegistry& kernels);

// Writes a new model directory `destination` with the weights of `directory` as `dtype`, and gives
// a report for people: the error of every matrix and of all. Contract and errors:
// engine/model/convert_model.h.
absl::StatusOr<std::string> ConvertModelDirectory(const std::string& directory, DType dtype,
                                                  const std::string& destination);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_H_
