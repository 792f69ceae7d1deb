// Requests that reserve what their answers are expected to take, grow, and give up their pages.

#include "engine/scheduler/growth.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "engine/scheduler/answer_length.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(AnswerLength, ExpectsTheWorstUntilEnoughAnswersHaveEnded) {
  AnswerLength lengths;
  for (int i = 0; i < AnswerLength::kLeastAnswers; ++i) {
    EXPECT_EQ(lengths.Expect(0, 1000, 0), 1000);
    lengths.Learn(10);
  }
  EXPECT_LT(lengths.Expect(0, 1000, 0), 20);
}

TEST(AnswerLength, StaysWithinItsBoundsWhateverItHasSeen) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    AnswerLength lengths;
    for (int i = 0; i < 30; ++i) {
      lengths.Learn(1 + static_cast<int64_t>(std::exp(random() % 12)));
      const int64_t most = 1 + random() % 5000;
      const int64_t least = random() % (most + 1);
      const int64_t so_far = random() % most;
      const int64_t expected = lengths.Expect(least, most, so_far);
      ASSERT_GT(expected, so_far);
      ASSERT_GE(expected, least);
      ASSERT_LE(expected, most);
    }
  }
}

// Most answers are no longer than is expected, and few pages are kept for nothing.
TEST(AnswerLength, CoversMostAnswersOfATraceWithoutExpectingTheLongest) {
  std::mt19937 random(5);
  std::lognormal_distribution<double> length(5, 0.6);  // 148 tokens in the middle, 640 now and then
  AnswerLength lengths;
  int covered = 0;
  double expected = 0;
  constexpr int kAnswers = 4000;
  for (int i = 0; i < kAnswers + 100; ++i) {
    const auto tokens = static_cast<int64_t>(length(random)) + 1;
    if (i >= 100) {
      covered += tokens <= lengths.Expect(0, 4096, 0) ? 1 : 0;
      expected += static_cast<double>(lengths.Expect(0, 4096, 0)) / kAnswers;
    }
    lengths.Learn(tokens);
  }
  EXPECT_GT(covered, kAnswers * 3 / 4);
  EXPECT_LT(expected, 400);
}

PlanLimits GrowthLimits(int ranks, std::vector<int32_t> windows) {
  PlanLimits limits;
  limits.ranks = ranks;
  limits.shards = ShardsFor(ranks);
  limits.page_tokens = 16;
  limits.prefill_rows_per_rank = 64;
  limits.tokens_per_rank = 64;
  limits.group_windows = std::move(windows);
  return limits;
}

// However a sequence grows, it ends with what it would have taken at once.
TEST(PagesToGrow, AddUpToWhatTheWholeNeeds) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    const int ranks = 1 + static_cast<int>(random() % 4);
    const PlanLimits limits = GrowthLimits(ranks, {0, 100, 0});
    PageDemand demand;
    demand.tokens = 1 + random() % 2000;
    demand.cached = static_cast<int32_t>(random() % demand.tokens) / 16 * 16;
    demand.checkpoints = static_cast<int32_t>(random() % 3);
    int64_t reached = demand.cached + 16;
    PageDemand first = demand;
    first.tokens = reached;
    std::vector<int64_t> has = PagesNeeded(first, ranks, limits);
    while (reached < demand.tokens) {
      const int64_t next = reached + 16 * (1 + random() % 3);
      const std::vector<int32_t> more = PagesToGrow(demand, reached, next, ranks, limits);
      for (int index = 0; index < ranks; ++index) {
        ASSERT_GE(more[index], 0);
        has[index] += more[index];
      }
      reached = next;
    }
    demand.tokens = reached;
    EXPECT_EQ(has, PagesNeeded(demand, ranks, limits));
  }
}

// Wherever the worst case fits, what is expected does; and wherever a request begins, it could end
// alone.
TEST(ChooseRing, ExpectedBeginsWhereverTheWorstCaseDoes) {
  std::mt19937 random(9);
  int only_expected = 0;
  for (int round = 0; round < 3000; ++round) {
    const int ranks = 1 + static_cast<int>(random() % 4);
    const PlanLimits limits = GrowthLimits(ranks, {0});
    std::vector<int32_t> free;
    PageDemand worst;
    worst.tokens = 2 + random() % 700;
    PageDemand expected = worst;
    expected.reserved = 16 * (1 + random() % ((worst.tokens + 15) / 16));
    for (int rank = 0; rank < ranks; ++rank) {
      free.push_back(static_cast<int32_t>(random() % 16));
      expected.alone.push_back(free.back() + static_cast<int32_t>(random() % 8));
    }
    const auto whole = ChooseRing(worst, free, {}, limits);
    const auto part = ChooseRing(expected, free, {}, limits);
    ASSERT_TRUE(part.has_value() || !whole.has_value()) << "round " << round;
    if (!part.has_value()) continue;
    only_expected += whole.has_value() ? 0 : 1;
    for (size_t index = 0; index < part->ring.size(); ++index) {
      EXPECT_LE(part->pages[index], free[part->ring[index]]);
      EXPECT_LE(part->most[index], expected.alone[part->ring[index]]);
    }
  }
  EXPECT_GT(only_expected, 100);
}

TEST(GrowthOrder, TheEldestComesFirstAndTheParkedLast) {
  const std::vector<Grower> running = {
      {.id = 5}, {.id = 3, .is_parked = true}, {.id = 9}, {.id = 4}, {.id = 7, .is_parked = true}};
  const std::vector<size_t> served = {2, 4, 0, 1, 3};
  std::vector<SequenceId> ids;
  for (const Grower& one : GrowthOrder(running, served)) ids.push_back(one.id);
  EXPECT_EQ(ids, (std::vector<SequenceId>{4, 9, 5, 7, 3}));
  EXPECT_TRUE(GrowthOrder({}, {}).empty());
}

// Pages as counts: sequence i holds held[i].
class CountedPages final : public GrowthHost {
 public:
  bool Grow(SequenceId id) override {
    if (free == 0) return false;
    --free;
    ++held[id];
    return true;
  }
  bool Helps(SequenceId victim, SequenceId) override { return held[victim] > 0; }
  void Preempt(SequenceId victim) override {
    free += held[victim];
    held[victim] = 0;
    preempted.push_back(victim);
  }
  int free = 0;
  std::map<SequenceId, int> held;
  std::vector<SequenceId> preempted;
};

std::vector<Grower> Growing(std::vector<SequenceId> ids) {
  std::vector<Grower> growers;
  for (const SequenceId id : ids) growers.push_back({.id = id, .grows = true, .may_yield = true});
  return growers;
}

TEST(GrowSequences, TheOneWhoseTurnIsFurthestGivesUpItsPages) {
  CountedPages pages;
  pages.held = {{1, 2}, {2, 2}, {3, 2}, {4, 0}};
  EXPECT_FALSE(GrowSequences(Growing({1, 2, 3, 4}), pages));
  EXPECT_EQ(pages.preempted, (std::vector<SequenceId>{3, 4}));  // 4 has none to give, and waits
  EXPECT_EQ(pages.held[1], 3);
  EXPECT_EQ(pages.held[2], 3);
}

TEST(GrowSequences, TheFirstIsNeverPreemptedAndWaitsForThoseThatMayNotYield) {
  CountedPages pages;
  pages.held = {{1, 5}, {2, 5}};
  std::vector<Grower> order = Growing({1, 2});
  order[1] = {.id = 2};
  EXPECT_TRUE(GrowSequences(order, pages));
  EXPECT_TRUE(pages.preempted.empty());
  EXPECT_EQ(pages.held[1], 5);
}

TEST(GrowSequences, WhoeverFindsNothingGivesWhatItHas) {
  CountedPages pages;
  pages.held = {{1, 3}, {2, 3}};
  std::vector<Grower> order = Growing({1, 2});
  order[0].grows = false;
  EXPECT_FALSE(GrowSequences(order, pages));
  EXPECT_EQ(pages.preempted, (std::vector<SequenceId>{2}));
}

}  // namespace
}  // namespace annulus
