// The part of Coordinator that runs a step: plans it, has the ranks run it, and uses its results.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/error_payloads.h"
#include "engine/base/field_error.h"
#include "engine/coordinator/coordinator.h"
#include "kernels/base/guarded.h"

namespace annulus {
namespace {

// What clients are told; `again`: another step may succeed.
absl::Status StepError(const absl::Status& cause, bool again) {
  absl::Status status = absl::UnavailableError(
      again ? "computing the answer failed; try again"
            : "computing the answer failed; the server must be restarted, and its log says why");
  status.SetPayload(kCausePayload, absl::Cord(cause.ToString()));
  return status;
}

}  // namespace

// Has the ranks run the next step, or waits for the one that they have, and uses its results. The
// ranks get the step behind it first, if it can be planned already. Returns false if there was
// nothing to do.
bool Coordinator::RunStep() {
  if (!step_.has_value()) {
    if (const std::optional<bool> worked = BeginStep(); worked.has_value()) return *worked;
  }
  const RunningStep step = *step_;
  std::shared_ptr<const StepPlan> behind = BeginBehind(*step.plan);
  absl::StatusOr<std::vector<RankResult>> results = ranks_.Results();
  const SteadyTime now = clock_.Now();
  step_.reset();
  ranks_idle_since_ = now;
  const double host = step.is_behind ? ranks_.pause() : step.host;
  metrics_.host_seconds.Add(host);
  // That pause was in the time counted for the step in front, so it is taken off here.
  const double taken = SecondsBetween(step.started, now) - (step.is_behind ? host : 0);
  metrics_.step_seconds.Add(std::max(0.0, taken));
  if (!results.ok()) {  // the ranks have dropped the step behind, too
    ReleaseLeft();
    const bool again = FailStep(results.status());
    state_.ended.clear();  // the ranks have forgotten all sequences
    return again;
  }
  if (behind != nullptr) step_ = {std::move(behind), now, now, /*host=*/0, /*is_behind=*/true};
  if (const absl::Status answered = CheckAnswered(*step.plan, *results); !answered.ok()) {
    DropStepBehind();
    return FailStep(answered);
  }
  std::shared_ptr<const StepPlan> plan = step.plan;
  const auto take_out = [&] {
    plan = WithoutThoseThatLeft(std::move(plan), *results);
    return absl::OkStatus();
  };
  if (const absl::Status taken = Guarded(take_out, NoMemoryError); !taken.ok()) {
    DropStepBehind();
    FinishAll(FinishReason::kError, taken, /*waiting_too=*/false);
    return true;
  }
  if (!step_.has_value()) ReleaseLeft();
  CountTimes(*plan, *results, host);
  return UseStep(*plan, *results, SecondsBetween(step.begun, now));
}

// What the step has of requests that ended after it was planned counts for nobody.
std::shared_ptr<const StepPlan> Coordinator::WithoutThoseThatLeft(
    std::shared_ptr<const StepPlan> plan, std::vector<RankResult>& results) const {
  if (left_.empty()) return plan;
  std::set<SequenceId> left;  // may be all that ran
  for (const Left& each : left_) left.insert(each.id);
  const auto has_left = [&left](const auto& each) { return left.contains(each.sequence); };
  auto rest = std::make_shared<StepPlan>(*plan);
  std::erase_if(rest->items, has_left);
  std::erase_if(rest->updates, has_left);
  for (RankResult& result : results) {
    std::erase_if(result.tokens, has_left);
    std::erase_if(result.logits, has_left);
    std::erase_if(result.attention, has_left);
  }
  return rest;
}

// Null: all that ran has ended, for want of memory, or `make` returned nothing.
std::shared_ptr<const StepPlan> Coordinator::TakePlan(
    absl::FunctionRef<std::optional<StepPlan>()> make) {
  std::shared_ptr<const StepPlan> plan;
  const auto take = [&] {
    if (std::optional<StepPlan> made = make(); made.has_value()) {
      plan = std::make_shared<const StepPlan>(*std::move(made));
      StartStep(*plan, options_.limits, state_, pages_);
    }
    return absl::OkStatus();
  };
  const absl::Status planned = Guarded(take, NoMemoryError);
  if (planned.ok()) return plan;
  FinishAll(FinishReason::kError, planned, /*waiting_too=*/false);
  return nullptr;
}

// Returns nothing if a step runs now; else what RunStep returns.
std::optional<bool> Coordinator::BeginStep() {
  const SteadyTime begun = clock_.Now();
  bool idle = false;
  const std::shared_ptr<const StepPlan> plan = TakePlan([&]() -> std::optional<StepPlan> {
    StepPlan next = PlanNext();
    idle = next.items.empty() && next.ended.empty();
    if (idle) return std::nullopt;
    return next;
  });
  if (idle) {
    ranks_idle_since_.reset();
    return false;
  }
  if (plan == nullptr) return true;
  Publish(true);
  const SteadyTime started = clock_.Now();
  if (const absl::Status status = ranks_.Start(plan); !status.ok()) {
    const bool again = FailStep(status);
    state_.ended.clear();
    return again;
  }
  const double host = SecondsBetween(ranks_idle_since_.value_or(begun), started);
  step_ = {plan, begun, started, host, /*is_behind=*/false};
  return std::nullopt;
}

// Gives the ranks the step behind the one that runs. Null if there is none.
std::shared_ptr<const StepPlan> Coordinator::BeginBehind(const StepPlan& running) {
  if (stop_ || !left_.empty() || NextStepDepends(running)) return nullptr;
  std::shared_ptr<const StepPlan> plan =
      TakePlan([&] { return PlanBehind(running, state_, pages_, options_.limits); });
  if (plan == nullptr) return nullptr;
  if (const absl::Status status = ranks_.Start(plan); !status.ok()) {
    FinishAll(FinishReason::kError, StepError(status, /*again=*/true), /*waiting_too=*/false);
    return nullptr;
  }
  return plan;
}

// Whether what `running` brings decides what the step behind it is: a prompt goes on, or a request
// has its last token then, or guesses how its answer goes on after it.
bool Coordinator::NextStepDepends(const StepPlan& running) const {
  if (running.stretch.has_value()) return true;
  return std::any_of(running.items.begin(), running.items.end(), [this](const PlanItem& item) {
    Request& request = *requests_.at(item.sequence);
    return !item.sampled || item.end - item.begin > 1 || request.lookup() != nullptr ||
           request.spec().prefill_only ||
           request.completion_tokens() + 1 >= request.spec().sampling.max_tokens;
  });
}

// Uses the results of a step that took `seconds`. The ranks may have the step behind it.
bool Coordinator::UseStep(const StepPlan& plan, const std::vector<RankResult>& results,
                          double seconds) {
  const auto commit = [&] {
    CommitStep(plan, results, options_.limits, state_, pages_);
    account_.Add(plan, results, requests_);
    return absl::OkStatus();
  };
  if (const absl::Status committed = Guarded(commit, NoMemoryError); !committed.ok()) {
    DropStepBehind();
    FinishAll(FinishReason::kError, committed, /*waiting_too=*/false);
    return true;
  }
  serving_.Took(plan, requests_, seconds);
  // Pages that were written during the step make room for those that are offered now.
  if (tier_ != nullptr && tier_->Turn()) serving_.NoteRoom();
  KeepPrefixes();
  DropBehindWindows(options_.limits, state_, pages_);
  const auto use = [&] {
    UseResults(plan, results);
    return absl::OkStatus();
  };
  if (const absl::Status used = Guarded(use, NoMemoryError); !used.ok()) {
    FinishAll(FinishReason::kError, used, /*waiting_too=*/false);
  }
  return true;
}

// Others may use the beginnings of prompts that are computed now.
void Coordinator::KeepPrefixes() {
  for (const auto& sequence : state_.running) {
    if (checks_.contains(sequence->id)) continue;  // what it read is not known to be right yet
    Request& request = *requests_.at(sequence->id);
    const auto keep = [&] {
      const std::vector<int32_t> checkpoints = prefixes_.Keep(*sequence, request);
      if (tier_ != nullptr) tier_->saver().Offer(*sequence, request, checkpoints);
      return absl::OkStatus();
    };
    // Without memory for it, others compute that beginning themselves.
    Guarded(keep, NoMemoryError).IgnoreError();
  }
}

// Waits for the step behind the one whose results came, if there is one; nobody gets its tokens.
void Coordinator::DropStepBehind() {
  if (!step_.has_value()) return;
  const absl::Status status = ranks_.Results().status();
  step_.reset();
  ReleaseLeft();
  if (status.ok()) return;
  FailStep(status);
  state_.ended.clear();
}

StepPlan Coordinator::PlanNext() {
  const auto waits = [&](SequenceId id) {
    return tier_ != nullptr && tier_->saver().HoldsBack(id);
  };
  // Before the prompts' rows are chosen: what is guessed takes a part of the step's time.
  DraftAhead();
  const std::vector<StreamRows> streams = RowsOfStreams(state_, pages_, options_.limits);
  const StepChoice choice = serving_.Next(state_, requests_, streams, waits, clock_.Now());
  if (choice.stretch.has_value()) {
    return PlanStretch(state_, pages_, options_.limits, options_.modes, *choice.stretch);
  }
  return PlanStep(state_, pages_, options_.limits, options_.modes, choice.turns);
}

// `host`: seconds before the step in which the ranks had nothing to do.
void Coordinator::CountTimes(const StepPlan& plan, const std::vector<RankResult>& results,
                             double host) {
  double ring_wait = 0;
  for (const RankResult& result : results) {
    ring_wait = std::max(ring_wait, result.ring.wait_seconds);
  }
  std::set<RequestId> with_rows;
  for (const PlanItem& item : plan.items) with_rows.insert(item.sequence);
  for (const RequestId id : with_rows) requests_.at(id)->CountTimes(ring_wait, host);
}

// Ends requests after a failed step: what the ranks have computed is lost. Returns whether another
// step may succeed.
bool Coordinator::FailStep(const absl::Status& cause) {
  const bool again = ranks_.state() == RanksState::kUp;
  FinishAll(FinishReason::kError, StepError(cause, again), /*waiting_too=*/!again);
  pins_.Clear();
  prefixes_.index().Clear();
  return again;
}

void Coordinator::UseResults(const StepPlan& plan, const std::vector<RankResult>& results) {
  ReportProgress(plan);
  std::map<SequenceId, int> drafted;
  for (const PlanItem& item : plan.items) {
    if (item.sampled && item.end > item.begin + 1) {
      drafted[item.sequence] = item.end - item.begin - 1;
    }
  }
  for (const RankResult& result : results) {
    for (std::span<const SampledToken> rest = result.tokens; !rest.empty();) {
      const SequenceId sequence = rest.front().sequence;
      const auto end = std::find_if(
          rest.begin(), rest.end(),
          [sequence](const SampledToken& token) { return token.sequence != sequence; });
      const auto count = static_cast<size_t>(end - rest.begin());
      const auto guesses = drafted.find(sequence);
      UseTokens(rest.first(count), guesses == drafted.end() ? 0 : guesses->second);
      rest = rest.subspan(count);
    }
  }
}

// Reports progress to requests whose prompt went on, and to those that have waited for their turn
// for a while.
void Coordinator::ReportProgress(const StepPlan& plan) {
  std::set<RequestId> went_on;
  for (const PlanItem& item : plan.items) {
    const Sequence& sequence = *requests_.at(item.sequence)->sequence();
    const int32_t prompt_rows =
        std::min(item.end, sequence.prompt_length) - std::min(item.begin, sequence.prompt_length);
    if (prompt_rows == 0) continue;
    if (EndsItsChunks(plan)) {
      // Not the answer so far, which a preempted request reads again.
      const int32_t own = sequence.prompt_length - sequence.answered;
      metrics_.prompt_tokens.Add(std::min(item.end, own) - std::min(item.begin, own));
    }
    went_on.insert(item.sequence);
  }
  for (const auto& sequence : state_.running) {
    Request& request = *requests_.at(sequence->id);
    const bool waits = sequence->in_prefill() && !sequence->paused && request.ProgressIsDue();
    if (!waits && !went_on.contains(sequence->id)) continue;
    const Serving::PromptShare share = serving_.ShareWithSteps(request, state_);
    request.ReportProgress(share.processed, share.done, share.left);
  }
}

// Guesses how the sequences that decode go on, where their requests want that. Those that are not
// in the next step get the same draft for a later one.
void Coordinator::DraftAhead() {
  constexpr int64_t kReadAtOnce = 65'536;  // tokens of a sequence: well below a millisecond
  for (const auto& sequence : state_.running) {
    Request& request = *requests_.at(sequence->id);
    PromptLookup* const lookup = request.lookup();
    if (lookup == nullptr || sequence->paused) continue;
    lookup->Read(sequence->tokens, kReadAtOnce);
    if (sequence->in_prefill()) continue;
    // The row before the draft gives a token too.
    const auto left =
        static_cast<int>(request.spec().sampling.max_tokens - request.completion_tokens());
    sequence->draft =
        lookup->Draft(sequence->tokens, left - 1, serving_.RowCost(sequence->computed));
  }
}

// Uses the tokens of one sequence; `drafted` of its rows were guesses.
void Coordinator::UseTokens(std::span<const SampledToken> tokens, int drafted) {
  const SequenceId sequence = tokens.front().sequence;
  Request& request = *requests_.at(sequence);
  if (drafted > 0) {
    const int accepted = static_cast<int>(tokens.size()) - 1;
    request.CountDraft(drafted, accepted);
    metrics_.draft_tokens.Add(drafted);
    metrics_.accepted_tokens.Add(accepted);
  }
  // A token that could not be chosen ends the answer.
  const absl::Status status = tokens.back().status;
  if (!status.ok()) tokens = tokens.first(tokens.size() - 1);
  std::optional<FinishReason> finished;
  if (request.spec().prefill_only) {
    finished = FinishReason::kPrefilled;
  } else if (!tokens.empty()) {
    Request::TokenOutcome outcome;
    const auto add = [&] {
      outcome = request.AddTokens(tokens);
      return absl::OkStatus();
    };
    if (absl::Status added = Guarded(add, NoMemoryError); !added.ok()) {
      Finish(sequence, FinishReason::kError, std::move(added));
      return;
    }
    CountTokens(request, outcome);
    finished = outcome.finished;
  }
  if (finished.has_value()) {
    Finish(sequence, *finished, absl::OkStatus());
  } else if (!status.ok()) {
    Finish(sequence, FinishReason::kError, status);
  }
}

void Coordinator::CountTokens(Request& request, const Request::TokenOutcome& outcome) {
  metrics_.generation_tokens.Add(outcome.taken);
  if (!outcome.gap_seconds.has_value()) {
    metrics_.time_to_first_token.Observe(request.timings().time_to_first_token);
    metrics_.request_prefill_time.Observe(request.timings().prefill);
    return;
  }
  for (int n = 0; n < outcome.taken; ++n) {
    metrics_.inter_token_latency.Observe(*outcome.gap_seconds / outcome.taken);
  }
  if (!outcome.parked && serving_.CountGap(*outcome.gap_seconds, outcome.taken)) {
    request.CountStall();
  }
}

}  // namespace annulus
