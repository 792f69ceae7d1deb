#ifndef ANNULUS_ENGINE_REQUEST_REQUEST_H_
#define ANNULUS_ENGINE_REQUEST_REQUEST_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/api/request.h"
#include "engine/api/result.h"
#include "engine/api/ring.h"
#include "engine/base/clock.h"
#include "engine/request/attention_account.h"
#include "engine/request/reader_pace.h"
#include "engine/sampling/stop_matcher.h"
#include "engine/scheduler/placement.h"
#include "engine/scheduler/prompt_lookup.h"
#include "engine/sparse/block_pattern.h"
#include "engine/state/sequence.h"
#include "engine/text/incremental_detokenizer.h"

namespace annulus {

// Pages that a request with this specification fills, before anything cached is counted.
PageDemand Demand(const RequestSpec& spec, int32_t page_tokens);

// Cuts the prompt to whole pages, as only those can be kept. False: nothing is left.
bool CutToPages(RequestSpec& spec, int32_t page_tokens);

// One request from submission to its Completion: text that is still to be sent, times and, while it
// runs, its sequence. It runs once, or several times if it is preempted. After submission used by
// the coordinator's thread alone.
class Request {
 public:
  // It is submitted now, by `clock`, of which the times in `spec` must be too. `tokenizer` and
  // `clock` must outlive the request.
  Request(RequestId id, RequestSpec spec, std::shared_ptr<TokenSink> sink,
          const Tokenizer& tokenizer, const Clock& clock);

  RequestId id() const { return id_; }
  // After a preemption with the answer so far in `prompt`: see RequestSpec::answered.
  const RequestSpec& spec() const { return spec_; }
  TokenSink& sink() { return *sink_; }
  SteadyTime submitted() const { return submitted_; }
  SteadyTime documents_found() const { return spec_.documents_found.value_or(submitted_); }
  int64_t prompt_tokens() const { return prompt_tokens_; }  // as submitted
  // What it computes as a prompt when it begins or goes on: as submitted, and the answer so far.
  int32_t tokens_to_read() const { return static_cast<int32_t>(spec_.prompt.size()); }
  int64_t completion_tokens() const { return completion_tokens_; }
  Sequence* sequence() { return sequence_; }
  const Sequence* sequence() const { return sequence_; }
  const Timings& timings() const { return timings_; }

  // Turns on guessing of tokens: see PromptLookup.
  void GuessAhead(int64_t most_tokens) { lookup_.emplace(most_tokens); }
  PromptLookup* lookup() { return lookup_.has_value() ? &*lookup_ : nullptr; }
  // Bytes of memory that guessing takes.
  int64_t lookup_bytes() const;
  // A step tried `drafted` guesses, of which the first `accepted` were right.
  void CountDraft(int drafted, int accepted);

  // The request now runs as `sequence` (owned by the engine state), for the first time or again.
  void Admit(Sequence* sequence);
  // Undoes the last Admit. `has_begun`: what has_begun() was before it.
  void TakeBackAdmission(bool has_begun);
  // Whether it runs or has run.
  bool has_begun() const { return has_begun_; }
  // Of tokens_to_read(), those that were computed already when it last began.
  int32_t begun_from() const { return begun_from_; }

  // Prepares for a preemption: the prompt to read becomes all tokens of the sequence. Changes
  // nothing if memory runs out.
  void TakeAnswerBack();
  // The sequence ends; the request waits until Admit. Call after TakeAnswerBack.
  void Suspend();

  // Lengths of the prompt's beginnings that are to be kept for later requests: whole pages,
  // ascending.
  static std::vector<int32_t> Checkpoints(const RequestSpec& spec, int32_t page_tokens);
  // Returns each checkpoint once, in order, as soon as it is computed; those that were cached are
  // skipped.
  std::optional<int32_t> TakeCheckpoint(int32_t page_tokens);

  // Tells the sink the request's place in the queue, if that changed. Not once it has begun.
  void ReportQueued(int position);

  // Tells the sink how far the prompt is: `processed` tokens, cached ones included. `done` and
  // `left` are the work behind and before it, cached tokens aside, in any unit. Never tells less
  // than before, and nothing once the answer has begun: a preemption does not show.
  void ReportProgress(int64_t processed, double done, double left);
  // Whether the last such word is half a second old, or about to be.
  bool ProgressIsDue() const;

  // Takes the tokens of a step: at least one, none with an error. Passes their text on and returns
  // whether one of them finished the request; those after it are dropped. Also returns the seconds
  // since the step before, absent for the first.
  struct TokenOutcome {
    std::optional<FinishReason> finished;
    std::optional<double> gap_seconds;
    int taken = 0;
    bool parked = false;  // it was parked since the last token
  };
  TokenOutcome AddTokens(std::span<const SampledToken> tokens);
  // Adds the times of one of its steps: see Timings.
  void CountTimes(double ring_wait, double host) {
    timings_.ring_wait += ring_wait;
    timings_.host += host;
  }
  // Counts a gap that was longer than the stall budget.
  void CountStall() { ++timings_.stalls; }

  // How long a step took to attend the request's rows.
  struct AttendSeconds {
    double all_ranks = 0;  // added up
    double wall = 0;       // of the slowest
  };
  void CountStep(RingMode mode, const PairCount& pairs, const AttendSeconds& seconds);
  // The same for a step that ran some layers of a suspended chunk, without the last.
  void CountAttending(const AttendSeconds& seconds);
  AttentionAccount& attention_account() { return *account_; }
  // Which rotary frequencies it has: RopeFactors.
  void SetRopeFactors(std::string factors) { rope_factors_ = std::move(factors); }

  void SetAttentionChoice(std::string reason) { attention_.choice = std::move(reason); }
  int64_t cached_tokens() const { return cached_tokens_; }
  int64_t drafted_tokens() const { return drafted_tokens_; }
  int64_t accepted_tokens() const { return accepted_tokens_; }
  // The whole prompt was cached, so it need not be read.
  void SetAllCached() { cached_tokens_ = static_cast<int32_t>(prompt_tokens_); }
  // Of the cached tokens, those that came back for this request; `checked`: Usage's
  // checked_position.
  void SetRestored(int64_t tokens, int64_t from_host, std::optional<int64_t> checked) {
    restored_tokens_ = tokens;
    host_tokens_ = from_host;
    checked_position_ = checked;
  }
  // Why no more of the prompt was reused.
  void SetCacheMiss(std::optional<CacheMiss> miss) { cache_miss_ = miss; }
  // The report of what attention did so far.
  const AttentionReport& attention_report();

  // Tells the sink that the request is over. The last call before destruction.
  void Finish(FinishReason reason, absl::Status status);

  // Whether the reader is fast enough: see ReaderPace. `has_room`: what the sink says now.
  absl::Status LookAtReader(bool has_room, double most_silence);

 private:
  double Elapsed() const;
  void NoteTimes(TokenOutcome& outcome);
  void AddToken(const SampledToken& token, Delta& delta, TokenOutcome& outcome);
  void PassOnRest(Completion& completion);

  const RequestId id_;
  RequestSpec spec_;
  std::shared_ptr<TokenSink> sink_;
  const Clock& clock_;
  const SteadyTime submitted_;
  const int64_t prompt_tokens_;
  Sequence* sequence_ = nullptr;
  bool has_begun_ = false;
  int32_t begun_from_ = 0;
  size_t checkpoints_taken_ = 0;
  int32_t cached_tokens_ = 0;
  int64_t restored_tokens_ = 0;
  int64_t host_tokens_ = 0;
  std::optional<int64_t> checked_position_;
  std::optional<CacheMiss> cache_miss_;
  int64_t drafted_tokens_ = 0;
  int64_t accepted_tokens_ = 0;
  std::optional<PromptLookup> lookup_;
  IncrementalDetokenizer detokenizer_;
  StopMatcher stops_;
  const bool reports_logprobs_;
  std::optional<std::string> digested_ = "";  // what Completion::digest is of
  std::string matched_stop_;
  int64_t completion_tokens_ = 0;
  int queue_position_ = -1;
  double admitted_at_ = 0;
  double last_token_at_ = 0;
  double last_progress_at_ = 0;
  int64_t last_processed_ = 0;
  bool parked_ = false;  // since the last token
  ReaderPace pace_;
  Timings timings_;
  AttentionReport attention_;
  std::string rope_factors_;
  std::optional<AttentionAccount> account_;  // once admitted
  PairCount pairs_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_REQUEST_REQUEST_H_
