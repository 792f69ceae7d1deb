#include "engine/ring/subtrees.h"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "engine/scheduler/placement.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

std::vector<int32_t> Ring(int degree) {
  std::vector<int32_t> ring;
  for (int rank = 0; rank < degree; ++rank) ring.push_back(10 + rank);
  return ring;
}

std::vector<PageEntry> Placed(int pages, int degree, int shards) {
  std::vector<PageEntry> entries;
  for (int page = 0; page < pages; ++page) {
    entries.push_back({10 + PlaceOnRing(page * 16, 16, degree, shards), page, page * 16});
  }
  return entries;
}

TEST(LeafOfPage, PairsTheHighestBitFirst) {
  std::vector<int> leaves;
  for (int page = 0; page < 8; ++page) leaves.push_back(LeafOfPage(page + 64, 8));
  EXPECT_EQ(leaves, (std::vector<int>{0, 4, 2, 6, 1, 5, 3, 7}));
  EXPECT_EQ(LeafOfPage(5, 1), 0);
}

TEST(SubtreesOf, ARingThatDividesTheShardsHasOneOnEachRank) {
  for (const int degree : {1, 2, 4, 8}) {
    for (const int pages : {8, 9, 40}) {
      const auto cut = SubtreesOf(Placed(pages, degree, 8), Ring(degree), 16, 8);
      for (int index = 0; index < degree; ++index) {
        ASSERT_EQ(cut[index].size(), 1u) << degree << " ranks, index " << index;
        EXPECT_EQ(cut[index][0], (Subtree{index * 8 / degree, 8 / degree}));
      }
    }
  }
}

// Few pages are in few shards: what is empty belongs to whoever is near.
TEST(SubtreesOf, EmptyShardsDoNotDivide) {
  const auto cut = SubtreesOf(Placed(1, 4, 8), Ring(4), 16, 8);
  EXPECT_EQ(cut[0], (std::vector<Subtree>{{0, 8}}));
  EXPECT_TRUE(cut[1].empty());
}

TEST(SubtreesOf, AShardOnTwoRanksGivesEachTheWholeTree) {
  std::vector<PageEntry> entries = Placed(16, 2, 8);
  entries[8].rank = 11;  // of shard 0, which lies on rank 10
  for (const std::vector<Subtree>& each : SubtreesOf(entries, Ring(2), 16, 8)) {
    EXPECT_EQ(each, (std::vector<Subtree>{{0, 8}}));
  }
}

// The tree as it is merged, as text: a leaf is its number, an inner node its two sides in brackets,
// the smaller first.
std::string Node(const std::string& a, const std::string& b) {
  return "(" + std::min(a, b) + " " + std::max(a, b) + ")";
}
std::string Canonical(const std::set<int>& leaves, int first, int count) {
  if (count == 1)
    return leaves.contains(first) ? std::string(1, static_cast<char>('A' + first)) : "";
  const std::string left = Canonical(leaves, first, count / 2);
  const std::string right = Canonical(leaves, first + count / 2, count / 2);
  return left.empty() ? right : right.empty() ? left : Node(left, right);
}

// Whatever the placement, the order of arrival, and what some rows do not see: the canonical tree.
TEST(StateMerger, MergesTheCanonicalTreeInAnyOrder) {
  for (uint32_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const int shards = 8 << random() % 2;
    const int degree = 1 + static_cast<int>(random() % 8);
    std::vector<PageEntry> entries;
    std::set<int> leaves;
    for (int page = 0; page < shards; ++page) {
      if (random() % 4 == 0) continue;
      entries.push_back({10 + static_cast<int32_t>(random() % degree), page, page * 16});
      leaves.insert(LeafOfPage(page, shards));
    }
    std::vector<Subtree> all;
    for (const auto& each : SubtreesOf(entries, Ring(degree), 16, shards)) {
      all.insert(all.end(), each.begin(), each.end());
    }
    std::shuffle(all.begin(), all.end(), random);
    StateMerger merger(all);
    std::vector<std::string> slots(64);
    const auto merge = [&](int into, int from) { slots[into] = Node(slots[into], slots[from]); };
    for (const Subtree& subtree : all) {
      const std::string state = Canonical(leaves, subtree.first, subtree.leaves);
      const StateMerger::Place place = merger.Take(subtree);
      slots[place.slot] = place.merges ? Node(slots[place.slot], state) : state;
      if (random() % 2 == 0) merger.Settle(merge);
    }
    merger.Settle(merge);
    ASSERT_EQ(slots[0], Canonical(leaves, 0, shards));
  }
}

// States are reserved for all that a layer may see; policies see some of it.
TEST(StateMerger, SomeNeedNoMoreSlotsThanAll) {
  const auto slots = [](int index, const std::vector<std::vector<Subtree>>& cut,
                        const std::vector<bool>& seen) {
    std::vector<Subtree> expected;
    for (size_t i = 0; i < cut.size(); ++i) {
      if (seen[i]) expected.insert(expected.end(), cut[i].begin(), cut[i].end());
    }
    StateMerger merger(expected);
    const int degree = static_cast<int>(cut.size());
    for (int s = 0; s < static_cast<int>(std::bit_ceil(static_cast<uint32_t>(degree))); ++s) {
      if ((index ^ s) >= degree || !seen[index ^ s]) continue;
      for (const Subtree& subtree : cut[index ^ s]) merger.Take(subtree);
      merger.Settle([](int, int) {});
    }
    return merger.slots();
  };
  for (uint32_t seed = 1; seed <= 5000; ++seed) {
    std::mt19937 random(seed);
    const int shards = 8 << random() % 2;
    const int degree = 1 + static_cast<int>(random() % shards);
    std::vector<PageEntry> entries;
    for (int page = 0; page < shards; ++page) {
      if (random() % 8 == 0) continue;
      const auto rank = RingIndexOfLeaf(LeafOfPage(page, shards), degree, shards);
      entries.push_back({10 + rank, page, page * 16});
    }
    const auto cut = SubtreesOf(entries, Ring(degree), 16, shards);
    std::vector<bool> all(degree);
    for (int i = 0; i < degree; ++i) all[i] = !cut[i].empty() && random() % 8 != 0;
    std::vector<bool> some = all;
    for (int i = 0; i < degree; ++i) some[i] = some[i] && random() % 2 == 0;
    const int index = static_cast<int>(random() % degree);
    ASSERT_LE(slots(index, cut, some), std::max(1, slots(index, cut, all))) << "seed " << seed;
  }
}

// In the order of visits few states wait: none where two ranks are, log2(k) at most where k is a
// power of two.
TEST(MostStates, AreFewForRingsThatDivideTheShards) {
  EXPECT_EQ(MostStates(1, 8).kept_slots, 1);
  EXPECT_EQ(MostStates(2, 8).kept_slots, 1);
  EXPECT_EQ(MostStates(2, 8).states, 1);
  EXPECT_EQ(MostStates(3, 8).states, 2);
  EXPECT_LE(MostStates(4, 8).kept_slots, 2);
  EXPECT_EQ(MostStates(4, 8).states, 1);
  EXPECT_LE(MostStates(8, 8).kept_slots, 3);
  EXPECT_EQ(MostStates(8, 8).states, 1);
  for (int ranks = 1; ranks <= 64; ++ranks) {
    EXPECT_LE(MostStates(ranks, ShardsFor(ranks)).kept_slots, 16) << ranks;
  }
}

}  // namespace
}  // namespace annulus
