#include "engine/scheduler/trial_ring.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "tests/engine/scheduler/plan_world.h"

namespace annulus {
namespace {

using testing::Limits;

// Three ranks, of which two are left: shards of 8 are 3, 3 and 2, or 4 and 4.
TEST(TrialRing, WhatFitsOnAllRanksNeedNotFitOnFewer) {
  const PlanLimits limits = Limits(3, 64, 512, {0});
  const TrialRing all(limits, {20, 20, 20});
  const TrialRing fewer(limits, {20, 20});
  EXPECT_TRUE(all.Fits({64 * 48}));
  EXPECT_FALSE(fewer.Fits({64 * 48}));
  EXPECT_TRUE(fewer.Fits({64 * 40}));
  EXPECT_FALSE(fewer.Fits({64 * 40 + 1}));
  EXPECT_EQ(fewer.LongestFit({}), 64 * 40);
}

// Of four ranks three are left, but rings of three are of no use then (IsUsefulDegree).
TEST(TrialRing, RingsHaveTheDegreesThatTheEngineForms) {
  PlanLimits limits = Limits(4, 64, 512, {0});
  limits.tokens_per_rank = 64 * 10;
  TrialRing three(limits, {10, 10, 10});
  EXPECT_EQ(three.LongestFit({}), 64 * 20);
  EXPECT_TRUE(three.Place({64 * 20}));
  EXPECT_EQ(three.LongestFit({}), 64 * 10) << "on the third rank";
  EXPECT_TRUE(three.Place({64 * 10}));
  EXPECT_FALSE(three.Place({1}));
}

TEST(TrialRing, WhatDoesNotFitTakesNothing) {
  const PlanLimits limits = Limits(2, 64, 512, {0});
  TrialRing ring(limits, {10});
  EXPECT_TRUE(ring.Place({64 * 6}));
  EXPECT_FALSE(ring.Place({64 * 5}));
  EXPECT_TRUE(ring.Fits({64 * 4}));
  EXPECT_TRUE(ring.Place({64 * 4}));
  EXPECT_EQ(ring.LongestFit({}), 0);
}

// A window and two steps' rows take as many pages however long the sequence is; summaries come on
// top of full groups; a sequence that reserves a part must fit whole if it is alone.
TEST(TrialRing, CountsAllThatSequencesTake) {
  PlanLimits limits = Limits(2, 64, 128, {100});
  const TrialRing windows(limits, {10});
  EXPECT_EQ(windows.LongestFit({}), INT32_MAX);
  EXPECT_EQ(TrialRing(limits, {5}).LongestFit({}), 64 * 5);
  limits = Limits(2, 64, 512, {0, 0});
  TrialRing summaries(limits, {32});
  PageDemand demand{64 * 12};
  demand.summarised = 4;  // 24 pages and twice three summary pages
  EXPECT_TRUE(summaries.Place(demand));
  EXPECT_TRUE(summaries.Fits({64}));
  EXPECT_FALSE(summaries.Fits({64 + 1}));
  limits = Limits(2, 64, 512, {0});
  TrialRing partly(limits, {10});
  PageDemand grows{64 * 10};
  grows.reserved = 64 * 4;
  EXPECT_TRUE(partly.Place(grows));
  EXPECT_TRUE(partly.Place(grows)) << "each would fit alone, and its first part fits";
  EXPECT_FALSE(partly.Place(grows));
  grows.tokens = 64 * 11;
  grows.reserved = 64;
  EXPECT_FALSE(partly.Fits(grows)) << "not even alone";
}

TEST(TrialRing, PlacesAsRingsAreChosen) {
  std::mt19937 random(7);
  const auto draw = [&](int most) {
    return static_cast<int>(random() % static_cast<uint32_t>(most + 1));
  };
  for (int turn = 0; turn < 200; ++turn) {
    PlanLimits limits = Limits(1 + draw(7), 64, 128, {0});
    if (turn % 3 == 0) limits.group_windows = {0, 100};
    limits.tokens_per_rank = 64 * (1 + draw(20));
    std::vector<int32_t> free(static_cast<size_t>(limits.ranks), 10 + draw(40));
    TrialRing ring(limits, free);
    for (int i = 0; i < 8; ++i) {
      const PageDemand demand{1 + draw(64 * 60)};
      const auto choice = ChooseRing(demand, free, {}, limits);
      EXPECT_EQ(ring.Fits(demand), choice.has_value());
      EXPECT_EQ(ring.Place(demand), choice.has_value());
      if (!choice.has_value()) continue;
      for (size_t k = 0; k < choice->ring.size(); ++k) free[choice->ring[k]] -= choice->pages[k];
    }
  }
}

TEST(TrialRing, TheSmallestRoomsAreLeft) {
  EXPECT_EQ(SmallestRooms({5, 9, 3, 7}, 2), (std::vector<int32_t>{3, 5}));
  EXPECT_EQ(SmallestRooms({5}, 1), (std::vector<int32_t>{5}));
}

}  // namespace
}  // namespace annulus
