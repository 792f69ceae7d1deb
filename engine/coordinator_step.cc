// The coordinator's part in a step: it is planned, the ranks run it, and its results are used.

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/error_payloads.h"
#include "engine/base/field_error.h"
#include "engine/coordinator.h"
#include "kernels/base/guarded.h"

namespace annulus {
namespace {

// Each sampled item has one token, of its home rank; nothing else has one. Allocates nothing.
absl::Status CheckAnswered(const StepPlan& plan, const std::vector<RankResult>& results) {
  const auto asked = std::count_if(plan.items.begin(), plan.items.end(),
                                   [](const PlanItem& item) { return item.sampled; });
  int64_t answered = 0;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    auto item = plan.items.begin();
    for (const SampledToken& token : results[rank].tokens) {
      item = std::find_if(item, plan.items.end(), [&](const PlanItem& next) {
        return next.sampled && next.sequence == token.sequence &&
               next.runs.front().rank == static_cast<int32_t>(rank);
      });
      if (item == plan.items.end()) {
        return absl::InternalError(absl::StrCat("rank ", rank, " sampled for sequence ",
                                                token.sequence, ", which it was not asked to"));
      }
      ++item;
      ++answered;
    }
  }
  if (answered == asked) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("ranks sampled for ", answered, " sequences of the ", asked, " they were to"));
}

}  // namespace

bool Coordinator::RunStep() {
  const SteadyTime begun = std::chrono::steady_clock::now();
  const std::vector<PrefillTurn> turns = serving_.Turns(state_, requests_);
  std::shared_ptr<const StepPlan> plan;
  const auto make_plan = [&] {
    plan = std::make_shared<const StepPlan>(
        PlanStep(state_, pages_, options_.limits, options_.modes, turns));
    return absl::OkStatus();
  };
  if (const absl::Status planned = Guarded(make_plan, NoMemoryError); !planned.ok()) {
    FinishAll(FinishReason::kError, planned, /*waiting_too=*/false);
    return true;
  }
  if (plan->items.empty() && plan->ended.empty()) return false;
  StartStep(*plan, state_, pages_);
  Publish(true);
  absl::StatusOr<std::vector<RankResult>> results = ranks_.Run(plan);
  // Messages and reports name their step: the next one has another number whatever became of it.
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
  CommitStep(*plan, options_.limits, state_, pages_);
  const auto add_to_accounts = [&] {
    account_.Add(*plan, *results, requests_);
    return absl::OkStatus();
  };
  if (const absl::Status added = Guarded(add_to_accounts, NoMemoryError); !added.ok()) {
    FinishAll(FinishReason::kError, added, /*waiting_too=*/false);
    return true;
  }
  serving_.Took(*plan, requests_, SecondsBetween(begun, std::chrono::steady_clock::now()));
  for (const auto& sequence : state_.running) {
    Request& request = *requests_.at(sequence->id);
    const std::vector<int32_t> checkpoints = prefixes_.Keep(*sequence, request);
    if (tier_ != nullptr) tier_->Offer(*sequence, request, checkpoints);
  }
  DropBehindWindows(options_.limits, state_, pages_);
  UseResults(*plan, *results);
  return true;
}

// What the ranks had computed is lost. True: another step may go well.
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
  for (const RankResult& result : results) {
    for (const SampledToken& token : result.tokens) UseToken(token);
  }
}

// Whose prompt went on hears of it, and so does who has waited for its turn for a while.
void Coordinator::ReportProgress(const StepPlan& plan) {
  std::set<RequestId> went_on;
  for (const PlanItem& item : plan.items) {
    const Sequence& sequence = *requests_.at(item.sequence)->sequence();
    const int32_t prompt_rows =
        std::min(item.end, sequence.prompt_length) - std::min(item.begin, sequence.prompt_length);
    if (prompt_rows == 0) continue;
    metrics_.prompt_tokens.Add(prompt_rows);
    went_on.insert(item.sequence);
  }
  for (const auto& sequence : state_.running) {
    Request& request = *requests_.at(sequence->id);
    const bool waits = sequence->in_prefill() && !sequence->paused && request.ProgressIsDue();
    if (!waits && !went_on.contains(sequence->id)) continue;
    const Serving::PromptShare share = serving_.ShareDone(request);
    request.ReportProgress(share.done, share.left);
  }
}

void Coordinator::UseToken(const SampledToken& token) {
  Request& request = *requests_.at(token.sequence);
  if (!token.status.ok()) {
    Finish(token.sequence, FinishReason::kError, token.status);
    return;
  }
  if (request.spec().prefill_only) {
    Finish(token.sequence, FinishReason::kPrefilled, absl::OkStatus());
    return;
  }
  request.sequence()->tokens.push_back(token.token);
  const Request::TokenOutcome outcome = request.AddToken(token);
  metrics_.generation_tokens.Increment();
  if (outcome.gap_seconds.has_value()) {
    metrics_.inter_token_latency.Observe(*outcome.gap_seconds);
    if (!outcome.parked && serving_.CountGap(*outcome.gap_seconds)) request.CountStall();
  } else {
    metrics_.time_to_first_token.Observe(request.timings().time_to_first_token);
    metrics_.request_prefill_time.Observe(request.timings().prefill);
  }
  if (outcome.finished.has_value()) {
    Finish(token.sequence, *outcome.finished, absl::OkStatus());
  }
}

}  // namespace annulus
