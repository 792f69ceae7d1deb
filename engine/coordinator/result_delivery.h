#ifndef ANNULUS_ENGINE_COORDINATOR_RESULT_DELIVERY_H_
#define ANNULUS_ENGINE_COORDINATOR_RESULT_DELIVERY_H_

#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/coordinator/ledger.h"
#include "engine/coordinator/serving.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/request/request.h"
#include "engine/state/step_plan.h"

namespace annulus {

// Passes what a step brought to its requests: progress, tokens, times. Used by the coordinator's
// thread alone.
class ResultDelivery {
 public:
  // The references must outlive the object.
  ResultDelivery(Ledger& ledger, Serving& serving, EngineMetrics& metrics)
      : ledger_(ledger), serving_(serving), metrics_(metrics) {}

  // Ends a request for this reason.
  using Finish = absl::FunctionRef<void(RequestId, FinishReason, absl::Status)>;
  // Reports progress and passes on the tokens of a committed step. Calls `finish` for each request
  // that has its last token, or whose token could not be chosen. Throws if memory runs out; the
  // requests that lack their tokens then must end.
  void Deliver(const StepPlan& plan, const std::vector<RankResult>& results, Finish finish);
  // Adds the step's times to its requests. `host`: seconds before the step in which the ranks had
  // nothing to do.
  void CountTimes(const StepPlan& plan, const std::vector<RankResult>& results, double host);

 private:
  // Reports progress to requests whose prompt went on, and to those that have waited for their turn
  // for a while.
  void ReportProgress(const StepPlan& plan);
  // Passes on log probabilities of prompts, in the order of their tokens.
  void UseScores(const std::vector<RankResult>& results);
  // Uses the tokens of one sequence; `drafted` of its rows were guesses.
  void UseTokens(std::span<const SampledToken> tokens, int drafted, Finish finish);
  void CountTokens(Request& request, const Request::TokenOutcome& outcome);

  Ledger& ledger_;
  Serving& serving_;
  EngineMetrics& metrics_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_RESULT_DELIVERY_H_
