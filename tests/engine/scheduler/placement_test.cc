#include "engine/scheduler/placement.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/scheduler/plan_world.h"

namespace annulus {
namespace {

using testing::Limits;

TEST(PagesNeeded, FullGroupKeepsEveryStripe) {
  const PlanLimits limits = Limits(4, 64, 512, {0});
  EXPECT_EQ(PagesNeeded({64 * 10 + 1}, 4, limits), (std::vector<int64_t>{3, 3, 3, 2}));
  EXPECT_EQ(PagesNeeded({1}, 1, limits), (std::vector<int64_t>{1}));
}

TEST(PagesNeeded, WindowGroupKeepsWindowAndChunk) {
  const PlanLimits limits = Limits(2, 64, 128, {100});
  // Window 100 and a step of 290 rows touch at most 9 pages.
  EXPECT_EQ(PagesNeeded({1'000'000}, 2, limits), (std::vector<int64_t>{5, 5}));
  // Two checkpoints give two pages each away, one of each rank.
  EXPECT_EQ(PagesNeeded({1'000'000, 0, 2}, 2, limits), (std::vector<int64_t>{7, 7}));
  PlanLimits passing = limits;
  passing.passing_checkpoints = 1;
  EXPECT_EQ(PagesNeeded({1'000'000, 0, 2}, 2, passing), (std::vector<int64_t>{8, 8}));
  EXPECT_EQ(PagesNeeded({64}, 2, limits), (std::vector<int64_t>{1, 0}));
}

TEST(PagesNeeded, CountsOnlyWhatIsNotCachedAndNeverWraps) {
  const PlanLimits limits = Limits(3, 64, 128, {0});
  EXPECT_EQ(PagesNeeded({64 * 10, 64 * 4}, 3, limits), (std::vector<int64_t>{2, 3, 1}));
  const PlanLimits many = Limits(1, 16, 16, std::vector<int32_t>(64, 0));
  EXPECT_EQ(PagesNeeded({INT32_MAX}, 1, many)[0], int64_t{64} << 27);
}

// Summaries of 3 pages to a page: of the complete pages alone, those that were found cached on a
// rank included.
TEST(SummaryPagesNeeded, CoverCompletePagesOfEachRank) {
  const PlanLimits limits = Limits(4, 64, 512, {0, 100, 0});
  PageDemand demand{64 * 10 + 63};
  EXPECT_EQ(SummaryPagesNeeded(demand, {0, 3}, limits), (std::vector<int64_t>{0, 0}));
  demand.summarised = 3;
  EXPECT_EQ(SummaryPagesNeeded(demand, {2}, limits), (std::vector<int64_t>{4}));
  EXPECT_EQ(SummaryPagesNeeded(demand, {0, 1, 3}, limits), (std::vector<int64_t>{2, 2, 1}));
  demand.tokens = 64 * 9;
  EXPECT_EQ(SummaryPagesNeeded(demand, {0, 1, 3}, limits), (std::vector<int64_t>{2, 1, 1}));
  demand.tokens = 63;
  EXPECT_EQ(SummaryPagesNeeded(demand, {1}, limits), (std::vector<int64_t>{0}));
  // Four cached pages, all of them on rank 3, and six new ones: two, three and one.
  demand.tokens = 64 * 10;
  demand.cached = 64 * 4;
  demand.cached_on = {0, 0, 0, 4};
  EXPECT_EQ(SummaryPagesNeeded(demand, {0, 1, 3}, limits), (std::vector<int64_t>{1, 1, 2}));
  demand.tokens = INT32_MAX;
  EXPECT_EQ(SummaryPagesNeeded(demand, {0}, limits)[0], ((int64_t{INT32_MAX} / 64 - 4) + 2) / 3);
}

// Both full groups have theirs; what is reported as needed is what a ring takes.
TEST(ChooseRing, CountsPagesForSummaries) {
  const PlanLimits limits = Limits(2, 64, 512, {0, 0});
  PageDemand demand{64 * 12};
  demand.summarised = 4;
  EXPECT_EQ(AllPagesNeeded(demand, limits), 2 * 12 + 2 * 2 * 2);
  const auto choice = ChooseRing(demand, {16, 16}, {}, limits);
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->ring, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(choice->pages, (std::vector<int32_t>{12, 12}));
  EXPECT_EQ(choice->summary_pages, (std::vector<int32_t>{2, 2}));
  EXPECT_TRUE(choice->summarises);
  EXPECT_FALSE(ChooseRing(demand, {16, 15}, {}, limits).has_value());
  demand.summarised = 0;
  const auto plain = ChooseRing(demand, {12, 12}, {}, limits);
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->summary_pages, (std::vector<int32_t>{0, 0}));
  EXPECT_FALSE(plain->summarises);
}

TEST(ChooseRing, DegreeGrowsWithLengthAndWithNeed) {
  PlanLimits limits = Limits(4, 64, 512, {0});
  limits.tokens_per_rank = 1000;
  const std::vector<int32_t> roomy = {100, 100, 100, 100};
  EXPECT_EQ(ChooseRing({1000}, roomy, {}, limits)->ring.size(), 1u);
  EXPECT_EQ(ChooseRing({1001}, roomy, {}, limits)->ring.size(), 2u);
  EXPECT_EQ(ChooseRing({4000}, roomy, {}, limits)->ring.size(), 4u);
  // 640 tokens are 10 pages: they fit no rank alone, but two.
  EXPECT_EQ(ChooseRing({640}, {5, 5, 1, 1}, {}, limits)->ring, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(ChooseRing({640}, {1, 10, 1, 1}, {}, limits)->ring, (std::vector<int32_t>{1}));
  EXPECT_FALSE(ChooseRing({64 * 401}, roomy, {}, limits).has_value());
}

// Where each rank has processors of its own.
TEST(ChooseRing, TakesTheIdlestRanksThatLeaveRoom) {
  PlanLimits limits = Limits(4, 64, 512, {0});
  limits.tokens_per_rank = 1000;
  const auto ring = [&](int64_t tokens, const std::vector<int32_t>& pages,
                        const std::vector<int>& running) {
    return ChooseRing({tokens}, pages, {}, limits, running)->ring;
  };
  const std::vector<int32_t> pages = {100, 90, 99, 80};
  EXPECT_EQ(ring(500, pages, {}), (std::vector<int32_t>{0}));
  EXPECT_EQ(ring(500, pages, {1, 1, 1, 1}), (std::vector<int32_t>{0}));
  EXPECT_EQ(ring(500, pages, {2, 1, 2, 1}), (std::vector<int32_t>{1}));
  EXPECT_EQ(ring(1500, pages, {2, 1, 3, 0}), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(ring(3500, pages, {2, 1, 3, 0}).size(), 4u) << "the length alone sets the degree";
  // The last rank has less than half of the first one's pages.
  EXPECT_EQ(ring(500, {100, 90, 99, 49}, {2, 2, 1, 0}), (std::vector<int32_t>{2}));
  // 10 pages: the idlest rank has too few.
  EXPECT_EQ(ring(640, {10, 9, 9, 9}, {3, 0, 1, 2}), (std::vector<int32_t>{0}));
}

TEST(RankToJoin, IsTheHomeOfMostThatHasRoom) {
  PlanLimits limits = Limits(4, 64, 512, {0});
  limits.tokens_per_rank = 1000;
  const std::vector<int32_t> pages = {100, 100, 50, 49};
  EXPECT_EQ(RankToJoin({500}, {0, 0, 0, 0}, pages, limits), std::nullopt);
  EXPECT_EQ(RankToJoin({500}, {0, 1, 0, 0}, pages, limits), 1);
  EXPECT_EQ(RankToJoin({500}, {1, 1, 2, 0}, pages, limits), 2);
  EXPECT_EQ(RankToJoin({500}, {1, 1, 2, 9}, pages, limits), 2) << "the last one has less than half";
  EXPECT_EQ(RankToJoin({500}, {0, 0, 0, 9}, pages, limits), std::nullopt);
  EXPECT_EQ(RankToJoin({900}, {1, 1, 2, 0}, {15, 14, 9, 0}, limits), 0) << "9 pages are too few";
  EXPECT_EQ(RankToJoin({1001}, {1, 1, 2, 9}, pages, limits), std::nullopt) << "it takes two ranks";
}

// A rank has whole shards, as many as any other or one more; where the ring divides them, those
// with one residue.
TEST(PlaceOnRing, KeepsShardsWholeAndRanksEven) {
  for (const int shards : {8, 16, 64}) {
    for (int degree = 1; degree <= shards; ++degree) {
      std::vector<int> held(degree, 0);
      for (int page = 0; page < 3 * shards; ++page) {
        const int index = PlaceOnRing(page * 16 + 7, 16, degree, shards);
        ASSERT_EQ(index, PlaceOnRing((page + shards) * 16, 16, degree, shards));
        if (shards % degree == 0) {
          ASSERT_EQ(index, PlaceOnRing((page + degree) * 16, 16, degree, shards));
        }
        if (page < shards) ++held[index];
      }
      EXPECT_EQ(*std::max_element(held.begin(), held.end()), MostLeaves(degree, shards));
      EXPECT_GE(*std::min_element(held.begin(), held.end()), shards / degree);
    }
  }
}

// Rings that are even within a tenth come first; those whose fullest rank has no less than in a
// smaller ring are not made, nor are uneven ones where the ranks divide the shards.
TEST(ChooseRing, PrefersEvenRings) {
  PlanLimits limits = Limits(7, 64, 512, {0});
  limits.tokens_per_rank = 1000;
  std::vector<int32_t> free_pages(7, 100);
  EXPECT_EQ(ChooseRing({3000}, free_pages, {}, limits)->ring.size(), 4u);
  EXPECT_EQ(ChooseRing({7000}, free_pages, {}, limits)->ring.size(), 4u);
  free_pages = {100, 100, 100, 0, 0, 0, 0};
  EXPECT_EQ(ChooseRing({3000}, free_pages, {}, limits)->ring.size(), 3u);
  limits.ranks = 4;
  EXPECT_FALSE(ChooseRing({3000}, {100, 100, 100, 0}, {}, limits).has_value());
  limits.ranks = 7;
  limits.shards = 32;
  free_pages.assign(7, 100);
  EXPECT_EQ(ChooseRing({3000}, free_pages, {}, limits)->ring.size(), 3u);
  EXPECT_EQ(ChooseRing({7000}, free_pages, {}, limits)->ring.size(), 7u);
}

// Cached pages are of one ring, which the sequence takes as it is.
TEST(ChooseRing, AFixedRingStays) {
  PlanLimits limits = Limits(4, 64, 512, {0});
  limits.tokens_per_rank = 100;
  const std::vector<int32_t> fixed = {1, 3};
  EXPECT_EQ(ChooseRing({1000}, {90, 9, 90, 8}, fixed, limits)->ring, fixed);
  EXPECT_FALSE(ChooseRing({1000}, {90, 9, 90, 6}, fixed, limits).has_value());
}

TEST(RestOfWork, GrowsWithTheBusiestRankAndItsShare) {
  const PlanLimits limits = Limits(4, 64, 512, {0});
  EXPECT_EQ(RestOfWork(1000, {2}, {9, 9, 0, 9}, limits), 1000);
  EXPECT_EQ(RestOfWork(1000, {2}, {0, 0, 2, 0}, limits), 3000);
  EXPECT_EQ(RestOfWork(1000, {0, 1, 2, 3}, {0, 0, 1, 0}, limits), 500);
}

}  // namespace
}  // namespace annulus
