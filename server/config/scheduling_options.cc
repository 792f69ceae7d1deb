// What a step of the engine is, what is kept, and how ranks exchange.

#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "server/config/option_setters.h"

namespace annulus::server {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

absl::Status SetStallBudget(absl::string_view text, ServerConfig& config) {
  std::optional<milliseconds>& budget = config.engine.stall_budget;
  if (text == "auto" || text == "off") {
    budget = text == "off" ? std::optional(milliseconds(0)) : std::nullopt;
    return absl::OkStatus();
  }
  const absl::Status status = SetDuration(text, milliseconds(1), hours(1), budget.emplace());
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(status.message(), ", or auto, or off"));
}

}  // namespace

std::vector<Option> SchedulingOptions() {
  return {
      {"page-tokens", "N", "64", "Tokens of one page of keys and values.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<int>(text,
                               {{"16", 16}, {"32", 32}, {"64", 64}, {"128", 128}, {"256", 256}},
                               c.engine.page_tokens);
       }},
      {"chunk-tokens", "N", "2048", "Tokens that one step computes, all ranks together.",
       [](absl::string_view text, ServerConfig& c) {
         return SetInteger(text, 16, 1 << 20, c.engine.chunk_tokens);
       }},
      {"stall-budget", "TIME|off|auto", "auto",
       "The longest that a running answer should wait for its next token while prompts are read "
       "beside it: chunks of prompts are made to fit; auto: 250ms, on GPUs 50ms; off: chunks are "
       "as large as --chunk-tokens.",
       SetStallBudget},
      {"tokens-per-rank", "N", "2048",
       "A sequence is spread over one more rank for every N of its tokens.",
       [](absl::string_view text, ServerConfig& c) {
         return SetInteger(text, 1, 1'000'000'000, c.engine.tokens_per_rank);
       }},
      {"admission", "worst|expected", "worst",
       "Memory for keys and values that a request takes when it begins: for the longest answer "
       "that "
       "it may give, or for one as long as answers have been so far. With expected more requests "
       "run at once; if their memory runs out, some wait again and then go on with the same "
       "answer.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<AdmissionMode>(
             text, {{"worst", AdmissionMode::kWorst}, {"expected", AdmissionMode::kExpected}},
             c.engine.admission);
       }},
      {"max-running", "N", "64",
       "Most requests computed at once, not counting those whose clients do not read.",
       [](absl::string_view text, ServerConfig& c) {
         return SetInteger(text, 1, 4096, c.engine.max_running);
       }},
      {"max-waiting", "N", "256", "Most requests in the queue; further ones are refused.",
       [](absl::string_view text, ServerConfig& c) {
         return SetInteger(text, 1, 1 << 20, c.engine.max_waiting);
       }},
      {"attention", "POLICY", "dense",
       "Attention of requests that name none: NAME or NAME:parameter=value,..; the policies are "
       "listed below. Rules for some layers or heads may follow it: 'adaptive; layers=0-1: dense; "
       "layers=4,heads=0-3: window:window=4096'.",
       [](absl::string_view text, ServerConfig& c) -> absl::Status {
         ANNULUS_ASSIGN_OR_RETURN(c.engine.attention, ParseAssignment(text));
         return absl::OkStatus();
       }},
      {"attention-gates", "FILE", "",
       "Safetensors file with the gates of the policy learned, written by annulus-bench gates; "
       "empty: requests for learned are refused.",
       [](absl::string_view text, ServerConfig& c) {
         return SetText(text, c.engine.attention_gates);
       }},
      {"ring-mode", "auto|pass-kv|pass-q", "auto",
       "What ranks pass on to each other: keys and values, or queries; auto: whichever is faster.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<RingMode>(text,
                                    {{"auto", RingMode::kAuto},
                                     {"pass-kv", RingMode::kPassKv},
                                     {"pass-q", RingMode::kPassQ}},
                                    c.engine.ring_mode);
       }},
      {"ring-transport", "auto|peer|staged|nccl", "auto",
       "How ranks on several GPUs exchange: copies from memory to memory, through the host's "
       "memory, or NCCL; auto: the first of peer, nccl and staged that works here.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<RingTransport>(text,
                                         {{"auto", RingTransport::kAuto},
                                          {"peer", RingTransport::kPeer},
                                          {"staged", RingTransport::kStaged},
                                          {"nccl", RingTransport::kNccl}},
                                         c.engine.ring_transport);
       }},
      {"device-graphs", "auto|off", "auto",
       "auto: launch a decode step on a GPU as one graph, if the GPU can; off: launch its kernels "
       "one by one.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<bool>(text, {{"auto", true}, {"off", false}}, c.engine.device_graphs);
       }},
      {"speculate", "auto|ngram|off", "auto",
       "ngram: for requests that do not choose, guess the next tokens from what followed the same "
       "words earlier in the request's own text, and check all guesses in one step; answers that "
       "quote their documents come sooner, and no answer changes; auto: ngram on CPUs, off on "
       "GPUs.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<std::optional<Speculation>>(
             text,
             {{"auto", std::nullopt}, {"ngram", Speculation::kNgram}, {"off", Speculation::kOff}},
             c.engine.speculation);
       }},
      {"ring-profile", "FILE", "",
       "File with measured rates for --ring-mode auto: read if it exists, else written after "
       "measuring at start; empty: measured at every start.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.engine.profile); }},
      {"max-pinned", "PERCENT", "50",
       "Largest share of the memory for keys and values that pinned documents may take; 0: "
       "nothing can be pinned.",
       [](absl::string_view text, ServerConfig& c) { return SetShare(text, c.engine.max_pinned); }},
      {"max-pinned-by-tenant", "PERCENT", "25", "The same for the pinned documents of each tenant.",
       [](absl::string_view text, ServerConfig& c) {
         return SetShare(text, c.engine.max_pinned_by_tenant);
       }},
      {"kv-host", "SIZE", "0",
       "Host memory that keeps keys and values of prompts for which --kv-memory has no room, "
       "until they are needed again or newer ones take their place; from there they move on to "
       "--kv-disk. On GPUs needs --gpu-kernels ..-invariant; 0: none.",
       [](absl::string_view text, ServerConfig& c) -> absl::Status {
         size_t bytes = 0;
         ANNULUS_RETURN_IF_ERROR(SetSize(text, 0, 64 * kTiB, bytes));
         c.engine.kv_host_bytes = static_cast<int64_t>(bytes);
         return absl::OkStatus();
       }},
      {"kv-disk", "DIR", "",
       "Folder of this daemon's own where keys and values of prompts are kept, so that they are "
       "not computed again after a restart; needs --kv-disk-size. What users sent can be read from "
       "it, until they delete the document or other pages take its place. On GPUs needs "
       "--gpu-kernels ..-invariant; empty: none.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.engine.kv_disk); }},
      {"kv-disk-size", "SIZE", "0", "Largest total size of the files in --kv-disk.",
       [](absl::string_view text, ServerConfig& c) -> absl::Status {
         size_t bytes = 0;
         ANNULUS_RETURN_IF_ERROR(SetSize(text, 0, 64 * kTiB, bytes));
         c.engine.kv_disk_bytes = static_cast<int64_t>(bytes);
         return absl::OkStatus();
       }},
      {"kv-verify", "sample|off|all", "sample",
       "Which keys and values from --kv-host and --kv-disk are checked by computing them again. "
       "sample: one page of each text that comes back; off: none; all: every page, so prompts are "
       "computed as if nothing were kept. Pages that differ are dropped.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<KvVerify>(
             text,
             {{"sample", KvVerify::kSample}, {"off", KvVerify::kOff}, {"all", KvVerify::kAll}},
             c.engine.kv_verify);
       }},
      {"exchange-timeout", "TIME", "30s",
       "How long a rank may wait for another while no rank makes progress; for its GPU half as "
       "long again.",
       [](absl::string_view text, ServerConfig& c) {
         return SetDuration(text, milliseconds(10), hours(1), c.engine.exchange_timeout);
       }},
      {"slow-reader-timeout", "TIME", "30s",
       "A client that reads none of its answer for this long is cut off.",
       [](absl::string_view text, ServerConfig& c) {
         return SetDuration(text, milliseconds(10), hours(24), c.engine.slow_reader_timeout);
       }},
  };
}

}  // namespace annulus::server
