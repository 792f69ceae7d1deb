#include "engine/request/request.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/base/field_error.h"
#include "engine/base/sha256.h"
#include "engine/request/delta_order.h"
#include "engine/text/utf8.h"
#include "kernels/base/check.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

void AppendLittleEndian(uint32_t value, std::string& bytes) {
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(value >> shift));
}

// Adds the text of a token, and its bytes if they are not text.
void AddText(const Tokenizer& tokenizer, int32_t id, TokenLogprob& logprob) {
  std::string bytes = TokenBytes(tokenizer, id);
  if (!FirstInvalidUtf8(bytes).has_value()) {
    logprob.texts.push_back(std::move(bytes));
    return;
  }
  logprob.partial.resize(1 + logprob.alternatives.size());
  logprob.partial[logprob.texts.size()] = bytes;
  logprob.texts.push_back(ToValidUtf8(bytes));
}

// Adds the texts of a token and its alternatives. A request may ask for at most 20 of these, so the
// work for a token is bounded.
TokenLogprob WithTexts(TokenLogprob logprob, const Tokenizer& tokenizer) {
  logprob.texts.reserve(1 + logprob.alternatives.size());
  AddText(tokenizer, logprob.token_id, logprob);
  for (const auto& [id, value] : logprob.alternatives) AddText(tokenizer, id, logprob);
  return logprob;
}

}  // namespace

Request::Request(RequestId id, RequestSpec spec, std::shared_ptr<TokenSink> sink,
                 const Tokenizer& tokenizer, const Clock& clock)
    : id_(id),
      spec_(std::move(spec)),
      sink_(std::move(sink)),
      clock_(clock),
      submitted_(clock.Now()),
      prompt_tokens_(static_cast<int64_t>(spec_.prompt.size())),
      detokenizer_(&tokenizer),
      stops_(spec_.sampling.stop),
      reports_logprobs_(spec_.sampling.logprobs.has_value()) {
  if (spec_.reading.format != nullptr) reader_.emplace(spec_.reading);
  spec_.answered = 0;
  if (spec_.digest && !reports_logprobs_) spec_.sampling.logprobs = 0;
  if (!spec_.sampling.prompt_logprobs.has_value()) return;
  spec_.ignore_cache = true;
  prompt_logprobs_.reserve(spec_.prompt.size());
}

double Request::Elapsed() const { return SecondsBetween(submitted_, clock_.Now()); }

void Request::Admit(Sequence* sequence) {
  sequence_ = sequence;
  begun_from_ = sequence->computed;
  known_ = begun_from_;
  prompt_steps_ = 0;
  attention_.ring_degree = static_cast<int>(sequence->ring.size());
  if (std::exchange(has_begun_, true)) return;
  policies_ = sequence->attention;
  cached_tokens_ = sequence->computed;
  admitted_at_ = Elapsed();
  timings_.queue = admitted_at_;
  if (sequence->attention != nullptr) attention_.policy = AssignmentText(*sequence->attention);
  account_.emplace();
}

int32_t Request::kept() const {
  if (!prompt_logprobs().has_value()) return kept_;
  return std::min(kept_, static_cast<int32_t>(prompt_logprobs_.size()));
}

void Request::TakeBackAdmission(bool has_begun) {
  sequence_ = nullptr;
  has_begun_ = has_begun;
  StopGuessing();
}

void Request::StopGuessing() {
  lookup_.reset();
  guide_.reset();
}

void Request::TakeAnswerBack() {
  const std::vector<int32_t>& tokens = sequence_->tokens;
  spec_.prompt.reserve(tokens.size());  // exactly: WaitingBytes counts no more
  spec_.prompt.insert(spec_.prompt.end(), tokens.begin() + tokens_to_read(), tokens.end());
  spec_.answered = tokens_to_read() - static_cast<int32_t>(prompt_tokens_);
}

void Request::Suspend() {
  sequence_ = nullptr;
  StopGuessing();
}

PageDemand Demand(const RequestSpec& spec, int32_t page_tokens) {
  PageDemand demand;
  demand.tokens =
      static_cast<int64_t>(spec.prompt.size()) - spec.answered + spec.sampling.max_tokens;
  demand.checkpoints = static_cast<int32_t>(Request::Checkpoints(spec, page_tokens).size());
  return demand;
}

bool CutToPages(RequestSpec& spec, int32_t page_tokens) {
  const auto kept = static_cast<int32_t>(spec.prompt.size()) / page_tokens * page_tokens;
  spec.prompt.resize(static_cast<size_t>(kept));
  for (int32_t& length : spec.shared_prefixes) length = std::min(length, kept);
  return kept > 0;
}

std::vector<int32_t> Request::Checkpoints(const RequestSpec& spec, int32_t page_tokens) {
  std::vector<int32_t> lengths = spec.shared_prefixes;
  lengths.push_back(static_cast<int32_t>(spec.prompt.size()));
  for (int32_t& length : lengths) length = length / page_tokens * page_tokens;
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  if (lengths.front() == 0) lengths.erase(lengths.begin());
  return lengths;
}

std::optional<int32_t> Request::TakeCheckpoint(int32_t page_tokens) {
  const std::vector<int32_t> lengths = Checkpoints(spec_, page_tokens);
  while (checkpoints_taken_ < lengths.size()) {
    const int32_t length = lengths[checkpoints_taken_];
    if (length > sequence_->whole()) return std::nullopt;
    ++checkpoints_taken_;
    if (length > known_) return length;
  }
  return std::nullopt;
}

void Request::ReportQueued(int position) {
  // A request far down the queue is told only its first position: telling every request of every
  // move would take time with the square of the queue's length.
  constexpr int kNear = 16;
  if (has_begun_ || position == queue_position_ || (queue_position_ >= 0 && position >= kNear))
    return;
  queue_position_ = position;
  sink_->OnQueued(position);
}

void Request::ReportProgress(int64_t processed, double done, double left) {
  if (completion_tokens_ > 0 || processed < last_processed_) return;
  last_processed_ = processed;
  PromptProgress progress;
  progress.total = prompt_tokens_;
  progress.cached = cached_tokens_;
  progress.processed = processed;
  progress.elapsed_seconds = Elapsed() - admitted_at_;
  // Assumes that the rest continues at the rate so far, including other work in the steps.
  progress.eta_seconds = done > 0 ? progress.elapsed_seconds * left / done : left;
  progress.ring_degree = attention_.ring_degree;
  last_progress_at_ = Elapsed();
  sink_->OnProgress(progress);
}

bool Request::ProgressIsDue() const {
  constexpr double kInterval = 0.3;
  return Elapsed() - std::max(last_progress_at_, admitted_at_) >= kInterval;
}

void Request::CountStep(RingMode mode, const PairCount& pairs, const AttendSeconds& seconds) {
  pairs_ += pairs;
  CountAttending(seconds);
  attention_.density = pairs_.density();
  if (attention_.ring_degree < 2) return;
  ++(mode == RingMode::kPassKv ? attention_.steps_pass_kv : attention_.steps_pass_q);
}

void Request::CountAttending(const AttendSeconds& seconds) {
  attention_.attend_seconds += seconds.all_ranks;
  attention_.attend_wall_seconds += seconds.wall;
}

const AttentionReport& Request::attention_report() {
  if (account_.has_value()) account_->Fill(attention_);
  return attention_;
}

int64_t Request::lookup_bytes() const {
  if (!lookup_.has_value()) return 0;
  return PromptLookup::BytesFor(prompt_tokens_ + spec_.sampling.max_tokens) +
         static_cast<int64_t>(guide_.has_value() ? OutputGuide::kCacheBytes : 0);
}

void Request::CountDraft(int drafted, int accepted) {
  if (!draft_is_forced_) lookup_->Learn(drafted, accepted);
  drafted_tokens_ += drafted;
  accepted_tokens_ += accepted;
}

void Request::AddPromptLogprob(int64_t position, const TokenLogprob& logprob) {
  if (passed_prompt_logprobs_) return;
  if (position != std::ssize(prompt_logprobs_) || position + 1 >= prompt_tokens_) return;
  prompt_logprobs_.push_back(logprob);
}

// In pieces: a sink passes on each delta as one event.
void Request::PassOnPromptLogprobs() {
  constexpr size_t kPiece = 256;
  if (std::exchange(passed_prompt_logprobs_, true)) return;
  for (size_t first = 0; first < prompt_logprobs_.size(); first += kPiece) {
    const size_t end = std::min(first + kPiece, prompt_logprobs_.size());
    Delta delta;
    for (size_t i = first; i < end; ++i) {
      delta.prompt_logprobs.push_back(
          WithTexts(std::move(prompt_logprobs_[i]), detokenizer_.tokenizer()));
    }
    sink_->OnDelta(std::move(delta));
  }
  prompt_logprobs_ = std::vector<TokenLogprob>();
}

Request::TokenOutcome Request::AddTokens(std::span<const SampledToken> tokens) {
  PassOnPromptLogprobs();
  TokenOutcome outcome;
  NoteTimes(outcome);
  Delta delta;
  for (const SampledToken& token : tokens) {
    AddToken(token, delta, outcome);
    ++outcome.taken;
    if (outcome.finished.has_value()) break;
    if (outcome.status.ok()) outcome.status = AllowReading();
    if (!outcome.status.ok()) break;
  }
  sink_->OnDelta(std::move(delta));
  return outcome;
}

void Request::NoteTimes(TokenOutcome& outcome) {
  const double now = Elapsed();
  if (completion_tokens_ == 0) {
    timings_.time_to_first_token = now;
    timings_.prefill = now - admitted_at_;
  } else {
    outcome.gap_seconds = now - last_token_at_;
  }
  outcome.parked = std::exchange(parked_, false);
  if (!outcome.parked) {
    timings_.longest_gap = std::max(timings_.longest_gap, outcome.gap_seconds.value_or(0));
  }
  last_token_at_ = now;
}

void Request::AddToken(const SampledToken& token, Delta& delta, TokenOutcome& outcome) {
  ++completion_tokens_;
  std::vector<Delta> parts(1);
  parts.front().token_ids.push_back(token.token);
  if (!token.logprob.has_value()) {
    digested_.reset();  // of all tokens or of none
  } else if (spec_.digest && digested_.has_value()) {
    AppendLittleEndian(static_cast<uint32_t>(token.token), *digested_);
    AppendLittleEndian(std::bit_cast<uint32_t>(token.logprob->logprob), *digested_);
  }
  if (reports_logprobs_ && token.logprob.has_value()) {
    parts.front().logprobs.push_back(WithTexts(*token.logprob, detokenizer_.tokenizer()));
  }
  ReadToken(token, parts);
  const bool matches = completion_tokens_ >= spec_.sampling.min_tokens && MatchStops(parts);
  if (evidence_.has_value()) {
    if (!evidence_->AddShares(token.shares)) {
      outcome.status =
          absl::InternalError("a rank gave attention to what is no part of the documents");
    }
    AddEvidence(parts);
  }
  Append(std::move(parts), delta);
  if (token.ends_text || matches || (reader_.has_value() && reader_->has_only_call())) {
    outcome.finished = FinishReason::kStop;
  } else if (completion_tokens_ >= spec_.sampling.max_tokens) {
    outcome.finished = FinishReason::kLength;
  }
}

// Adds what the token tells of the answer: see AnswerReader::Push.
void Request::ReadToken(const SampledToken& token, std::vector<Delta>& parts) {
  if (!reader_.has_value()) {
    if (!token.ends_text) parts.back().text = detokenizer_.Push(token.token);
  } else if (token.ends_text) {
    reader_->PushEnd(token.token, detokenizer_, parts);
  } else {
    reader_->Push(token.token, detokenizer_, parts);
  }
}

// Takes out of the parts the text that may be part of a stop, or stands behind one. No stop reaches
// over reasoning or a call. Returns whether one has matched.
bool Request::MatchStops(std::vector<Delta>& parts) {
  std::vector<Delta> given = std::exchange(parts, {});
  for (Delta& part : given) {
    const bool done = !matched_stop_.empty();
    if (!part.reasoning.empty() && !done && stops_.held() > 0) {
      parts.emplace_back().text = stops_.Release();
    }
    const std::string text = std::exchange(part.text, "");
    parts.push_back(std::move(part));
    if (done) continue;
    StopMatcher::Result result = stops_.Append(text);
    parts.back().text = std::move(result.text);
    if (result.matched.has_value()) {
      matched_stop_ = *std::move(result.matched);
    } else if (!parts.back().calls.empty()) {
      parts.back().text += stops_.Release();
    }
  }
  return !matched_stop_.empty();
}

// Adds parts of the answer to `delta`. What it has goes to the sink before parts that may not stand
// behind that.
void Request::Append(std::vector<Delta> parts, Delta& delta) {
  for (Delta& part : parts) {
    if (!MayJoin(delta, FirstRank(part))) sink_->OnDelta(std::exchange(delta, Delta()));
    Join(std::move(part), delta);
  }
}

// Adds the sentences that end in the parts. Reasoning stands before a part's text, calls behind it.
void Request::AddEvidence(std::vector<Delta>& parts) {
  for (Delta& part : parts) {
    if (!part.reasoning.empty() || !part.calls.empty()) evidence_->Drop();
    if (!part.reasoning.empty()) evidence_->Finish(part.evidence);
    evidence_->AddText(part.text, part.evidence);
    if (!part.calls.empty()) evidence_->Finish(part.evidence);
    sentences_.insert(sentences_.end(), part.evidence.begin(), part.evidence.end());
  }
}

// In steps, since all requests share what is asked.
absl::Status Request::AllowReading() {
  constexpr size_t kStep = size_t{64} << 10;
  if (!reader_.has_value() || spec_.reading.memory == nullptr) return absl::OkStatus();
  const size_t bytes = reader_->bytes();
  if (bytes <= reading_allowed_) return absl::OkStatus();
  const size_t more = (bytes / kStep + 1) * kStep;
  ANNULUS_RETURN_IF_ERROR(spec_.reading.memory->Allow(more));
  reading_allowed_ = AnswerReading::kOwnBytes + more;
  return absl::OkStatus();
}

void Request::Finish(FinishReason reason, absl::Status status) {
  timings_.total = Elapsed();
  if (!has_begun_) timings_.queue = timings_.total;
  if (sequence_ != nullptr && reason == FinishReason::kPrefilled) {
    timings_.prefill = timings_.total - admitted_at_;
  }
  if (completion_tokens_ > 0) timings_.decode = last_token_at_ - timings_.time_to_first_token;
  Completion completion;
  completion.status = std::move(status);
  completion.finish_reason = reason;
  completion.usage.prompt_tokens = prompt_tokens_;
  completion.usage.completion_tokens = completion_tokens_;
  completion.usage.cached_tokens = cached_tokens_;
  completion.usage.restored_tokens = restored_tokens_;
  completion.usage.host_tokens = host_tokens_;
  completion.usage.checked_position = checked_position_;
  completion.usage.cache_miss = cache_miss_;
  completion.usage.drafted_tokens = drafted_tokens_;
  completion.usage.accepted_tokens = accepted_tokens_;
  completion.output_below_min_tokens = spec_.output.machine != nullptr &&
                                       reason == FinishReason::kStop &&
                                       completion_tokens_ < spec_.sampling.min_tokens;
  completion.timings = timings_;
  completion.failed_step = std::move(failed_step_);
  const auto complete = [&] {
    PassOnRest(completion);
    if (reader_.has_value()) {
      completion.calls = reader_->calls();
      completion.broken_calls = reader_->broken();
      completion.usage.reasoning_tokens = reader_->reasoning_tokens();
    }
    completion.matched_stop = matched_stop_;
    completion.attention = attention_report();
    completion.rope_factors = rope_factors_;
    if (spec_.digest && digested_.has_value()) completion.digest = Sha256Of(*digested_);
    return absl::OkStatus();
  };
  // Without memory the end of the text may be missing, so the request must not seem to end well.
  if (absl::Status memory = Guarded(complete, NoMemoryError); !memory.ok()) {
    completion.finish_reason = FinishReason::kError;
    completion.status = std::move(memory);
  }
  sink_->OnDone(std::move(completion));
}

// The held-back text, which may turn out to contain a stop only now.
std::vector<Delta> Request::TakeRest(Completion& completion) {
  if (!matched_stop_.empty() || completion_tokens_ == 0) return {};
  std::vector<Delta> parts(1);
  if (reader_.has_value()) {
    reader_->Finish(detokenizer_, parts);
  } else {
    parts.front().text = detokenizer_.Flush();
  }
  if (!MatchStops(parts)) {
    parts.emplace_back().text = stops_.Finish();
  } else if (completion.status.ok()) {
    completion.finish_reason = FinishReason::kStop;
  }
  return parts;
}

void Request::PassOnRest(Completion& completion) {
  std::vector<Delta> parts = TakeRest(completion);
  if (evidence_.has_value()) {
    AddEvidence(parts);
    Delta& last = parts.emplace_back();
    evidence_->Finish(last.evidence);
    sentences_.insert(sentences_.end(), last.evidence.begin(), last.evidence.end());
    completion.evidence = std::move(sentences_);
  }
  Delta delta;
  Append(std::move(parts), delta);
  if (FirstRank(delta) != DeltaRank::kNothing || !delta.evidence.empty()) {
    sink_->OnDelta(std::move(delta));
  }
}

absl::Status Request::CheckReader(bool has_room, double most_silence) {
  if (!has_room) parked_ = true;
  return pace_.Check(has_room, completion_tokens_, most_silence, clock_.Now());
}

}  // namespace annulus
