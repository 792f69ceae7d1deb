#ifndef ANNULUS_TESTS_ENGINE_WORKERS_RECALL_RING_H_
#define ANNULUS_TESTS_ENGINE_WORKERS_RECALL_RING_H_

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/model/made/recall_model.h"
#include "tests/engine/workers/worker_ring.h"
#include "tests/support/prompt_plan.h"

namespace annulus::testing {

// Rings of the recall model, whose ranks are here and at workers.
class RecallRing : public ::testing::Test {
 protected:
  static constexpr int32_t kPage = 16;

  RecallRing() {
    const OpTable& ops = *world_.registry.Available("cpu")[0];
    model_ = MakeRankModel(
        RecallConfig(3),
        LoadWeights(RecallConfig(3), *MakeRecallTensors(3), *world_.backend, ops, {}).value(), ops,
        kPage, DType::kF32);
  }

  // Over the first `over` ranks.
  std::shared_ptr<const StepPlan> Plan(int32_t sequence = 1, int over = kRanks) const {
    return PromptPlan(model_, over, sequence);
  }
  // Of a ring in one process: of the last rank of the plan, which has the last row.
  std::vector<LogitsRow> LogitsInOneProcess(int32_t sequence = 1, int over = kRanks) const {
    RankSetOptions set = ring_.OptionsOf(kRanks, kRanks).set;
    const auto ranks = RankSet::Create(model_, *world_.backend, set).value();
    return ranks->Run(Plan(sequence, over)).value().at(over - 1).logits;
  }

  static constexpr int kRanks = 3;

  CpuWorld world_;
  RankModel model_;
  WorkerRing ring_{world_, model_};
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_WORKERS_RECALL_RING_H_
