// Steps that wait for experts end when their ranks are told to, and the ranks go on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "engine/model/experts/expert_cache.h"
#include "engine/model/model_config.h"
#include "engine/runner/rank_set.h"
#include "tests/engine/model/gated_source.h"
#include "tests/support/eventually.h"
#include "tests/support/step_driver.h"
#include "tests/support/test_data.h"

namespace annulus::testing {
namespace {

using ::testing::HasSubstr;

// A prompt of one page, whose experts are not all in memory.
class ExpertWaitsTest : public ::testing::TestWithParam<int> {
 protected:
  static constexpr int32_t kPageTokens = 16;

  ExpertWaitsTest()
      : config_(LoadModelConfig(TestFile("golden/qwen3_moe").string()).value()),
        source_(std::make_shared<GatedSource>(config_)) {
    const OpTable& ops = *world_.registry.Available("cpu")[0];
    const ModelWeights all = LoadWeights(config_, *source_, *world_.backend, ops, {}).value();
    size_t expert = 0;
    const GatedWeights& one = all.layers[0].experts.each[0];
    for (const auto* each : {&one.gate, &one.up, &one.down}) {
      expert += AlignedMatrix(each->weight.storage.size());
    }
    const auto limit = static_cast<int64_t>(expert) * 2 * config_.experts.routing.chosen;
    // Longer than any limit below, as where a worker was started with another --exchange-timeout
    // than the coordinator.
    const ExpertMemory experts = {limit, source_, std::chrono::hours(1)};
    model_ = MakeRankModel(
        config_, LoadWeights(config_, *source_, *world_.backend, ops, {}, experts).value(), ops,
        kPageTokens, DType::kF32);
  }

  // Reads that hang would keep the cache from ending.
  ~ExpertWaitsTest() override { source_->Close(false); }

  std::unique_ptr<RankSet> MakeRanks(std::chrono::milliseconds exchange_timeout) {
    RankSetOptions options;
    options.span = {.local = GetParam(), .all = GetParam()};
    options.engine.kv_memory_bytes = 8 << 20;
    options.engine.exchange_timeout = exchange_timeout;
    options.rows_per_rank = 64;
    return RankSet::Create(model_, *world_.backend, options).value();
  }

  // As many rows as make every expert needed.
  std::shared_ptr<const StepPlan> Prompt() const {
    constexpr int32_t kRows = 3 * kPageTokens;
    StepPlan plan;
    SequenceUpdate& update = plan.updates.emplace_back();
    update.sequence = 1;
    update.version = 1;
    update.terms.emplace();
    update.terms->version = 1;
    PlanItem& item = plan.items.emplace_back();
    item.sequence = 1;
    item.end = kRows;
    for (int32_t i = 0; i < kRows; ++i) item.tokens.push_back(i * i * 7 % config_.vocabulary);
    TableDelta table;
    for (int32_t rank = 0; rank < GetParam(); ++rank) update.terms->ring.push_back(rank);
    for (int32_t first = 0; first < kRows; first += kPageTokens) {
      const int32_t rank = first / kPageTokens % GetParam();
      table.append.push_back({rank, first / kPageTokens, first});
      item.runs.push_back({rank, first, kPageTokens});
    }
    update.tables.assign(model_.groups.size(), table);
    item.logits_positions = {kRows - 1};
    return std::make_shared<const StepPlan>(std::move(plan));
  }

  // Starts the step, and closes the source under it.
  void StartWaiting(RankSet& ranks) {
    source_->Close(true);
    ASSERT_TRUE(ranks.Start(Prompt()).ok());
    ASSERT_TRUE(Eventually([&] { return source_->waiting() > 0; }));
  }

  CpuWorld world_;
  const ModelConfig config_;
  const std::shared_ptr<GatedSource> source_;
  RankModel model_;
};

INSTANTIATE_TEST_SUITE_P(Ranks, ExpertWaitsTest, ::testing::Values(1, 3));

TEST_P(ExpertWaitsTest, AnAbortEndsAStepWhoseDiskHangs) {
  const auto ranks = MakeRanks(std::chrono::minutes(10));
  ASSERT_NO_FATAL_FAILURE(StartWaiting(*ranks));
  ranks->Abort(absl::CancelledError("the ring ends"));
  EXPECT_EQ(ranks->Results().status(), absl::CancelledError("the ring ends"));
  source_->Close(false);
  const auto again = ranks->Run(Prompt());
  EXPECT_TRUE(again.ok()) << again.status();
}

TEST_P(ExpertWaitsTest, OtherRanksOfTheModelBeginAnew) {
  auto ranks = MakeRanks(std::chrono::minutes(10));
  ranks->Abort(absl::CancelledError("the service is over"));
  ranks = MakeRanks(std::chrono::minutes(10));
  const auto results = ranks->Run(Prompt());
  EXPECT_TRUE(results.ok()) << results.status();
}

TEST_P(ExpertWaitsTest, ADiskThatHangsCostsTheStepAndNoRank) {
  const auto ranks = MakeRanks(std::chrono::seconds(1));
  ASSERT_NO_FATAL_FAILURE(StartWaiting(*ranks));
  const absl::Status hung = ranks->Results().status();
  EXPECT_EQ(hung.code(), absl::StatusCode::kDeadlineExceeded) << hung;
  EXPECT_THAT(std::string(hung.message()), HasSubstr("the --exchange-timeout"));
  EXPECT_EQ(ranks->state(), RanksState::kUp);
  source_->Close(false);
  const auto again = ranks->Run(Prompt());
  EXPECT_TRUE(again.ok()) << again.status();
}

// The others wait for experts, or for the rank that failed.
TEST_P(ExpertWaitsTest, AReadThatFailsEndsTheWaitsOfAllRanks) {
  const auto ranks = MakeRanks(std::chrono::minutes(10));
  source_->Fail(true);
  const absl::Status failed = ranks->Run(Prompt()).status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kDataLoss) << failed;
  source_->Fail(false);
  // A read that began before may still be under way, and fail the next step.
  EXPECT_TRUE(Eventually([&] { return ranks->Run(Prompt()).ok(); }));
}

}  // namespace
}  // namespace annulus::testing
