// What a step of the engine is, what is kept, and how ranks exchange.

#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "server/config/option_setters.h"

namespace annulus {
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
       "as "
       "large as --chunk-tokens.",
       SetStallBudget},
      {"tokens-per-rank", "N", "2048", "A sequence takes one more rank for each of these.",
       [](absl::string_view text, ServerConfig& c) {
         return SetInteger(text, 1, 1'000'000'000, c.engine.tokens_per_rank);
       }},
      {"max-running", "N", "64",
       "Most requests computed at once; those whose clients do not read are not counted.",
       [](absl::string_view text, ServerConfig& c) {
         return SetInteger(text, 1, 4096, c.engine.max_running);
       }},
      {"max-waiting", "N", "256", "Most requests in the queue; more are refused.",
       [](absl::string_view text, ServerConfig& c) {
         return SetInteger(text, 1, 1 << 20, c.engine.max_waiting);
       }},
      {"attention", "POLICY", "dense",
       "Attention of requests that name none: NAME or NAME:parameter=value,..; the policies are "
       "listed below. Others for some layers and heads of keys and values follow: "
       "'adaptive; layers=0-1: dense; layers=4,heads=0-3: window:window=4096'.",
       [](absl::string_view text, ServerConfig& c) -> absl::Status {
         ANNULUS_ASSIGN_OR_RETURN(c.engine.attention, ParseAssignment(text));
         return absl::OkStatus();
       }},
      {"attention-gates", "FILE", "",
       "Safetensors file with the gates of the policy learned, as annulus-bench gates writes it.",
       [](absl::string_view text, ServerConfig& c) {
         return SetText(text, c.engine.attention_gates);
       }},
      {"ring-mode", "auto|pass-kv|pass-q", "auto",
       "What circulates: keys and values, or queries; auto: whichever is faster.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<RingMode>(text,
                                    {{"auto", RingMode::kAuto},
                                     {"pass-kv", RingMode::kPassKv},
                                     {"pass-q", RingMode::kPassQ}},
                                    c.engine.ring_mode);
       }},
      {"ring-transport", "auto|peer|staged|nccl", "auto",
       "How ranks on several GPUs exchange: copies from memory to memory, through the host's "
       "memory, or NCCL; auto: the first of peer, nccl, staged that there is.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<RingTransport>(text,
                                         {{"auto", RingTransport::kAuto},
                                          {"peer", RingTransport::kPeer},
                                          {"staged", RingTransport::kStaged},
                                          {"nccl", RingTransport::kNccl}},
                                         c.engine.ring_transport);
       }},
      {"device-graphs", "auto|off", "auto",
       "Launches of a step that decodes go to a GPU together, as a graph; off: one by one.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<bool>(text, {{"auto", true}, {"off", false}}, c.engine.device_graphs);
       }},
      {"speculate", "auto|ngram|off", "auto",
       "ngram: of requests that do not say, guess tokens ahead from the request's own text, what "
       "followed the same words before; guesses are checked together, so answers that quote their "
       "documents come sooner, and no answer changes; auto: ngram, on GPUs off.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<std::optional<Speculation>>(
             text,
             {{"auto", std::nullopt}, {"ngram", Speculation::kNgram}, {"off", Speculation::kOff}},
             c.engine.speculation);
       }},
      {"ring-profile", "FILE", "",
       "Measured rates for --ring-mode auto: read if FILE exists, else measured at start and "
       "written "
       "there; empty: measured at every start.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.engine.profile); }},
      {"max-pinned", "PERCENT", "50",
       "Most of the memory for keys and values that pinned documents take; 0: none can be pinned.",
       [](absl::string_view text, ServerConfig& c) { return SetShare(text, c.engine.max_pinned); }},
      {"max-pinned-by-tenant", "PERCENT", "25", "The same of each tenant's.",
       [](absl::string_view text, ServerConfig& c) {
         return SetShare(text, c.engine.max_pinned_by_tenant);
       }},
      {"kv-host", "SIZE", "0",
       "Host memory where keys and values of prompts stay when --kv-memory has no room for them, "
       "until they are needed again or newer ones take their place; from there they go on to "
       "--kv-disk. CPUs only; 0: none.",
       [](absl::string_view text, ServerConfig& c) -> absl::Status {
         size_t bytes = 0;
         ANNULUS_RETURN_IF_ERROR(SetSize(text, 0, 64 * kTiB, bytes));
         c.engine.kv_host_bytes = static_cast<int64_t>(bytes);
         return absl::OkStatus();
       }},
      {"kv-disk", "DIR", "",
       "Folder of this daemon's own where keys and values of prompts are kept, so that they are "
       "not computed again after a restart; needs --kv-disk-size. What users sent can be read from "
       "it, until they delete the document or other pages take its place. CPUs only; empty: none.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.engine.kv_disk); }},
      {"kv-disk-size", "SIZE", "0", "Most that the files of --kv-disk take.",
       [](absl::string_view text, ServerConfig& c) -> absl::Status {
         size_t bytes = 0;
         ANNULUS_RETURN_IF_ERROR(SetSize(text, 0, 64 * kTiB, bytes));
         c.engine.kv_disk_bytes = static_cast<int64_t>(bytes);
         return absl::OkStatus();
       }},
      {"kv-verify", "sample|off|all", "sample",
       "Whether keys and values from --kv-host and --kv-disk are held against what computing "
       "gives: "
       "one page of each text that comes back; none; or all pages, for which prompts are "
       "computed as if nothing were kept. What is found to differ is not used, and goes.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<KvVerify>(
             text,
             {{"sample", KvVerify::kSample}, {"off", KvVerify::kOff}, {"all", KvVerify::kAll}},
             c.engine.kv_verify);
       }},
      {"exchange-timeout", "TIME", "30s",
       "Longest wait of a rank for another; for its GPU half as long again.",
       [](absl::string_view text, ServerConfig& c) {
         return SetDuration(text, milliseconds(10), hours(1), c.engine.exchange_timeout);
       }},
      {"slow-reader-timeout", "TIME", "30s",
       "A client that reads none of its answer for so long is cut off.",
       [](absl::string_view text, ServerConfig& c) {
         return SetDuration(text, milliseconds(10), hours(24), c.engine.slow_reader_timeout);
       }},
  };
}

}  // namespace annulus
