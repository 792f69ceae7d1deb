#include "engine/scheduler/step_cost.h"

#include <algorithm>
#include <span>
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

TEST(StepCostModel, ScoredRowsTakeAsMuchAsSampledOnesUntilAStepHadSome) {
  constexpr double kRow = 1e-4;
  constexpr double kSampled = 2e-3;
  const RowAttention scored(AttentionClass::kDense, nullptr, /*has_scores=*/true);
  StepCostModel costs;
  for (int step = 0; step < 40; ++step) {
    StepWork work = EvenWork(0, 64 * (1 + step % 4), AttentionClass::kDense);
    work += SampledWork(0, 1 + step % 3);
    work.amount[StepWork::kStep] = 1;
    costs.Learn(work, 0.001 + kRow * work.amount[StepWork::kRows] +
                          kSampled * work.amount[StepWork::kSampled]);
  }
  const auto score_seconds = [&] {
    return (costs.Predict(EvenWork(0, 64, scored)) -
            costs.Predict(EvenWork(0, 64, AttentionClass::kDense))) /
           64;
  };
  EXPECT_NEAR(score_seconds(), kSampled, 0.1 * kSampled);
  StepWork work = EvenWork(0, 256, scored);
  work.amount[StepWork::kStep] = 1;
  costs.Learn(work, 0.001 + kRow * 256 + kSampled / 4 * 256);
  EXPECT_NEAR(score_seconds(), kSampled / 4, 0.1 * kSampled);
}

class ScoredPrompts : public ::testing::Test {
 protected:
  static PlanLimits Limits() {
    PlanLimits limits;
    limits.page_tokens = 64;
    limits.prefill_rows_per_rank = 4096;
    limits.group_windows = {0};
    return limits;
  }
  static PromptState Prompt(SequenceId id, int32_t length, bool scored) {
    PromptState prompt{.sequence = id, .prompt_length = length};
    prompt.attention.scored = scored;
    return prompt;
  }
  static StepPlan PlanOf(const PromptState& prompt, int32_t end) {
    StepPlan plan;
    PlanItem& item = plan.items.emplace_back();
    item.sequence = prompt.sequence;
    item.begin = prompt.computed;
    item.end = end;
    item.runs = {{0, item.begin, item.end - item.begin}};
    if (prompt.attention.scored) item.score.emplace();
    return plan;
  }
};

// No step is long because of them, even if nobody limits its time.
TEST_F(ScoredPrompts, AreReadAFewRowsAtATime) {
  StepPacer pacer(0, Limits());
  PromptState first = Prompt(1, 4000, true);
  const std::vector<PrefillTurn> page = pacer.Next({&first, 1}, {}, false).turns;
  ASSERT_EQ(page.size(), 1u);
  EXPECT_EQ(page[0].end, 64) << "nobody knows yet how long they take";
  pacer.Took(PlanOf(first, 64), {}, 0, 1);
  const PromptState prompts[] = {Prompt(1, 100, true), Prompt(2, 4000, true),
                                 Prompt(3, 4000, false)};
  const StepChoice choice = pacer.Next(prompts, {}, false);
  ASSERT_EQ(choice.turns.size(), 3u);
  EXPECT_EQ(choice.turns[0].end, 100);
  EXPECT_EQ(choice.turns[1].end, 128);  // 228 of 256 rows
  EXPECT_EQ(choice.turns[2].end, 4000);
  EXPECT_EQ(pacer.Next(std::span(prompts).subspan(1, 1), {}, false).turns[0].end, kMostScoredRows);
  const PromptState long_ones[] = {Prompt(1, 4000, true), Prompt(2, 4000, true),
                                   Prompt(3, 4000, false)};
  const std::vector<PrefillTurn> turns = pacer.Next(long_ones, {}, false).turns;
  ASSERT_EQ(turns.size(), 2u);
  EXPECT_EQ(turns[0].end, kMostScoredRows);
  EXPECT_EQ(turns[1].sequence, 3u) << "it needs none of the rows that the second waits for";
}

// A row of the head takes far longer than one of the layers.
TEST_F(ScoredPrompts, LeaveStreamsTheirTime) {
  constexpr double kBudget = 0.1;
  constexpr double kRow = 1e-5;
  constexpr double kScore = 1.2e-3;
  StepPacer pacer(kBudget, Limits());
  const std::vector<StreamRows> streams = {{.position = 100}};
  const auto read = [&](PromptState prompt) {
    double longest = 0;
    while (prompt.computed < prompt.prompt_length) {
      const StepChoice choice = pacer.Next({&prompt, 1}, streams, false);
      StepPlan plan = PlanOf(prompt, choice.turns.at(0).end);
      PlanItem& stream = plan.items.emplace_back();
      stream.begin = 100;
      stream.end = 101;
      stream.sampled = true;
      stream.runs = {{0, 100, 1}};
      const StepWork work = WorkOf(plan, {}, 1);
      const double seconds =
          0.005 + kRow * work.amount[StepWork::kRows] + kScore * work.amount[StepWork::kScored];
      longest = std::max(longest, seconds);
      pacer.Took(plan, {}, 1, seconds);
      prompt.computed = choice.turns[0].end;
    }
    return longest;
  };
  read(Prompt(1, 20'000, false));
  EXPECT_LE(read(Prompt(2, 20'000, true)), kBudget);
  // The others are not taken for such.
  PromptState other = Prompt(3, 20'000, false);
  EXPECT_GT(pacer.Next({&other, 1}, streams, false).turns.at(0).end, 1000);
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
