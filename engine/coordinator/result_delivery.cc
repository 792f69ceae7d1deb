#include "engine/coordinator/result_delivery.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "engine/base/field_error.h"
#include "kernels/base/guarded.h"

namespace annulus {

void ResultDelivery::CountTimes(const StepPlan& plan, const std::vector<RankResult>& results,
                                double host) {
  double ring_wait = 0;
  for (const RankResult& result : results) {
    ring_wait = std::max(ring_wait, result.ring.wait_seconds);
  }
  std::set<RequestId> with_rows;
  for (const PlanItem& item : plan.items) with_rows.insert(item.sequence);
  for (const RequestId id : with_rows) ledger_.request(id).CountTimes(ring_wait, host);
}

void ResultDelivery::Deliver(const StepPlan& plan, const std::vector<RankResult>& results,
                             Finish finish) {
  ReportProgress(plan);
  UseScores(results);
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
      UseTokens(rest.first(count), guesses == drafted.end() ? 0 : guesses->second, finish);
      rest = rest.subspan(count);
    }
  }
}

void ResultDelivery::ReportProgress(const StepPlan& plan) {
  std::set<RequestId> went_on;
  for (const PlanItem& item : plan.items) {
    const Sequence& sequence = *ledger_.request(item.sequence).sequence();
    const int32_t prompt_rows =
        std::min(item.end, sequence.prompt_length) - std::min(item.begin, sequence.prompt_length);
    if (prompt_rows == 0) continue;
    if (EndsItsChunks(plan)) {
      // Without the answer so far, which a preempted request computes again.
      const int32_t own = sequence.prompt_length - sequence.answered;
      metrics_.prompt_tokens.Add(std::min(item.end, own) - std::min(item.begin, own));
    }
    went_on.insert(item.sequence);
  }
  for (const auto& sequence : ledger_.state().running) {
    Request& request = ledger_.request(sequence->id);
    const bool waits = sequence->in_prefill() && !sequence->paused && request.ProgressIsDue();
    if (!waits && !went_on.contains(sequence->id)) continue;
    const Serving::PromptShare share = serving_.ShareWithSteps(request, ledger_.state());
    request.ReportProgress(share.processed, share.done, share.left);
  }
}

// Each rank has those of its own pages.
void ResultDelivery::UseScores(const std::vector<RankResult>& results) {
  std::map<std::pair<SequenceId, int32_t>, const TokenLogprob*> scores;
  for (const RankResult& result : results) {
    for (const ScoredRow& row : result.scored) scores[{row.sequence, row.position}] = &row.logprob;
  }
  for (const auto& [row, logprob] : scores) {
    ledger_.request(row.first).AddPromptLogprob(row.second, *logprob);
  }
}

void ResultDelivery::UseTokens(std::span<const SampledToken> tokens, int drafted, Finish finish) {
  const SequenceId sequence = tokens.front().sequence;
  Request& request = ledger_.request(sequence);
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
      return finish(sequence, FinishReason::kError, std::move(added));
    }
    CountTokens(request, outcome);
    if (!outcome.status.ok()) return finish(sequence, FinishReason::kError, outcome.status);
    finished = outcome.finished;
  }
  if (finished.has_value()) {
    finish(sequence, *finished, absl::OkStatus());
  } else if (!status.ok()) {
    finish(sequence, FinishReason::kError, status);
  }
}

void ResultDelivery::CountTokens(Request& request, const Request::TokenOutcome& outcome) {
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
