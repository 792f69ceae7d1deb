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
#include "engine/base/clock.h"
#include "engine/base/error_payloads.h"
#include "engine/base/field_error.h"
#include "engine/coordinator.h"
#include "kernels/base/guarded.h"

namespace annulus {
bool Coordinator::RunStep() {
  const SteadyTime begun = std::chrono::steady_clock::now();
  std::shared_ptr<const StepPlan> plan;
  const auto make_plan = [&] {
    plan = std::make_shared<const StepPlan>(PlanNext());
    StartStep(*plan, state_, pages_);
    return absl::OkStatus();
  };
  if (const absl::Status planned = Guarded(make_plan, NoMemoryError); !planned.ok()) {
    FinishAll(FinishReason::kError, planned, /*waiting_too=*/false);
    return true;
  }
  if (plan->items.empty() && plan->ended.empty()) {
    ranks_idle_since_.reset();
    return false;
  }
  Publish(true);
  const SteadyTime started = std::chrono::steady_clock::now();
  const double host = SecondsBetween(ranks_idle_since_.value_or(begun), started);
  absl::StatusOr<std::vector<RankResult>> results = ranks_.Run(plan);
  ranks_idle_since_ = std::chrono::steady_clock::now();
  metrics_.host_seconds.Add(host);
  metrics_.step_seconds.Add(SecondsBetween(started, *ranks_idle_since_));
  // Messages and reports name their step, so the next one gets another number even if this one
  // fails.
  if (!results.ok()) {
    ++state_.step;
    const bool again = FailStep(results.status());
    state_.ended.clear();  // the ranks have forgotten all sequences
    return again;
  }
  if (const absl::Status answered = CheckAnswered(*plan, *results); !answered.ok()) {
    ++state_.step;
    state_.ended.clear();  // the ranks have run the plan that told them
    return FailStep(answered);
  }
  CountTimes(*plan, *results, host);
  const auto commit = [&] {
    CommitStep(*plan, *results, options_.limits, state_, pages_);
    account_.Add(*plan, *results, requests_);
    return absl::OkStatus();
  };
  if (const absl::Status committed = Guarded(commit, NoMemoryError); !committed.ok()) {
    FinishAll(FinishReason::kError, committed, /*waiting_too=*/false);
    return true;
  }
  serving_.Took(*plan, requests_, SecondsBetween(begun, std::chrono::steady_clock::now()));
  // Pages that were written during the step make room for those that are offered now.
  if (tier_ != nullptr && tier_->Turn()) serving_.NoteRoom();
  for (const auto& sequence : state_.running) {
    if (checks_.contains(sequence->id)) continue;  // what it read is not known to be right yet
    Request& request = *requests_.at(sequence->id);
    const auto keep = [&] {
      const std::vector<int32_t> checkpoints = prefixes_.Keep(*sequence, request);
      if (tier_ != nullptr) tier_->Offer(*sequence, request, checkpoints);
      return absl::OkStatus();
    };
    // Without memory for it, others compute that beginning themselves.
    Guarded(keep, NoMemoryError).IgnoreError();
  }
  DropBehindWindows(options_.limits, state_, pages_);
  const auto use = [&] {
    UseResults(*plan, *results);
    return absl::OkStatus();
  };
  if (const absl::Status used = Guarded(use, NoMemoryError); !used.ok()) {
    FinishAll(FinishReason::kError, used, /*waiting_too=*/false);
  }
  return true;
}

StepPlan Coordinator::PlanNext() {
  const auto waits = [&](SequenceId id) { return tier_ != nullptr && tier_->HoldsBack(id); };
  const StepChoice choice = serving_.Next(state_, requests_, waits);
  if (choice.stretch.has_value()) {
    return PlanStretch(state_, pages_, options_.limits, options_.modes, *choice.stretch);
  }
  DraftAhead();
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
  absl::Status status = absl::UnavailableError(
      again ? "computing the answer failed; try again"
            : "computing the answer failed; the server must be started again");
  status.SetPayload(kCausePayload, absl::Cord(cause.ToString()));
  FinishAll(FinishReason::kError, status, /*waiting_too=*/!again);
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
    const Serving::PromptShare share = serving_.ShareDone(request);
    request.ReportProgress(share.processed, share.done, share.left);
  }
}

// Guesses how the sequences that decode go on, where their requests want that.
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
