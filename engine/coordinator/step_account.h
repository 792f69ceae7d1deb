#ifndef ANNULUS_ENGINE_COORDINATOR_STEP_ACCOUNT_H_
#define ANNULUS_ENGINE_COORDINATOR_STEP_ACCOUNT_H_

#include <map>
#include <memory>
#include <vector>

#include "engine/metrics/engine_metrics.h"
#include "engine/request/request.h"
#include "engine/scheduler/scheduler.h"
#include "engine/sparse/pattern_cache.h"

namespace annulus {

// Counts what each step attended and sent, for the reports of its requests and in the metrics. Used
// by the coordinator's thread alone.
class StepAccount {
 public:
  // `heads`, `kv_heads`: the model's query and key/value heads. The references must outlive the
  // object.
  StepAccount(int heads, int kv_heads, PatternCache& patterns, EngineMetrics& metrics)
      : heads_(heads), kv_heads_(kv_heads), patterns_(patterns), metrics_(metrics) {}

  // Adds a step that all ranks have run. `results`: [rank]. `requests` must have the requests of
  // all items. The steps of a suspended chunk count their time as they run, and what they attended
  // in the chunk's last step.
  void Add(const StepPlan& plan, const std::vector<RankResult>& results, const Requests& requests);

 private:
  void CountAttention(const StepPlan& plan, const std::vector<RankResult>& results,
                      const Requests& requests);
  PairCount CountAttended(const PlanItem& item, const Sequence& sequence);
  void CountStretch(const StepPlan& plan, const std::vector<RankResult>& results,
                    const Requests& requests);
  void CountRing(const std::vector<RankResult>& results);
  void CountModes(const StepPlan& plan, const Requests& requests);

  const int heads_;
  const int kv_heads_;
  PatternCache& patterns_;
  EngineMetrics& metrics_;
  // Sums over all steps since the start: (row, key) pairs, and coverage.
  PairCount pairs_since_start_;
  AttentionAccount::ItemOutcome since_start_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_STEP_ACCOUNT_H_
