#include "engine/scheduler/step_cost.h"

#include <vector>

#include "engine/scheduler/step_pacer.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

constexpr int32_t kWindowTokens = 131'072;

// 17 blocks of 64, the last one half on average, and a block of sinks.
constexpr double kKeysOfARow = 17 * 64 + 32.5;

class WindowedWork : public ::testing::Test {
 protected:
  const AttentionAssignment window_ = ParseAssignment("window:window=1024").value();
  const std::vector<int32_t> layers_ = {0};
  const PatternPairs pairs_{window_, layers_, /*kv_heads=*/2, kWindowTokens};
  const RowAttention attention_{ClassOf(&window_), &pairs_};
};

TEST_F(WindowedWork, HasThePairsThatThePatternAttends) {
  const StepWork work = EvenWork(90'000, 90'512, attention_);
  EXPECT_EQ(work.amount[StepWork::kRows], 512);
  EXPECT_EQ(work.amount[StepWork::kDensePairs], 0);
  EXPECT_NEAR(work.amount[StepWork::kPatternPairs], 512 * kKeysOfARow, 512 * 64);
  EXPECT_EQ(EvenWork(0, 10, AttentionClass::kPattern).amount[StepWork::kPatternPairs], 55);
}

// Before the window is full, rows attend all there is, as dense ones do. What is foreseen from them
// for a long prompt grows with its length, not with the square.
TEST_F(WindowedWork, OfALongPromptIsForeseenFromShortOnes) {
  constexpr double kStep = 1e-3;
  constexpr double kRow = 1e-6;
  constexpr double kPair = 1e-7;
  PlanLimits limits;
  limits.group_windows = {0};
  StepPacer pacer(0, limits);
  for (int step = 0; step < 100; ++step) {
    StepPlan plan;
    PlanItem& item = plan.items.emplace_back();
    item.begin = 64 * (step * 3 % 14);
    const int32_t rows = 32 * (1 + step % 4);
    item.end = item.begin + rows;
    item.runs = {{0, item.begin, rows}};
    const std::vector<RowAttention> attention = {attention_};
    pacer.Took(plan, attention, 0,
               kStep + kRow * rows + kPair * rows * (item.begin + (rows + 1) / 2.0));
  }
  const PromptState prompt{.prompt_length = kWindowTokens, .attention = attention_};
  const int32_t begin = 1024;
  const double rows = kWindowTokens - begin;
  EXPECT_NEAR(
      pacer.PromptSeconds(prompt, begin, kWindowTokens) / (rows * (kRow + kPair * kKeysOfARow)), 1,
      0.15);
}

// A first chunk under a policy, behind many cached tokens, must not be foreseen as if its rows saw
// no key: the streams beside it would wait for seconds.
TEST(StepCostModel, PairsOfAClassThatNoStepHadTakeTwiceAsLongAsDenseOnes) {
  constexpr double kRow = 1e-4;
  constexpr double kPair = 1e-7;
  StepCostModel costs;
  for (int step = 0; step < 40; ++step) {
    const int32_t begin = 512 * step;
    StepWork work = EvenWork(begin, begin + 64 * (1 + step % 4), AttentionClass::kDense);
    work.amount[StepWork::kStep] = 1;
    costs.Learn(work, 0.001 + kRow * work.amount[StepWork::kRows] +
                          kPair * work.amount[StepWork::kDensePairs]);
  }
  const auto pair_seconds = [&](AttentionClass kind) {
    const StepWork deep = EvenWork(20'000, 20'064, kind);
    return costs.Predict(deep) - costs.Predict(EvenWork(0, 64, kind));
  };
  const double dense = pair_seconds(AttentionClass::kDense);
  EXPECT_NEAR(dense, kPair * 64 * 20'000, 0.1 * dense);
  EXPECT_NEAR(pair_seconds(AttentionClass::kPattern), 2 * dense, 0.01 * dense);
  EXPECT_NEAR(pair_seconds(AttentionClass::kContent), 2 * dense, 0.01 * dense);
  // One step is enough to know better.
  StepWork work = EvenWork(20'000, 20'256, AttentionClass::kPattern);
  work.amount[StepWork::kStep] = 1;
  costs.Learn(work, 0.001 + kRow * 256 + kPair / 2 * 256 * 20'000);
  EXPECT_NEAR(pair_seconds(AttentionClass::kPattern), dense / 2, 0.25 * dense);
  EXPECT_NEAR(pair_seconds(AttentionClass::kContent), 2 * pair_seconds(AttentionClass::kDense),
              0.01 * dense);
}

// How long its rows take is only a guess before: a stream waits for one layer of a page.
TEST(StepPacer, TheFirstRowsUnderAPolicyAreOneLayerOfAPage) {
  PlanLimits limits;
  limits.page_tokens = 64;
  limits.group_windows = {0};
  limits.layers = 8;
  limits.suspended_rows_per_rank = 2048;
  StepPacer pacer(0.25, limits);
  for (int step = 0; step < 40; ++step) {
    StepPlan plan;
    PlanItem& item = plan.items.emplace_back();
    item.begin = 512 * step;
    const int32_t rows = 64 * (1 + step % 8);
    item.end = item.begin + rows;
    item.runs = {{0, item.begin, rows}};
    pacer.Took(plan, {}, 1, 0.001 + 1e-4 * rows);
  }
  PromptState prompt{.sequence = 7, .computed = 20'480, .prompt_length = 30'000};
  const std::vector<StreamRows> streams = {{.position = 100}};
  const StepChoice dense = pacer.Next({&prompt, 1}, streams, false);
  EXPECT_FALSE(dense.stretch.has_value());
  ASSERT_EQ(dense.turns.size(), 1u);
  EXPECT_GE(dense.turns[0].end, prompt.computed + 512);
  for (const AttentionClass kind : {AttentionClass::kPattern, AttentionClass::kContent}) {
    prompt.attention = kind;
    const StepChoice choice = pacer.Next({&prompt, 1}, streams, false);
    ASSERT_TRUE(choice.stretch.has_value());
    EXPECT_TRUE(choice.turns.empty());
    EXPECT_EQ(choice.stretch->end, prompt.computed + 64);
    EXPECT_EQ(choice.stretch->end_layer, 1);
  }
}

TEST(LayersWithPairs, AreThoseWithFullAttention) {
  PlanLimits limits;
  EXPECT_EQ(LayersWithPairs(limits), std::vector<int32_t>{0});
  limits.layers = 4;
  EXPECT_EQ(LayersWithPairs(limits), (std::vector<int32_t>{0, 1, 2}));
  limits.layer_costs = {{1, 0}, {1, 2}, {1, 0}, {0, 0}};
  EXPECT_EQ(LayersWithPairs(limits), std::vector<int32_t>{1});
}

}  // namespace
}  // namespace annulus
