#include "engine/scheduler/repair.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "engine/scheduler/scheduler.h"
#include "tests/engine/scheduler/plan_world.h"

namespace annulus {
namespace {

using testing::Limits;
using testing::Mode;
using testing::World;

constexpr int kRepairPage = 16;

// What was lost of a sequence: positions below `computed` whose page is on one of the ranks.
int64_t RowsOn(const std::set<int32_t>& ranks, const Sequence& sequence) {
  int64_t rows = 0;
  for (const PageEntry& entry : sequence.groups[0].entries) {
    if (!ranks.contains(entry.rank)) continue;
    rows += std::clamp(sequence.computed - entry.first_position, 0, kRepairPage);
  }
  return rows;
}

void Lose(World& world, const std::set<int32_t>& ranks) {
  const std::vector<int32_t> lost(ranks.begin(), ranks.end());
  LosePages(lost, world.limits(), world.state(), world.pages());
  for (const auto& sequence : world.state().running) TellAnew(*sequence);
}

// Runs steps until nothing is lost. Returns the rows that were computed again.
int64_t Repair(World& world, const Sequence& sequence, const std::set<int32_t>& ranks) {
  int64_t rows = 0;
  int32_t end = 0;
  const int32_t computed = sequence.computed;
  const size_t tokens = sequence.tokens.size();
  for (bool first = true; sequence.lost.has_value(); first = false) {
    const StepPlan plan = world.Step(Mode(RingMode::kPassKv));
    EXPECT_EQ(plan.items.size(), 1u);
    if (plan.items.size() != 1) return rows;
    const PlanItem& item = plan.items[0];
    EXPECT_FALSE(item.sampled);
    EXPECT_FALSE(item.score.has_value());
    EXPECT_GE(item.begin, end) << "ascending";
    end = item.end;
    rows += item.end - item.begin;
    for (const RowRun& run : item.runs) EXPECT_TRUE(ranks.contains(run.rank)) << run.rank;
    EXPECT_EQ(plan.updates.size(), 1u);
    EXPECT_EQ(plan.updates[0].terms.has_value(), first);
    EXPECT_FALSE(plan.updates[0].setup.has_value());
    const auto& append = plan.updates[0].tables[0].append;
    EXPECT_EQ(append, first ? sequence.groups[0].entries : std::vector<PageEntry>());
    EXPECT_EQ(sequence.computed, computed) << "no progress";
    EXPECT_EQ(sequence.tokens.size(), tokens) << "no token";
  }
  return rows;
}

// Any one rank and any two of four, in the prompt and in the answer.
TEST(Repair, ComputesTheLostRowsAlone) {
  for (int first = 0; first < 4; ++first) {
    for (int second = first; second < 4; ++second) {
      for (const int steps : {1, 2, 40}) {
        World world(Limits(4, kRepairPage, 64, {0}));
        Sequence& sequence = world.Add(1, 300, 60, {0, 1, 2, 3});
        sequence.prompt_logprobs = 0;
        for (int step = 0; step < steps; ++step) world.Step(Mode(RingMode::kPassKv));
        const auto entries = sequence.groups[0].entries;
        const std::set<int32_t> ranks = {first, second};
        const int64_t lost = RowsOn(ranks, sequence);
        ASSERT_GT(lost, 0);
        Lose(world, ranks);
        EXPECT_TRUE(CanRepair(sequence, world.limits(), world.pages()));
        EXPECT_EQ(Repair(world, sequence, ranks), lost);
        EXPECT_EQ(sequence.groups[0].entries, entries) << "no new page";
        for (const PageEntry& entry : entries) {
          const bool whole = entry.first_position + kRepairPage <= sequence.computed;
          EXPECT_EQ(world.pages().state({entry.rank, entry.page}),
                    whole ? PageState::kComplete : PageState::kPartial);
        }
        const auto answered = std::ssize(sequence.tokens) - 300;
        const StepPlan next = world.Step(Mode(RingMode::kPassKv));
        ASSERT_TRUE(next.updates[0].setup.has_value()) << "the sampler's home may be lost";
        EXPECT_EQ(std::ssize(next.updates[0].setup->generated), answered);
      }
    }
  }
}

// The second loss comes when a part is repaired, on the same rank or on another one.
TEST(Repair, BeginsAnewWithWhatIsLostMeanwhile) {
  for (const int32_t again : {1, 2}) {
    World world(Limits(4, kRepairPage, 64, {0}));
    Sequence& sequence = world.Add(1, 300, 60, {0, 1, 2, 3});
    for (int step = 0; step < 20; ++step) world.Step(Mode(RingMode::kPassQ));
    Lose(world, {1});
    world.Step(Mode(RingMode::kPassQ));
    ASSERT_TRUE(sequence.lost.has_value());
    const int32_t repaired = sequence.lost->begin;
    Lose(world, {again});
    const int64_t all = RowsOn({1, again}, sequence);
    const int64_t rows = Repair(world, sequence, {1, again});
    if (again == 1) {
      EXPECT_EQ(rows, all);
    } else {
      EXPECT_LT(rows, all) << "what was repaired on rank 1 up to " << repaired << " stays";
    }
  }
}

// Those that have none of the lost pages go on in the same steps.
TEST(Repair, OthersGoOnMeanwhile) {
  World world(Limits(4, kRepairPage, 64, {0}));
  Sequence& lost = world.Add(1, 300, 60, {0, 1});
  Sequence& other = world.Add(2, 100, 60, {2, 3});
  for (int step = 0; step < 12; ++step) world.Step(Mode(RingMode::kPassKv));
  const int32_t computed = other.computed;
  Lose(world, {1});
  EXPECT_FALSE(other.lost.has_value());
  int steps = 0;
  for (; lost.lost.has_value(); ++steps) {
    const StepPlan plan = world.Step(Mode(RingMode::kPassKv));
    EXPECT_EQ(plan.items.size(), 2u);
    EXPECT_TRUE(plan.items[0].sampled) << "items that need the last layer come first";
  }
  EXPECT_GT(steps, 1);
  EXPECT_EQ(other.computed, computed + steps);
}

// A page that two sequences read is computed once.
TEST(Repair, SharedPagesAreRepairedOnce) {
  World world(Limits(2, kRepairPage, 64, {0}));
  Sequence& first = world.Add(1, 128, 60, {0, 1});
  while (first.in_prefill()) world.Step(Mode(RingMode::kPassKv));
  Sequence& second = world.Add(2, 200, 60, {0, 1});
  for (const PageEntry& entry : first.groups[0].entries) {
    if (entry.first_position >= 128) break;
    world.pages().Keep({entry.rank, entry.page}, {}, std::nullopt);
    world.pages().Hold(second.owner, {entry.rank, entry.page});
    second.groups[0].entries.push_back(entry);
  }
  second.groups[0].mapped_end = 128;
  second.computed = 128;
  for (int step = 0; step < 4; ++step) world.Step(Mode(RingMode::kPassKv));
  for (const PageEntry& entry : first.groups[0].entries) {
    if (entry.first_position < 128) world.pages().Unkeep({entry.rank, entry.page});
  }
  const int64_t lost = RowsOn({0}, first) + RowsOn({0}, second) - 64;  // 64 of 128 are shared
  Lose(world, {0});
  int64_t rows = 0;
  while (first.lost.has_value() || second.lost.has_value()) {
    int repairs = 0;
    for (const PlanItem& item : world.Step(Mode(RingMode::kPassKv)).items) {
      if (item.sampled) continue;
      ++repairs;
      rows += item.end - item.begin;
    }
    ASSERT_EQ(repairs, 1) << "one after the other";
  }
  EXPECT_EQ(rows, lost);
}

TEST(Repair, NeedsWindowsThatWereNotGivenUp) {
  for (const int prompt : {30, 200}) {
    World world(Limits(2, kRepairPage, 64, {0, 40}));
    Sequence& sequence = world.Add(1, prompt, 8, {0, 1});
    while (sequence.in_prefill()) world.Step(Mode(RingMode::kPassKv));
    Lose(world, {0});
    ASSERT_TRUE(sequence.lost.has_value());
    EXPECT_EQ(CanRepair(sequence, world.limits(), world.pages()), prompt == 30);
    if (prompt == 30) {
      EXPECT_EQ(Repair(world, sequence, {0}), 16);
    }
  }
}

TEST(Repair, IsNotForPoliciesThatChooseByContent) {
  World world(Limits(2, kRepairPage, 64, {0}));
  Sequence& sequence = world.Add(1, 100, 8, {0, 1});
  world.Step(Mode(RingMode::kPassKv));
  Lose(world, {0});
  EXPECT_TRUE(CanRepair(sequence, world.limits(), world.pages()));
  const auto under = [&](const char* policy) {
    sequence.attention =
        std::make_shared<const AttentionAssignment>(ParseAssignment(policy).value());
    return CanRepair(sequence, world.limits(), world.pages());
  };
  EXPECT_TRUE(under("strided"));
  EXPECT_FALSE(under("adaptive"));
}

}  // namespace
}  // namespace annulus
