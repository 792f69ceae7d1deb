#ifndef ANNULUS_ENGINE_REQUEST_REQUEST_H_
#define ANNULUS_ENGINE_REQUEST_REQUEST_H_

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/api/request.h"
#include "engine/api/result.h"
#include "engine/api/ring.h"
#include "engine/base/clock.h"
#include "engine/request/answer_reader.h"
#include "engine/request/attention_account.h"
#include "engine/request/evidence_account.h"
#include "engine/request/reader_pace.h"
#include "engine/sampling/stop_matcher.h"
#include "engine/scheduler/output_guide.h"
#include "engine/scheduler/placement.h"
#include "engine/scheduler/prompt_lookup.h"
#include "engine/sparse/block_pattern.h"
#include "engine/state/sequence.h"
#include "engine/text/incremental_detokenizer.h"

namespace annulus {

// The positions and checkpoints that the request needs pages for if nothing of it is cached.
PageDemand Demand(const RequestSpec& spec, int32_t page_tokens);

// Cuts the prompt of a prefill_only request to whole pages, since only those can be kept. Returns
// false if nothing is left.
bool CutToPages(RequestSpec& spec, int32_t page_tokens);

// One request from submission to its Completion. Turns sampled tokens into text for its sink,
// measures its times and counts its statistics. It runs once, or several times if it is preempted.
//
// "The prompt to read" below is what it computes before it samples: the prompt as submitted and,
// after a preemption, the answer so far. Used by the coordinator's thread alone after submission.
class Request {
 public:
  // The time of submission is now. The times in `spec` must be times of `clock`. `tokenizer` and
  // `clock` must outlive the request.
  Request(RequestId id, RequestSpec spec, std::shared_ptr<TokenSink> sink,
          const Tokenizer& tokenizer, const Clock& clock);

  RequestId id() const { return id_; }
  // After a preemption, `prompt` ends with the answer so far: see RequestSpec::answered.
  const RequestSpec& spec() const { return spec_; }
  // Tokens that its answer begins with (EngineSeams::force_answer). Call before it is submitted.
  void ForceAnswer(std::vector<int32_t> tokens) { forced_ = std::move(tokens); }
  const std::vector<int32_t>& forced() const { return forced_; }
  TokenSink& sink() { return *sink_; }
  SteadyTime submitted() const { return submitted_; }
  SteadyTime documents_found() const { return spec_.documents_found.value_or(submitted_); }
  int64_t prompt_tokens() const { return prompt_tokens_; }  // as submitted
  // Length of the prompt to read.
  int32_t tokens_to_read() const { return static_cast<int32_t>(spec_.prompt.size()); }
  int64_t completion_tokens() const { return completion_tokens_; }
  // Null while it does not run.
  Sequence* sequence() { return sequence_; }
  const Sequence* sequence() const { return sequence_; }
  const Timings& timings() const { return timings_; }

  // Turns on guessing of tokens until the sequence ends: see PromptLookup. `guide`: of the
  // request's output constraint.
  void GuessAhead(int64_t most_tokens, std::optional<OutputGuide> guide) {
    lookup_.emplace(most_tokens);
    guide_ = std::move(guide);
  }
  // Null if guessing is off.
  PromptLookup* lookup() { return lookup_.has_value() ? &*lookup_ : nullptr; }
  bool guesses() const { return lookup_.has_value(); }
  // Null if guessing is off, or the output is not constrained.
  OutputGuide* guide() { return guide_.has_value() ? &*guide_ : nullptr; }
  // Says of the sequence's draft whether its tokens have no alternative (OutputGuide::Forced).
  void NoteDraft(bool forced) { draft_is_forced_ = forced; }
  // Heap bytes that guessing takes.
  int64_t lookup_bytes() const;
  // Records that a step tried `drafted` guesses, of which the first `accepted` were right. Guessing
  // must be on.
  void CountDraft(int drafted, int accepted);

  // Call when the request begins to run as `sequence`, for the first time or again. The engine
  // state owns the sequence.
  void Admit(Sequence* sequence);
  // If evidence is asked for: call when it first begins. `block`: EvidenceBlock.
  void KeepEvidence(int32_t block) {
    if (!evidence_.has_value()) evidence_.emplace(spec_.documents, block);
  }
  // Undoes the last Admit. `has_begun`: what has_begun() returned before that Admit.
  void TakeBackAdmission(bool has_begun);
  // Whether it runs or has run.
  bool has_begun() const { return has_begun_; }
  // The policies that it began with, resolved, and keeps; null: dense. Requires has_begun().
  const std::shared_ptr<const AttentionAssignment>& attention() const { return policies_; }
  // SamplingParams::prompt_logprobs, until the sink has them all.
  std::optional<int32_t> prompt_logprobs() const {
    return passed_prompt_logprobs_ ? std::nullopt : spec_.sampling.prompt_logprobs;
  }
  // Records that its first `length` tokens were made known because it is set back.
  void NoteKept(int32_t length) { kept_ = length; }
  // How many of its first tokens it may reuse of what it computed itself, also if it ignores the
  // cache: those that were made known, and of which it has the log probabilities that it wants.
  int32_t kept() const;
  // How many tokens of the prompt to read were cached when it last began.
  int32_t begun_from() const { return begun_from_; }
  // How many of these no rank has lost since: only more than these can be news to the prefix index.
  int32_t known() const { return known_; }
  // Records that a step ran this share of the layers for rows of the prompt to read.
  void CountPromptStep(double share) { prompt_steps_ += share; }
  // The sum of these shares since it last began.
  double prompt_steps() const { return prompt_steps_; }

  // Prepares for a preemption: appends the sampled tokens to the prompt to read. If memory runs
  // out, throws and changes nothing.
  void TakeAnswerBack();
  // Detaches the sequence, after TakeAnswerBack. The request waits until the next Admit.
  void Suspend();
  void CountPreemption() { ++timings_.preemptions; }
  // Records that it goes on after a step of the ranks failed; `cause`: for the operator.
  // `repaired`: it kept its place; otherwise it was set back.
  void CountRecovery(std::string cause, bool repaired) {
    ++timings_.recovered;
    if (repaired) ++timings_.repaired;
    failed_step_ = std::move(cause);
  }

  // A step failed that had rows of the request before `end`: until they are computed, it is a
  // suspect. `between_ranks`: it failed on the way from one rank to another. See StepRecovery.
  void Suspect(int32_t end, bool between_ranks) {
    suspect_until_ = end;
    if (between_ranks) ++failed_between_ranks_;
  }
  bool is_suspect() const { return suspect_until_ > 0; }
  // How often that was, since it last was no suspect.
  int failed_between_ranks() const { return failed_between_ranks_; }
  // Call after a step with its rows: it is no suspect once all that failed is computed.
  void Passed() {
    if (sequence_->computed < suspect_until_) return;
    suspect_until_ = failed_between_ranks_ = 0;
    sequence_->apart = false;
  }

  // The prefix lengths up to which the prompt is kept for later requests: those of
  // RequestSpec::shared_prefixes and the whole prompt, rounded down to whole pages, ascending.
  static std::vector<int32_t> Checkpoints(const RequestSpec& spec, int32_t page_tokens);
  // Returns the next checkpoint once it has been computed; nothing until then. Skips those that
  // are known().
  std::optional<int32_t> TakeCheckpoint(int32_t page_tokens);
  // Ranks have lost pages of it, none before `length`: TakeCheckpoint returns those behind it once
  // more.
  void TakeCheckpointsAgain(int32_t length) {
    known_ = std::min(known_, length);
    checkpoints_taken_ = 0;
  }

  // Tells the sink the request's place in the queue (0: next) if that has changed. Places from 16
  // on are reported only once. No-op after the request has begun.
  void ReportQueued(int position);

  // Tells the sink how many tokens of the prompt are processed, including cached ones, and when the
  // rest will be. `done`, `left`: predicted seconds for what this request has computed and still
  // has to, steps included. No-op after the first token, or if `processed` is less than before: a
  // preemption does not show.
  void ReportProgress(int64_t processed, double done, double left);
  // Whether 0.3 s have passed since the last progress report, or since admission.
  bool ProgressIsDue() const;

  // Takes the log probability of the prompt's token behind `position`. Ignores those that it has,
  // as it gets them again after a preemption. The sink gets all of them before the first token.
  void AddPromptLogprob(int64_t position, const TokenLogprob& logprob);

  struct TokenOutcome {
    std::optional<FinishReason> finished;
    std::optional<double> gap_seconds;  // since the last tokens; absent for the first
    int taken = 0;                      // how many tokens were used
    bool parked = false;                // it was parked since the last tokens
    absl::Status status;                // of AnswerReading::memory; if not OK, the request must end
  };
  // Takes the tokens of one step (at least one, none with an error) and passes their text to the
  // sink: as one delta, or as several where its order demands it. If a token finishes the request,
  // or there is no memory to read on, drops those after it.
  TokenOutcome AddTokens(std::span<const SampledToken> tokens);
  // Adds the seconds of one of its steps: Timings::ring_wait and host.
  void CountTimes(double ring_wait, double host) {
    timings_.ring_wait += ring_wait;
    timings_.host += host;
  }
  // Counts a gap that was longer than the stall budget.
  void CountStall() { ++timings_.stalls; }

  // How long a step took to attend the request's rows.
  struct AttendSeconds {
    double all_ranks = 0;  // sum over the ranks
    double wall = 0;       // of the slowest rank
  };
  // Adds one of the request's items: its mode, the (row, key) pairs it attended, and its time.
  void CountStep(RingMode mode, const PairCount& pairs, const AttendSeconds& seconds);
  // Adds only the time, for a step of a suspended chunk that does not end the chunk.
  void CountAttending(const AttendSeconds& seconds);
  // Requires has_begun().
  AttentionAccount& attention_account() { return *account_; }
  // Sets which rotary frequencies it uses, for people: see RopeFactors.
  void SetRopeFactors(std::string factors) { rope_factors_ = std::move(factors); }

  // Sets why `auto` chose its policy, for people.
  void SetAttentionChoice(std::string reason) { attention_.choice = std::move(reason); }
  int64_t cached_tokens() const { return cached_tokens_; }
  int64_t drafted_tokens() const { return drafted_tokens_; }
  int64_t accepted_tokens() const { return accepted_tokens_; }
  // Call if the whole prompt of a prefill_only request was cached, so that it never runs.
  void SetAllCached() { cached_tokens_ = static_cast<int32_t>(prompt_tokens_); }
  // Sets how many of the cached tokens a tier restored for this request, how many of these came
  // from the host's memory, and Usage::checked_position.
  void SetRestored(int64_t tokens, int64_t from_host, std::optional<int64_t> checked) {
    restored_tokens_ = tokens;
    host_tokens_ = from_host;
    checked_position_ = checked;
  }
  // Sets why no more of the prompt was reused.
  void SetCacheMiss(std::optional<CacheMiss> miss) { cache_miss_ = miss; }
  // What attention did so far.
  const AttentionReport& attention_report();

  // Sends the sink the rest of the text and the Completion. The last call before destruction.
  void Finish(FinishReason reason, absl::Status status);

  // Checks that the reader is fast enough: see ReaderPace::Check. `has_room`: TokenSink::HasRoom.
  absl::Status CheckReader(bool has_room, double most_silence);

 private:
  double Elapsed() const;
  void NoteTimes(TokenOutcome& outcome);
  void StopGuessing();
  void AddToken(const SampledToken& token, Delta& delta, TokenOutcome& outcome);
  void ReadToken(const SampledToken& token, std::vector<Delta>& parts);
  bool MatchStops(std::vector<Delta>& parts);
  void Append(std::vector<Delta> parts, Delta& delta);
  void AddEvidence(std::vector<Delta>& parts);
  absl::Status AllowReading();
  std::vector<Delta> TakeRest(Completion& completion);
  void PassOnRest(Completion& completion);
  void PassOnPromptLogprobs();

  const RequestId id_;
  RequestSpec spec_;
  std::vector<int32_t> forced_;
  std::shared_ptr<TokenSink> sink_;
  const Clock& clock_;
  const SteadyTime submitted_;
  const int64_t prompt_tokens_;
  Sequence* sequence_ = nullptr;
  bool has_begun_ = false;
  std::shared_ptr<const AttentionAssignment> policies_;
  int32_t begun_from_ = 0;
  int32_t known_ = 0;
  int32_t kept_ = 0;
  double prompt_steps_ = 0;
  size_t checkpoints_taken_ = 0;
  int32_t cached_tokens_ = 0;
  int64_t restored_tokens_ = 0;
  int64_t host_tokens_ = 0;
  std::optional<int64_t> checked_position_;
  std::optional<CacheMiss> cache_miss_;
  int64_t drafted_tokens_ = 0;
  int64_t accepted_tokens_ = 0;
  std::optional<PromptLookup> lookup_;
  std::optional<OutputGuide> guide_;
  bool draft_is_forced_ = false;
  IncrementalDetokenizer detokenizer_;
  std::optional<AnswerReader> reader_;  // absent: all of the answer is text
  size_t reading_allowed_ = AnswerReading::kOwnBytes;
  StopMatcher stops_;
  std::optional<EvidenceAccount> evidence_;  // present once it has begun, if it is asked for
  std::vector<SentenceEvidence> sentences_;  // of the answer so far that have evidence
  const bool reports_logprobs_;
  std::vector<TokenLogprob> prompt_logprobs_;  // from the prompt's second token on, without texts
  bool passed_prompt_logprobs_ = false;
  // The bytes that Completion::digest is computed from. Absent: a token had no log-probability.
  std::optional<std::string> digested_ = "";
  std::string matched_stop_;
  int64_t completion_tokens_ = 0;
  int queue_position_ = -1;  // last reported; -1: none
  // Seconds after submission.
  double admitted_at_ = 0;
  double last_token_at_ = 0;
  double last_progress_at_ = 0;
  int64_t last_processed_ = 0;
  bool parked_ = false;        // since the last tokens
  int32_t suspect_until_ = 0;  // 0: no suspect
  int failed_between_ranks_ = 0;
  std::string failed_step_;  // Completion::failed_step
  ReaderPace pace_;
  Timings timings_;
  AttentionReport attention_;
  std::string rope_factors_;
  std::optional<AttentionAccount> account_;  // present once has_begun_
  PairCount pairs_;
};

using Requests = std::map<RequestId, std::unique_ptr<Request>>;

}  // namespace annulus

#endif  // ANNULUS_ENGINE_REQUEST_REQUEST_H_
