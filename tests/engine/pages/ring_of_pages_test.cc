#include "engine/pages/ring_of_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <vector>

namespace annulus {
namespace {

constexpr int kPage = 16;
constexpr uint64_t kAll = ~uint64_t{0};  // every rank is usable

PlanLimits LimitsOf(int ranks) {
  PlanLimits limits;
  limits.ranks = ranks;
  limits.shards = ShardsFor(ranks);
  limits.page_tokens = kPage;
  return limits;
}

// How many pages from the first on are where that ring would have them.
size_t PagesOn(const std::vector<int32_t>& ring, const std::vector<uint64_t>& pages,
               const PlanLimits& limits) {
  size_t page = 0;
  for (; page < pages.size(); ++page) {
    const int index = PlaceOnRing(static_cast<int32_t>(page) * kPage, kPage,
                                  static_cast<int>(ring.size()), limits.shards);
    if ((pages[page] >> ring[static_cast<size_t>(index)] & 1) == 0) break;
  }
  return page;
}

// Of all rings there are.
size_t MostOnAnyRing(const std::vector<uint64_t>& pages, const PlanLimits& limits) {
  size_t most = 0;
  for (uint32_t members = 1; members < 1U << limits.ranks; ++members) {
    if (!IsUsefulDegree(std::popcount(members), limits.ranks, limits.shards)) continue;
    std::vector<int32_t> ring;
    for (int32_t rank = 0; rank < limits.ranks; ++rank) {
      if ((members >> rank & 1) != 0) ring.push_back(rank);
    }
    most = std::max(most, PagesOn(ring, pages, limits));
  }
  return most;
}

TEST(RingOfPagesTest, FindsTheRingThatATextWasOn) {
  const PlanLimits limits = LimitsOf(4);
  std::vector<uint64_t> pages;
  for (int page = 0; page < 40; ++page) {
    const int index = PlaceOnRing(page * kPage, kPage, 2, limits.shards);
    pages.push_back(index == 0 ? 0b0010 : 0b1000);
  }
  const RingPages found = LongestOnOneRing(pages, kAll, kPage, limits);
  EXPECT_EQ(found.pages, 40u);
  EXPECT_EQ(found.ring, (std::vector<int32_t>{1, 3}));
  pages[20] = 0;
  EXPECT_EQ(LongestOnOneRing(pages, kAll, kPage, limits).pages, 20u);
  EXPECT_EQ(LongestOnOneRing({}, kAll, kPage, limits).pages, 0u);
  EXPECT_TRUE(LongestOnOneRing({}, kAll, kPage, limits).ring.empty());
  pages[0] = 0;
  EXPECT_EQ(LongestOnOneRing(pages, kAll, kPage, limits).pages, 0u);
}

// A beginning that texts on several rings share is on all of them.
TEST(RingOfPagesTest, SharedBeginningsAreTakenFromTheRingOfTheRest) {
  const PlanLimits limits = LimitsOf(4);
  std::vector<uint64_t> pages;
  for (int page = 0; page < 40; ++page) {
    const int index = PlaceOnRing(page * kPage, kPage, 2, limits.shards);
    pages.push_back(uint64_t{1} << (index == 0 ? 2 : 3) | (page < 10 ? 0b0001 : 0));
  }
  const RingPages found = LongestOnOneRing(pages, kAll, kPage, limits);
  EXPECT_EQ(found.pages, 40u);
  EXPECT_EQ(found.ring, (std::vector<int32_t>{2, 3}));
}

// Of a short text, a ring has ranks without a page: these must be usable too.
TEST(RingOfPagesTest, RanksThatAreNotUsableAreOnNoRing) {
  const PlanLimits limits = LimitsOf(4);
  // On a ring of four, one of which has none of them.
  std::vector<uint64_t> three;
  for (int page = 0; page < 3; ++page) {
    three.push_back(uint64_t{1} << PlaceOnRing(page * kPage, kPage, 4, limits.shards));
  }
  const int without = PlaceOnRing(3 * kPage, kPage, 4, limits.shards);
  RingPages found = LongestOnOneRing(three, 0b1111, kPage, limits);
  EXPECT_EQ(found.pages, 3u);
  EXPECT_EQ(found.ring, (std::vector<int32_t>{0, 1, 2, 3}));
  found = LongestOnOneRing(three, 0b1111 ^ uint64_t{1} << without, kPage, limits);
  EXPECT_EQ(found.pages, 2u);
  EXPECT_EQ(std::count(found.ring.begin(), found.ring.end(), without), 0);
  // A page of a rank that is lost counts for nothing.
  const std::vector<uint64_t> one = {0b0010};
  EXPECT_EQ(LongestOnOneRing(one, 0b1111, kPage, limits).ring, (std::vector<int32_t>{1}));
  EXPECT_EQ(LongestOnOneRing(one, 0b1101, kPage, limits).pages, 0u);
}

TEST(RingOfPagesTest, NoRingHasMore) {
  std::mt19937 random(1);
  for (const int ranks : {1, 2, 3, 4, 5, 6}) {
    const PlanLimits limits = LimitsOf(ranks);
    for (int turn = 0; turn < 300; ++turn) {
      std::vector<uint64_t> pages(random() % 30);
      // Mostly of some ring, with holes and what others have.
      const int degree = 1 + static_cast<int>(random() % static_cast<uint32_t>(ranks));
      std::vector<int32_t> ring;
      for (int32_t rank = 0; rank < ranks; ++rank) ring.push_back(rank);
      std::shuffle(ring.begin(), ring.end(), random);
      ring.resize(static_cast<size_t>(degree));
      std::sort(ring.begin(), ring.end());
      for (size_t page = 0; page < pages.size(); ++page) {
        const int index =
            PlaceOnRing(static_cast<int32_t>(page) * kPage, kPage, degree, limits.shards);
        const uint64_t others = random() & random() & ((1U << ranks) - 1);
        const uint64_t own = random() % 20 == 0 ? 0 : 1;
        pages[page] = others | own << ring[static_cast<size_t>(index)];
      }
      const RingPages found = LongestOnOneRing(pages, kAll, kPage, limits);
      EXPECT_EQ(found.pages, MostOnAnyRing(pages, limits));
      if (found.pages == 0) continue;
      EXPECT_TRUE(std::is_sorted(found.ring.begin(), found.ring.end()));
      EXPECT_GE(PagesOn(found.ring, pages, limits), found.pages);
    }
  }
}

}  // namespace
}  // namespace annulus
