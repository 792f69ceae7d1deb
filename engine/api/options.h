#ifndef ANNULUS_ENGINE_API_OPTIONS_H_
#define ANNULUS_ENGINE_API_OPTIONS_H_

// Options of an engine. An option is said here and nowhere else: its default is that of its field,
// and its row in VisitOptions says what users call it and which values it allows. Whoever needs an
// option reads it from the EngineOptions that travel to it.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/api/option_values.h"
#include "engine/api/ring.h"
#include "engine/sparse/assignment.h"
#include "kernels/base/activations.h"
#include "kernels/base/dtype.h"

namespace annulus {

// Whether to guess tokens ahead (speculative decoding). kNgram guesses what followed the same
// tokens earlier in the request's own prompt and answer (prompt lookup). The answer is the same
// either way.
enum class Speculation : uint8_t { kOff, kNgram };

// Whether pages from kv_host and kv_disk are compared with what computing gives, besides their
// checksum, identity and chain, which are always checked.
enum class KvVerify : uint8_t {
  kOff,
  kSample,  // recomputes one page of each restored prefix before the prefix is used
  kAll,     // restores nothing; compares every computed page with the stored one
};

// How many pages a request takes when it begins. kWorst: enough for the longest answer that it may
// give. kExpected: enough for the answer that it is expected to give (scheduler/answer_length.h);
// it takes more as the answer grows. If no page is left then, the request that would be served last
// is preempted: it gives up its pages, waits, and goes on with the same answer.
enum class AdmissionMode : uint8_t { kWorst, kExpected };

struct EngineOptions {
  // A model directory; "builtin:recall" or "builtin:recall3"; or "random:CONFIG.json": random
  // seeded weights in the shape that a Hugging Face config.json describes, for speed measurements.
  std::string model = "builtin:recall";
  int ranks = 1;    // of the whole ring
  int threads = 0;  // all ranks together; 0: as many as the processor has
  // Bytes for the experts of a mixture of experts, on CPUs alone: the others stay in the model's
  // files and are read when they are needed. 0: all experts are in memory.
  int64_t expert_memory_bytes = 0;
  // All ranks together. 0: a quarter of the memory; on GPUs at most what is free.
  size_t kv_memory_bytes = 0;
  std::optional<DType> kv_dtype;       // absent: f32 if the weights are held in f32, else bf16
  std::optional<DType> weights_dtype;  // absent: keep each matrix as stored
  // How layers take their inputs. int8 needs integer weights, fp8_e4m3 weights in fp8_e4m3
  // (WeightsFor). The output head, expert routing, and matrices stored in another dtype always take
  // float inputs.
  Activations activations = Activations::kFloat;
  int max_context = 0;  // tokens; 0: the model's limit
  int page_tokens = 64;
  // Most prompt tokens in a step, all ranks together; at least a page per rank.
  int chunk_tokens = 2048;
  int tokens_per_rank = 2048;  // a sequence is spread over one more rank for each of these
  // How long a running stream should wait between two tokens at most while prompts are computed at
  // the same time. Chunks fit into it, or are suspended between layers: see scheduler/step_pacer.h.
  // Absent: 250 ms, on GPUs 50 ms. 0: only chunk_tokens bounds the chunks.
  std::optional<std::chrono::milliseconds> stall_budget;
  AdmissionMode admission = AdmissionMode::kWorst;
  int max_running = 64;   // most requests computed at once, without those parked for slow readers
  int max_waiting = 256;  // most requests in the queue
  RingMode ring_mode = RingMode::kAuto;
  RingTransport ring_transport = RingTransport::kAuto;
  // Default for requests that do not choose. Absent: kNgram on CPUs, kOff on GPUs, where the bits
  // of a row may depend on the rows computed with it.
  std::optional<Speculation> speculation;
  bool device_graphs = true;  // run decode steps as device graphs if the device supports them
  // File with measured exchange rates. Read if it exists; otherwise written after measuring at
  // start. Empty: measure at every start.
  std::string profile;
  // Bytes of the host's memory that keep complete pages of prompts after they have left the ranks'
  // memory: see engine/tiers. 0: none; else at least 1 MiB. Needs kernels that are row_invariant.
  int64_t kv_host_bytes = 0;
  // The host's memory that the process may use, against which kv_host_bytes are checked if the
  // ranks are on a device. 0: not known.
  size_t host_memory_bytes = 0;
  // Folder that keeps complete pages of prompts so that they survive a restart: see engine/tiers.
  // Empty: none. Needs kernels that are row_invariant.
  std::string kv_disk;
  int64_t kv_disk_bytes = 0;               // limit for its files; at least 1 MiB if kv_disk is set
  KvVerify kv_verify = KvVerify::kSample;  // of pages from kv_host and kv_disk
  // If a disk call takes longer than this, kv_disk is turned off. If a device takes longer to copy
  // a page for a tier (kv_host or kv_disk), that tier is turned off.
  std::chrono::milliseconds kv_disk_timeout{30'000};
  // Largest share of all ranks' pages that pinned documents may take: in total and per tenant.
  double max_pinned = 0.5;
  double max_pinned_by_tenant = 0.25;
  // How the model writes calls of tools and reasoning: a family of engine/text/answer; "auto": that
  // of its chat template; "none": answers are text alone.
  std::string tool_format = "auto";
  bool reasoning = true;          // part reasoning from answers
  AttentionAssignment attention;  // default for requests that name none
  // Safetensors file with gate weights for the policy `learned`: see engine/sparse/gates.h. If
  // empty, requests for `learned` are rejected.
  std::string attention_gates;
  // JSON file that names the heads whose attention evidence is taken from. If empty, the engine
  // chooses heads by depth. See engine/request/evidence_heads.h.
  std::string attention_profile;
  std::string kernels;  // name of the OpTable to use; empty: the best one for this machine
  // How long a rank may wait for another while no rank makes progress. A long computation counts as
  // progress, so only a real hang trips this.
  std::chrono::milliseconds exchange_timeout{30'000};
  std::chrono::milliseconds slow_reader_timeout{30'000};  // how long a full sink may park a request

  // The ranks of this process: all of the ring.
  RankSpan span() const { return {.first = 0, .local = ranks, .all = ranks}; }
};

// Calls `visit` with the row of each option that sets a field, in the order of --help: its flag
// without the dashes, what users put for its value, what it does, the field, and the values it
// allows (engine/api/option_values.h).
template <typename Visitor>
void VisitOptions(Visitor&& visit) {
  using E = EngineOptions;
  using std::chrono::hours;
  using std::chrono::milliseconds;
  constexpr int64_t kMiB = int64_t{1} << 20;
  constexpr int64_t kTiB = int64_t{1} << 40;
  visit("model", "DIR|FILE.gguf|builtin:recall",
        "Hugging Face model directory, a GGUF file or a folder with one, a built-in demonstration "
        "model, or random:CONFIG.json (random weights of that shape, to measure speed).",
        &E::model,
        option::Required{"a GGUF file, a model directory, builtin:recall or builtin:recall3"});
  visit("ranks", "N", "Number of ranks in the ring over which keys and values are spread.",
        &E::ranks, option::Within{1, 64});
  visit("threads", "T|auto", "Number of compute threads, all ranks together.", &E::threads,
        option::WithinOrAuto{1, 4096});
  visit("weights-dtype", "DTYPE|auto",
        "Type in which weights are kept in memory: f32, bf16, f16, int8, int4_g32, int4_g64, "
        "fp8_e4m3, fp8_e5m2, or, on CPUs, q8_0, q4_0 or q4_1; auto: each matrix as stored in the "
        "model files (but bf16 for float8 in blocks, MXFP4 and other GGUF types).",
        &E::weights_dtype, option::Any{});
  visit("activations", "float|int8|fp8_e4m3",
        "Type of the inputs of linear layers. int8, fp8_e4m3: quantized with one scale per token, "
        "less accurate. int8 is for integer weights (int8, int4_g32, int4_g64, q8_0, q4_0, q4_1), "
        "and speeds up prefill on CPUs with integer dot products (AVX-512 VNNI, AMX); fp8_e4m3 is "
        "for fp8_e4m3 weights on GPUs of compute capability 8.9 and up.",
        &E::activations, option::Any{});
  visit("expert-memory", "SIZE",
        "On CPUs, memory for the experts of models that have them. Experts beyond it stay in the "
        "model's files and are read when a token needs them, so answers are the same and slower. "
        "0: all experts are in memory.",
        &E::expert_memory_bytes, option::Within{0, 64 * kTiB});
  visit("kv-dtype", "DTYPE|auto",
        "Type in which keys and values are stored: f32, bf16, f16, int8, fp8_e4m3 or fp8_e5m2; "
        "auto: f32 for weights held in f32, else bf16.",
        &E::kv_dtype, option::Any{});
  visit("kv-memory", "SIZE|auto",
        "Memory for keys and values, all ranks together; auto: a quarter of the memory of the "
        "machine or GPUs, or less if less is free.",
        &E::kv_memory_bytes, option::WithinOrAuto{kMiB, 64 * kTiB});
  visit("max-context", "N|auto",
        "Largest number of tokens of prompt and answer together; auto: the model's limit.",
        &E::max_context, option::WithinOrAuto{1, 1'000'000'000});
  visit("page-tokens", "16|32|64|128|256", "Tokens in one page of keys and values.",
        &E::page_tokens,
        option::OneOf<int>{{{"16", 16}, {"32", 32}, {"64", 64}, {"128", 128}, {"256", 256}}});
  visit("chunk-tokens", "N", "Largest number of prompt tokens in a step, all ranks together.",
        &E::chunk_tokens, option::Within{16, 1 << 20});
  visit("stall-budget", "TIME|off|auto",
        "Target for the longest wait of a running answer for its next token while prompts are "
        "being processed: prompt chunks are sized to fit. auto: 250ms on CPUs, 50ms on GPUs. "
        "Values above 500ms change little, because progress is reported twice a second. off: "
        "chunks of --chunk-tokens, however long they take, also when nothing else runs.",
        &E::stall_budget, option::TimeOffOrAuto{milliseconds(1), hours(1)});
  visit("tokens-per-rank", "N", "Spread a sequence over one more rank for every N tokens.",
        &E::tokens_per_rank, option::Within{1, 1'000'000'000});
  visit("admission", "worst|expected",
        "Memory for keys and values that a request reserves when it starts. worst: for its longest "
        "possible answer; expected: for an answer of typical length, so that more requests run at "
        "once. If memory then runs out, some requests wait and later resume with the same answer.",
        &E::admission,
        option::OneOf<AdmissionMode>{
            {{"worst", AdmissionMode::kWorst}, {"expected", AdmissionMode::kExpected}}});
  visit("max-running", "N",
        "Largest number of running requests, not counting those whose clients do not read.",
        &E::max_running, option::Within{1, 4096});
  visit("max-waiting", "N", "Largest number of waiting requests; further ones are refused.",
        &E::max_waiting, option::Within{1, 1 << 20});
  visit("attention", "POLICY",
        "Attention policy for requests that name none: NAME or NAME:parameter=value,..; the "
        "policies are listed below. Rules for some layers or heads may follow: 'adaptive; "
        "layers=0-1: dense; layers=4,heads=0-3: window:window=4096'.",
        &E::attention, option::Any{});
  visit("attention-gates", "FILE",
        "Safetensors file with gates for the policy 'learned', written by annulus-bench gates; "
        "empty: requests for 'learned' are rejected.",
        &E::attention_gates, option::Any{});
  visit("attention-profile", "FILE",
        "JSON file with the heads whose attention shows what answers rest on (evidence): "
        "{\"evidence\": {\"heads\": [{\"layer\": 17, \"head\": 3}]}}; empty: heads are chosen by "
        "depth.",
        &E::attention_profile, option::Any{});
  visit("ring-mode", "auto|pass-kv|pass-q",
        "What ranks exchange. pass-kv: keys and values; pass-q: queries; auto: the faster one.",
        &E::ring_mode,
        option::OneOf<RingMode>{{{"auto", RingMode::kAuto},
                                 {"pass-kv", RingMode::kPassKv},
                                 {"pass-q", RingMode::kPassQ}}});
  visit(
      "ring-transport", "auto|peer|staged|nccl",
      "How ranks on several GPUs exchange data. peer: direct copies between GPUs; staged: copies "
      "through host memory; nccl: NCCL; auto: the first of peer, nccl and staged that works here.",
      &E::ring_transport,
      option::OneOf<RingTransport>{{{"auto", RingTransport::kAuto},
                                    {"peer", RingTransport::kPeer},
                                    {"staged", RingTransport::kStaged},
                                    {"nccl", RingTransport::kNccl}}});
  visit("device-graphs", "auto|off",
        "auto: launch a decode step on a GPU as one graph, if the GPU can; off: launch its kernels "
        "one by one.",
        &E::device_graphs, option::OneOf<bool>{{{"auto", true}, {"off", false}}});
  visit("speculate", "auto|ngram|off",
        "ngram: for requests that do not choose, guess the next tokens from what followed the same "
        "words earlier in the request's own text, and check all guesses in one step. Answers that "
        "quote their documents are faster, and no answer changes (on GPUs only with --gpu-kernels "
        "..-invariant). auto: ngram on CPUs, off on GPUs.",
        &E::speculation,
        option::OneOf<std::optional<Speculation>>{
            {{"auto", std::nullopt}, {"ngram", Speculation::kNgram}, {"off", Speculation::kOff}}});
  visit(
      "tool-format", "NAME|auto|none",
      "How the model writes tool calls and reasoning, so that answers can be split into these and "
      "text: command, deepseek, gemma, gemma4, glm, granite, harmony, hermes, kimi, llama3, "
      "mistral, qwen3_coder or smollm3; auto: as its chat template does; none: return it all as "
      "text.",
      &E::tool_format,
      option::OneOf<std::string>{{{"auto", "auto"},
                                  {"none", "none"},
                                  {"command", "command"},
                                  {"deepseek", "deepseek"},
                                  {"gemma", "gemma"},
                                  {"gemma4", "gemma4"},
                                  {"glm", "glm"},
                                  {"granite", "granite"},
                                  {"harmony", "harmony"},
                                  {"hermes", "hermes"},
                                  {"kimi", "kimi"},
                                  {"llama3", "llama3"},
                                  {"mistral", "mistral"},
                                  {"qwen3_coder", "qwen3_coder"},
                                  {"smollm3", "smollm3"}}});
  visit(
      "reasoning", "auto|off",
      "auto: return a model's reasoning separately from the answer; off: leave it in the text, as "
      "the model wrote it.",
      &E::reasoning, option::OneOf<bool>{{{"auto", true}, {"off", false}}});
  visit("ring-profile", "FILE",
        "File with measured rates for --ring-mode auto: read if it exists, else measured at start "
        "and written; empty: measure at every start.",
        &E::profile, option::Any{});
  visit("max-pinned", "PERCENT",
        "Largest share of --kv-memory that pinned documents may take; 0: nothing can be pinned.",
        &E::max_pinned, option::Share{});
  visit("max-pinned-by-tenant", "PERCENT",
        "The same limit for the pinned documents of each tenant.", &E::max_pinned_by_tenant,
        option::Share{});
  visit("kv-host", "SIZE",
        "Host memory for keys and values of prompts that were evicted from --kv-memory, until they "
        "are needed again or evicted to --kv-disk. On GPUs this needs --gpu-kernels ..-invariant; "
        "0: none.",
        &E::kv_host_bytes, option::Within{0, 64 * kTiB});
  visit("kv-disk", "DIR",
        "Folder, not shared with another daemon, for keys and values of prompts, so that they need "
        "not be recomputed after a restart; needs --kv-disk-size. Users' texts can be recovered "
        "from it until they delete the document or its pages are evicted. On GPUs this needs "
        "--gpu-kernels ..-invariant; empty: none.",
        &E::kv_disk, option::Any{});
  visit("kv-disk-size", "SIZE", "Largest total size of the files in --kv-disk.", &E::kv_disk_bytes,
        option::Within{0, 64 * kTiB});
  visit("kv-verify", "sample|off|all",
        "Which keys and values restored from --kv-host and --kv-disk are checked by recomputing "
        "them. sample: one page of each restored prefix; off: none; all: every page, so restoring "
        "saves no time. Pages that differ are dropped.",
        &E::kv_verify,
        option::OneOf<KvVerify>{
            {{"sample", KvVerify::kSample}, {"off", KvVerify::kOff}, {"all", KvVerify::kAll}}});
  visit("exchange-timeout", "TIME",
        "A step fails if a rank waits this long for another while no rank makes progress, or 1.5 "
        "times this long for its GPU.",
        &E::exchange_timeout, option::TimeWithin{milliseconds(10), hours(1)});
  visit("slow-reader-timeout", "TIME",
        "End the request of a client that reads nothing of its answer for this long.",
        &E::slow_reader_timeout, option::TimeWithin{milliseconds(10), hours(24)});
}

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_OPTIONS_H_
