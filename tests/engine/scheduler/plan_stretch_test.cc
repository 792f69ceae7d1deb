// Plans of chunks that are suspended between layers, and what becomes of the state.

#include <algorithm>
#include <vector>

#include "engine/scheduler/scheduler.h"
#include "gtest/gtest.h"
#include "tests/engine/scheduler/plan_world.h"

namespace annulus {
namespace {

using testing::Limits;
using testing::Mode;
using testing::RowsOf;
using testing::World;

// A chunk of two pages and the last row, in three stretches.
TEST(PlanStretch, CommitsTheChunkWithItsLastLayer) {
  PlanLimits limits = Limits(2, 16, 64, {0});
  limits.layers = 6;
  limits.suspended_rows_per_rank = 32;
  World world(limits);
  Sequence& prompt = world.Add(1, 33, 4, {0, 1});
  world.Add(2, 5, 4, {1});
  const StepPlan begin = world.Stretch({1, 33, 2});
  EXPECT_EQ(begin.stretch, (Stretch{0, 2, false}));
  ASSERT_EQ(begin.updates.size(), 1u);
  EXPECT_TRUE(begin.updates[0].setup.has_value());
  ASSERT_EQ(begin.items.size(), 2u);
  EXPECT_TRUE(begin.items[0].sampled);
  EXPECT_EQ(prompt.computed, 0);
  ASSERT_TRUE(prompt.suspended.has_value());
  EXPECT_EQ(prompt.suspended->layers, 2);
  EXPECT_TRUE(world.state().after_stretch);
  // Others run meanwhile.
  const StepPlan between = world.Step(Mode(RingMode::kPassKv));
  for (const PlanItem& item : between.items) EXPECT_EQ(item.sequence, 2u);
  EXPECT_FALSE(between.items.empty());
  EXPECT_FALSE(world.state().after_stretch);
  const StepPlan more = world.Stretch({1, 33, 5});
  EXPECT_EQ(more.stretch, (Stretch{2, 5, false}));
  EXPECT_EQ(more.items, begin.items);
  EXPECT_TRUE(more.updates.empty());
  EXPECT_EQ(prompt.tokens.size(), 33u);
  const StepPlan last = world.Stretch({1, 33, 6});
  EXPECT_EQ(last.stretch, (Stretch{5, 6, true}));
  EXPECT_EQ(prompt.computed, 33);
  EXPECT_EQ(prompt.tokens.size(), 34u);
  EXPECT_FALSE(prompt.suspended.has_value());
  EXPECT_EQ(world.Step(Mode(RingMode::kPassKv)).items.size(), 2u);
}

TEST(PlanStretch, TakesNoMoreRowsThanRanksKeep) {
  PlanLimits limits = Limits(2, 16, 64, {0});
  limits.layers = 2;
  limits.suspended_rows_per_rank = 32;
  World world(limits);
  world.Add(1, 500, 4, {0, 1});
  const StepPlan plan = world.Stretch({1, 500, 1});
  for (const int rank : {0, 1}) EXPECT_EQ(RowsOf(plan, rank), 32);
}

// A token before the last layer has run is none.
TEST(PlanStretch, IsNotAnsweredBeforeItsEnd) {
  StepPlan plan;
  PlanItem& item = plan.items.emplace_back();
  item.sequence = 1;
  item.end = 1;
  item.tokens = {5};
  item.runs = {{0, 0, 1}};
  item.sampled = true;
  std::vector<RankResult> results(1);
  plan.stretch = {0, 1, false};
  EXPECT_TRUE(CheckAnswered(plan, results).ok());
  results[0].tokens.emplace_back().sequence = 1;
  EXPECT_FALSE(CheckAnswered(plan, results).ok());
  plan.stretch = {1, 2, true};
  EXPECT_TRUE(CheckAnswered(plan, results).ok());
}

}  // namespace
}  // namespace annulus
