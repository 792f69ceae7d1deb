// The part of Coordinator that runs a step: plans it, has the ranks run it, and uses its results.

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"
#include "engine/base/try_to.h"
#include "engine/coordinator/admission/wait_error.h"
#include "engine/coordinator/coordinator.h"
#include "engine/coordinator/draft_ahead.h"
#include "kernels/base/guarded.h"

namespace annulus {

void Coordinator::SetStep(std::optional<RunningStep> step) {
  step_ = std::move(step);
  ledger_.set_ranks_busy(step_.has_value());
}

// Call when the ranks have no step.
void Coordinator::ReleaseLeft() {
  if (ledger_.ReleaseLeft()) serving_.NoteRoom();
}

// Has the ranks run the next step, or waits for the one that they have, and uses its results. The
// ranks get its successor first, if that can be planned already. Returns false if there was nothing
// to do.
bool Coordinator::RunStep() {
  if (!step_.has_value() && ranks_.state() != RanksState::kUp) return false;
  if (!step_.has_value()) {
    if (const std::optional<bool> worked = BeginStep(); worked.has_value()) return *worked;
  }
  const RunningStep step = *step_;
  std::shared_ptr<const StepPlan> successor = StartSuccessor(*step.plan);
  absl::StatusOr<std::vector<RankResult>> results = ranks_.Results();
  const SteadyTime now = clock_.Now();
  SetStep(std::nullopt);
  ranks_idle_since_ = now;
  const double host = step.is_successor ? ranks_.pause() : step.host;
  metrics_.host_seconds.Add(host);
  // That pause was in the time counted for the step before it, so it is taken off here.
  const double taken = SecondsBetween(step.started, now) - (step.is_successor ? host : 0);
  metrics_.step_seconds.Add(std::max(0.0, taken));
  if (!results.ok()) {  // the ranks have dropped the successor, too
    ReleaseLeft();
    const bool again =
        FailStep(results.status(), {step.plan.get(), successor.get()}, ranks_.TakeLost());
    ledger_.state().ended.clear();  // the ranks have forgotten all sequences
    return again;
  }
  if (successor != nullptr) {
    SetStep(RunningStep{std::move(successor), now, now, /*host=*/0, /*is_successor=*/true});
  }
  if (const absl::Status answered = CheckAnswered(*step.plan, *results); !answered.ok()) {
    DropSuccessor();
    return FailStep(answered, {step.plan.get()});
  }
  std::shared_ptr<const StepPlan> plan = step.plan;
  const auto take_out = [&] {
    plan = WithoutThoseThatLeft(std::move(plan), *results);
    return absl::OkStatus();
  };
  if (const absl::Status taken = Guarded(take_out, NoMemoryError); !taken.ok()) {
    // First: a successor that fails too would set back answers that lack this step's tokens.
    FinishAll(FinishReason::kError, taken, /*waiting_too=*/false);
    DropSuccessor();
    return true;
  }
  if (!step_.has_value()) ReleaseLeft();
  delivery_.CountTimes(*plan, *results, host);
  return UseStep(*plan, *results, SecondsBetween(step.begun, now));
}

// Drop the results of requests that ended after the step was planned.
std::shared_ptr<const StepPlan> Coordinator::WithoutThoseThatLeft(
    std::shared_ptr<const StepPlan> plan, std::vector<RankResult>& results) const {
  if (!ledger_.any_left()) return plan;
  const std::set<SequenceId> left = ledger_.left();  // may be all that ran
  const auto has_left = [&left](const auto& each) { return left.contains(each.sequence); };
  auto rest = std::make_shared<StepPlan>(*plan);
  std::erase_if(rest->items, has_left);
  std::erase_if(rest->updates, has_left);
  for (RankResult& result : results) {
    std::erase_if(result.tokens, has_left);
    std::erase_if(result.logits, has_left);
    std::erase_if(result.scored, has_left);
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
      StartStep(*plan, options_.limits, ledger_.state(), ledger_.book());
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
    const bool again = FailStep(status, {plan.get()}, ranks_.TakeLost());
    ledger_.state().ended.clear();
    return again;
  }
  const double host = SecondsBetween(ranks_idle_since_.value_or(begun), started);
  SetStep(RunningStep{plan, begun, started, host, /*is_successor=*/false});
  return std::nullopt;
}

// Gives the ranks the successor of the step that runs. Null if there is none.
std::shared_ptr<const StepPlan> Coordinator::StartSuccessor(const StepPlan& running) {
  if (stop_ || ledger_.any_left() || !ranks_.takes_successors() || NextStepDepends(running)) {
    return nullptr;
  }
  std::shared_ptr<const StepPlan> plan = TakePlan(
      [&] { return PlanSuccessor(running, ledger_.state(), ledger_.book(), options_.limits); });
  if (plan == nullptr) return nullptr;
  if (const absl::Status status = ranks_.Start(plan); !status.ok()) {
    FailStep(status, {plan.get()});  // nobody gets the tokens of the step that runs
    return nullptr;
  }
  return plan;
}

// Whether the successor depends on the results of `running`: a prompt continues, or a request gets
// its last token, or guesses the tokens that follow it.
bool Coordinator::NextStepDepends(const StepPlan& running) const {
  if (running.stretch.has_value()) return true;
  return std::any_of(running.items.begin(), running.items.end(), [this](const PlanItem& item) {
    const Request& request = ledger_.request(item.sequence);
    return !item.sampled || item.end - item.begin > 1 || request.guesses() ||
           request.spec().prefill_only ||
           request.completion_tokens() + 1 >= request.spec().sampling.max_tokens;
  });
}

// Uses the results of a step that took `seconds`. The ranks may have its successor.
bool Coordinator::UseStep(const StepPlan& plan, const std::vector<RankResult>& results,
                          double seconds) {
  std::optional<StepPlan> rest;  // rows that are computed again are no progress
  const auto commit = [&] {
    rest = recovery_.WithoutRepairs(plan);
    CommitStep(plan, results, options_.limits, ledger_.state(), ledger_.book());
    account_.Add(rest.has_value() ? *rest : plan, results, ledger_.requests());
    return absl::OkStatus();
  };
  if (const absl::Status committed = Guarded(commit, NoMemoryError); !committed.ok()) {
    // First, as above: nobody got the tokens that the answers may have now.
    FinishAll(FinishReason::kError, committed, /*waiting_too=*/false);
    DropSuccessor();
    return true;
  }
  recovery_.Passed(plan);
  serving_.Took(plan, ledger_.requests(), seconds);
  // Pages that were written during the step make room for those that are offered now.
  if (ledger_.tier() != nullptr && ledger_.tier()->Turn()) serving_.NoteRoom();
  KeepPrefixes();
  DropOutsideWindows(options_.limits, ledger_.state(), ledger_.book());
  const auto use = [&] {
    const auto finish = [this](RequestId id, FinishReason reason, absl::Status status) {
      Finish(id, reason, std::move(status));
    };
    delivery_.Deliver(rest.has_value() ? *rest : plan, results, finish);
    return absl::OkStatus();
  };
  if (const absl::Status used = Guarded(use, NoMemoryError); !used.ok()) {
    FinishAll(FinishReason::kError, used, /*waiting_too=*/false);
  }
  return true;
}

// Others may use the beginnings of prompts that are computed now.
void Coordinator::KeepPrefixes() {
  PageTier* const tier = ledger_.tier();
  for (const auto& sequence : ledger_.state().running) {
    if (sequence->is_check()) continue;  // what it read is not known to be right yet
    Request& request = ledger_.request(sequence->id);
    // Without memory for it, others compute that beginning themselves.
    TryTo([&] {
      const std::vector<int32_t> checkpoints = ledger_.prefixes().Keep(*sequence, request);
      if (tier != nullptr) tier->saver().Offer(*sequence, request, checkpoints);
    });
  }
}

// Waits for the successor of the step whose results came, if there is one; nobody gets its tokens.
void Coordinator::DropSuccessor() {
  if (!step_.has_value()) return;
  const std::shared_ptr<const StepPlan> plan = step_->plan;
  const absl::Status status = ranks_.Results().status();
  SetStep(std::nullopt);
  ReleaseLeft();
  if (status.ok()) return;
  FailStep(status, {plan.get()}, ranks_.TakeLost());
  ledger_.state().ended.clear();
}

// A step of a suspect, which has nothing else in it; `streams` wait for it, and so do answers that
// were set back too and are read again. Nothing if it waits for the suspended chunk of another.
std::optional<StepPlan> Coordinator::PlanSuspect(SequenceId id,
                                                 std::vector<StreamRows> streams) const {
  const EngineState& state = ledger_.state();
  const PlanLimits& limits = options_.limits;
  const Sequence& suspect = *ledger_.request(id).sequence();
  PrefillTurn turn{id, suspect.prompt_length};
  if (suspect.in_prefill()) {
    for (const auto& other : state.running) {
      const bool waits = other->id != id && !other->paused && other->in_prefill();
      if (waits && other->answered > 0) streams.push_back({.position = other->prompt_length - 1});
    }
    // The streams have a step before its next one, so they wait for this one alone.
    const StepChoice choice = serving_.NextApart(suspect, streams);
    if (choice.stretch.has_value()) {
      const bool waits = std::any_of(
          state.running.begin(), state.running.end(),
          [id](const auto& other) { return other->suspended.has_value() && other->id != id; });
      if (waits) return std::nullopt;
      return PlanStretch(state, ledger_.book(), limits, modes_, *choice.stretch);
    }
    turn = choice.turns.front();
  }
  return PlanAlone(state, ledger_.book(), limits, modes_, turn);
}

// Steps of suspects alternate with those of all others.
StepPlan Coordinator::PlanNext() {
  // They change when the ring forms anew.
  if (const std::optional<LinkRates> links = ranks_.links()) links->PutInto(modes_.rates);
  const std::optional<SequenceId> suspect = recovery_.RunsAlone(clock_.Now());
  // Before the prompts' rows are chosen, because guesses take a part of the step's time.
  DraftAhead(ledger_, serving_);
  const std::vector<StreamRows> streams =
      RowsOfStreams(ledger_.state(), ledger_.book(), options_.limits);
  const bool others_first = std::exchange(others_turn_, false) || !suspect.has_value();
  if (others_first) {
    StepPlan plan = PlanOthers(streams);
    if (!suspect.has_value() || !plan.items.empty()) return plan;
  }
  std::optional<StepPlan> plan = PlanSuspect(*suspect, streams);
  if (plan.has_value() && !plan->items.empty()) {
    others_turn_ = true;
    return *std::move(plan);
  }
  return PlanOthers(streams);
}

StepPlan Coordinator::PlanOthers(std::span<const StreamRows> streams) {
  PageTier* const tier = ledger_.tier();
  const auto waits = [&](SequenceId id) { return tier != nullptr && tier->saver().HoldsBack(id); };
  const EngineState& state = ledger_.state();
  const PlanLimits& limits = options_.limits;
  const StepChoice choice = serving_.Next(state, ledger_.requests(), streams, waits, clock_.Now());
  if (choice.stretch.has_value()) {
    return PlanStretch(state, ledger_.book(), limits, modes_, *choice.stretch);
  }
  return PlanStep(state, ledger_.book(), limits, modes_, choice.turns);
}

// After steps of these plans (null: none) have failed: sets back what ran, or ends all requests if
// no other step can succeed. `lost`: RankPort::TakeLost, if no step runs. Returns whether another
// step may succeed.
bool Coordinator::FailStep(const absl::Status& cause, std::initializer_list<const StepPlan*> plans,
                           std::span<const int32_t> lost) {
  if (EndIfDown(cause)) return false;
  // At most a step and its successor. Not on the heap: what is lost must be known in any case.
  std::array<const StepPlan*, 2> failed{};
  const auto end = std::copy_if(plans.begin(), plans.end(), failed.begin(),
                                [](const StepPlan* plan) { return plan != nullptr; });
  recovery_.Recover({failed.begin(), end}, cause, lost);
  return true;
}

// If nothing should wait for the ranks, ends all requests and returns true.
bool Coordinator::EndIfDown(const absl::Status& cause) {
  const RanksState state = ranks_.state();
  if (state == RanksState::kUp || state == RanksState::kMending) return false;
  const std::string awaited = ranks_.awaited();
  if (awaited.empty()) {
    FinishAll(FinishReason::kError, StepError(cause, /*again=*/false), /*waiting_too=*/true);
  } else {
    std::vector<std::pair<RequestId, absl::Status>> ends;
    for (const auto& [id, request] : ledger_.requests()) {
      ends.emplace_back(id, WaitError(*request, awaited));
    }
    for (auto& [id, status] : ends) Finish(id, FinishReason::kError, std::move(status));
  }
  ledger_.ForgetPages();
  return true;
}

// Between steps, while the ranks are not up: takes back what they lost meanwhile. The ranks have
// forgotten all sequences once they are up again, whatever has ended until then.
void Coordinator::TendRanks() {
  if (step_.has_value()) return;
  if (ranks_.state() == RanksState::kUp) {
    if (std::exchange(mending_, false)) ledger_.state().ended.clear();
    return;
  }
  mending_ = true;
  const absl::Status cause = absl::UnavailableError(
      absl::StrCat("ranks have lost their pages: the ring waits for ", ranks_.awaited()));
  const std::vector<int32_t> lost = ranks_.TakeLost();
  if (!lost.empty()) recovery_.RecoverLost(cause, lost);
  // No step will free pages for requests that wait: all end now.
  if (!ledger_.requests().empty()) {
    EndIfDown(absl::UnavailableError("the ranks have stopped because an earlier step failed"));
  }
}

}  // namespace annulus
