// What a step of the engine is, what is kept, and how ranks exchange.

#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "server/config/option_rows.h"

namespace annulus::server {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

absl::StatusOr<std::optional<milliseconds>> ParseStallBudget(absl::string_view text) {
  if (text == "auto") return std::nullopt;
  if (text == "off") return milliseconds(0);
  const absl::StatusOr<milliseconds> budget = ParseDuration(text, milliseconds(1), hours(1));
  if (budget.ok()) return *budget;
  return absl::InvalidArgumentError(absl::StrCat(budget.status().message(), ", or auto, or off"));
}

}  // namespace

std::vector<Option> SchedulingOptions() {
  return {
      {"page-tokens", "16|32|64|128|256", "64", "Tokens of one page of keys and values.",
       OneOf(&EngineOptions::page_tokens,
             {{"16", 16}, {"32", 32}, {"64", 64}, {"128", 128}, {"256", 256}})},
      {"chunk-tokens", "N", "2048", "Tokens that one step computes, all ranks together.",
       Within(&EngineOptions::chunk_tokens, 16, 1 << 20)},
      {"stall-budget", "TIME|off|auto", "auto",
       "The longest that a running answer should wait for its next token while prompts are read "
       "beside it: chunks of prompts are made to fit; auto: 250ms, on GPUs 50ms; above 500ms "
       "little "
       "changes, since progress is told twice a second; off: chunks are as large as "
       "--chunk-tokens, however long they take, also alone.",
       Into(&EngineOptions::stall_budget, ParseStallBudget,
            RangeText(milliseconds(1), milliseconds(hours(1))))},
      {"tokens-per-rank", "N", "2048",
       "A sequence is spread over one more rank for every N of its tokens.",
       Within(&EngineOptions::tokens_per_rank, 1, 1'000'000'000)},
      {"admission", "worst|expected", "worst",
       "Memory for keys and values that a request takes when it begins: for the longest answer "
       "that "
       "it may give, or for one as long as answers have been so far. With expected more requests "
       "run at once; if their memory runs out, some wait again and then go on with the same "
       "answer.",
       OneOf(&EngineOptions::admission,
             {{"worst", AdmissionMode::kWorst}, {"expected", AdmissionMode::kExpected}})},
      {"max-running", "N", "64",
       "Most requests computed at once, not counting those whose clients do not read.",
       Within(&EngineOptions::max_running, 1, 4096)},
      {"max-waiting", "N", "256", "Most requests in the queue; further ones are refused.",
       Within(&EngineOptions::max_waiting, 1, 1 << 20)},
      {"attention", "POLICY", "dense",
       "Attention of requests that name none: NAME or NAME:parameter=value,..; the policies are "
       "listed below. Rules for some layers or heads may follow it: 'adaptive; layers=0-1: dense; "
       "layers=4,heads=0-3: window:window=4096'.",
       Into(&EngineOptions::attention, ParseAssignment)},
      {"attention-gates", "FILE", "",
       "Safetensors file with the gates of the policy learned, written by annulus-bench gates; "
       "empty: requests for learned are refused.",
       Into(&EngineOptions::attention_gates, ParseText)},
      {"ring-mode", "auto|pass-kv|pass-q", "auto",
       "What ranks pass on to each other: keys and values, or queries; auto: whichever is faster.",
       OneOf(&EngineOptions::ring_mode, {{"auto", RingMode::kAuto},
                                         {"pass-kv", RingMode::kPassKv},
                                         {"pass-q", RingMode::kPassQ}})},
      {"ring-transport", "auto|peer|staged|nccl", "auto",
       "How ranks on several GPUs exchange: copies from memory to memory, through the host's "
       "memory, or NCCL; auto: the first of peer, nccl and staged that works here.",
       OneOf(&EngineOptions::ring_transport, {{"auto", RingTransport::kAuto},
                                              {"peer", RingTransport::kPeer},
                                              {"staged", RingTransport::kStaged},
                                              {"nccl", RingTransport::kNccl}})},
      {"device-graphs", "auto|off", "auto",
       "auto: launch a decode step on a GPU as one graph, if the GPU can; off: launch its kernels "
       "one by one.",
       OneOf(&EngineOptions::device_graphs, {{"auto", true}, {"off", false}})},
      {"speculate", "auto|ngram|off", "auto",
       "ngram: for requests that do not choose, guess the next tokens from what followed the same "
       "words earlier in the request's own text, and check all guesses in one step; answers that "
       "quote their documents come sooner, and no answer changes; auto: ngram on CPUs, off on "
       "GPUs.",
       OneOf(&EngineOptions::speculation,
             {{"auto", std::nullopt}, {"ngram", Speculation::kNgram}, {"off", Speculation::kOff}})},
      {"ring-profile", "FILE", "",
       "File with measured rates for --ring-mode auto: read if it exists, else written after "
       "measuring at start; empty: measured at every start.",
       Into(&EngineOptions::profile, ParseText)},
      {"max-pinned", "PERCENT", "50",
       "Largest share of the memory for keys and values that pinned documents may take; 0: "
       "nothing can be pinned.",
       Into(&EngineOptions::max_pinned, ParseShare, "0 to 100")},
      {"max-pinned-by-tenant", "PERCENT", "25", "The same for the pinned documents of each tenant.",
       Into(&EngineOptions::max_pinned_by_tenant, ParseShare, "0 to 100")},
      {"kv-host", "SIZE", "0",
       "Host memory that keeps keys and values of prompts for which --kv-memory has no room, "
       "until they are needed again or newer ones take their place; from there they move on to "
       "--kv-disk. On GPUs needs --gpu-kernels ..-invariant; 0: none.",
       Within(&EngineOptions::kv_host_bytes, 0, 64 * kTiB)},
      {"kv-disk", "DIR", "",
       "Folder of this daemon's own where keys and values of prompts are kept, so that they are "
       "not computed again after a restart; needs --kv-disk-size. What users sent can be read from "
       "it, until they delete the document or other pages take its place. On GPUs needs "
       "--gpu-kernels ..-invariant; empty: none.",
       Into(&EngineOptions::kv_disk, ParseText)},
      {"kv-disk-size", "SIZE", "0", "Largest total size of the files in --kv-disk.",
       Within(&EngineOptions::kv_disk_bytes, 0, 64 * kTiB)},
      {"kv-verify", "sample|off|all", "sample",
       "Which keys and values from --kv-host and --kv-disk are checked by computing them again. "
       "sample: one page of each text that comes back; off: none; all: every page, so prompts are "
       "computed as if nothing were kept. Pages that differ are dropped.",
       OneOf(&EngineOptions::kv_verify,
             {{"sample", KvVerify::kSample}, {"off", KvVerify::kOff}, {"all", KvVerify::kAll}})},
      {"exchange-timeout", "TIME", "30s",
       "How long a rank may wait for another while no rank makes progress; for its GPU half as "
       "long again.",
       Within(&EngineOptions::exchange_timeout, milliseconds(10), hours(1))},
      {"slow-reader-timeout", "TIME", "30s",
       "A client that reads none of its answer for this long is cut off.",
       Within(&EngineOptions::slow_reader_timeout, milliseconds(10), hours(24))},
  };
}

}  // namespace annulus::server
