#include "engine/sparse/block_pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

namespace annulus {
namespace {

AttentionPolicy Parse(const std::string& text) { return ParsePolicy(text).value(); }

std::vector<int32_t> Keys(const AttentionPolicy& policy, int head_group, int32_t i) {
  const BlockPattern pattern = BuildBlockPattern(policy, PatternShape{head_group + 1, i, 1});
  const auto keys = pattern.keys(head_group, i);
  return {keys.begin(), keys.end()};
}

// All blocks j <= i that the definition names.
std::vector<int32_t> Where(int32_t i, const std::function<bool(int32_t j)>& chosen) {
  std::vector<int32_t> blocks;
  for (int32_t j = 0; j <= i; ++j) {
    if (chosen(j)) blocks.push_back(j);
  }
  return blocks;
}

constexpr char kContentFree[][64] = {
    "dense",
    "window:sinks=100,window=300,block=16",
    "window:sinks=0,window=1",
    "dilated_blocks:rates=1/2/5",
    "strided:stride=3,local=2",
    "strided:stride=1,local=0",
    "global_local:global=3,window=200",
    "random:global=2,window=130,random=5,seed=9",
    "hierarchical:near=3,fan=2",
    "hierarchical:near=2,fan=4,levels=2",
};

TEST(BlockPatternTest, ListsAreCausalSortedAndHoldTheDiagonal) {
  for (const char* text : kContentFree) {
    const BlockPattern pattern = BuildBlockPattern(Parse(text), PatternShape{3, 0, 150});
    for (int group = 0; group < 3; ++group) {
      for (int32_t i = 0; i < 150; ++i) {
        const auto keys = pattern.keys(group, i);
        ASSERT_FALSE(keys.empty()) << text;
        EXPECT_EQ(keys.back(), i) << text;
        EXPECT_GE(keys.front(), 0) << text;
        EXPECT_TRUE(std::adjacent_find(keys.begin(), keys.end(), std::greater_equal<>()) ==
                    keys.end())
            << text << " block " << i;
      }
    }
  }
}

TEST(BlockPatternTest, ChunksGiveTheListsOfTheWhole) {
  for (const char* text : kContentFree) {
    const AttentionPolicy policy = Parse(text);
    const BlockPattern whole = BuildBlockPattern(policy, PatternShape{2, 0, 90});
    for (const auto& [first, blocks] : {std::pair{0, 1}, {1, 7}, {8, 82}, {89, 1}, {90, 0}}) {
      const BlockPattern part = BuildBlockPattern(policy, PatternShape{2, first, blocks});
      for (int group = 0; group < 2; ++group) {
        for (int32_t i = first; i < first + blocks; ++i) {
          EXPECT_TRUE(std::ranges::equal(part.keys(group, i), whole.keys(group, i)))
              << text << " block " << i;
        }
      }
    }
  }
}

TEST(BlockPatternTest, WindowHoldsEveryBlockThatARowSees) {
  for (const int32_t window : {1, 2, 15, 16, 17, 100}) {
    for (const int32_t sinks : {0, 1, 16, 17}) {
      AttentionPolicy policy = Parse("window:block=16");
      policy.window = window;
      policy.sinks = sinks;
      for (const int32_t i : {0, 1, 2, 9, 40}) {
        std::set<int32_t> seen;
        for (int64_t row = i * 16; row < (i + 1) * 16; ++row) {
          for (int64_t key = 0; key <= row; ++key) {
            if (key < sinks || key > row - window) seen.insert(static_cast<int32_t>(key / 16));
          }
        }
        EXPECT_EQ(Keys(policy, 0, i), std::vector<int32_t>(seen.begin(), seen.end()))
            << "window " << window << " sinks " << sinks << " block " << i;
      }
    }
  }
}

TEST(BlockPatternTest, DefinitionsHold) {
  for (const int32_t i : {0, 1, 5, 16, 77, 200}) {
    for (int group = 0; group < 4; ++group) {
      const int32_t rate = std::vector{1, 2, 5}[group % 3];
      EXPECT_EQ(Keys(Parse("dilated_blocks:rates=1/2/5"), group, i),
                Where(i, [&](int32_t j) { return (i - j) % rate == 0; }));
    }
    EXPECT_EQ(Keys(Parse("strided:stride=3,local=2"), 0, i),
              Where(i, [&](int32_t j) { return i - j <= 2 || (i - j) % 3 == 0; }));
    EXPECT_EQ(Keys(Parse("global_local:global=3,window=129"), 0, i),
              Where(i, [&](int32_t j) { return j < 3 || i - j <= 2; }));
    EXPECT_EQ(Keys(Parse("dense"), 0, i), Where(i, [](int32_t) { return true; }));
  }
}

TEST(BlockPatternTest, RandomDrawsAsManyAsThereAreAndDiffersByHeadAndBlock) {
  const AttentionPolicy policy = Parse("random:global=2,window=1,random=5,seed=9");
  for (const int32_t i : {0, 1, 2, 4, 6, 7, 300}) {
    EXPECT_EQ(Keys(policy, 0, i).size(), static_cast<size_t>(std::min(i + 1, 2 + 1 + 5))) << i;
  }
  EXPECT_EQ(Keys(policy, 0, 300), Keys(policy, 0, 300));
  EXPECT_NE(Keys(policy, 0, 300), Keys(policy, 1, 300));
  std::vector<int64_t> drawn(300);
  for (int32_t seed = 0; seed < 2000; ++seed) {
    AttentionPolicy seeded = policy;
    seeded.seed = seed;
    for (const int32_t j : Keys(seeded, 0, 300)) {
      if (j < 300) ++drawn[j];
    }
  }
  // 2,000 draws of 5 from 298 blocks: 33.6 each, standard deviation 5.7.
  for (int32_t j = 2; j < 300; ++j) {
    EXPECT_GT(drawn[j], 5) << j;
    EXPECT_LT(drawn[j], 70) << j;
  }
}

TEST(BlockPatternTest, HierarchicalThinsOutWithDistance) {
  // near 2, fan 4: 3 near blocks, then 2 groups of 4, then groups of 16 on multiples of 16.
  EXPECT_EQ(Keys(Parse("hierarchical:near=2,fan=4,levels=2"), 0, 63),
            (std::vector<int32_t>{0, 16, 32, 48, 56, 60, 61, 62, 63}));
  // Without a last level the list grows with the logarithm of the distance.
  const AttentionPolicy open = Parse("hierarchical:near=4,fan=2");
  EXPECT_LE(Keys(open, 0, 1 << 14).size(), 4u * 14 + 1);
  EXPECT_EQ(Keys(open, 0, 1 << 14).front(), 0);
}

TEST(BlockPatternTest, PairsAreCounted) {
  const BlockPattern all = BuildBlockPattern(Parse("dense"), PatternShape{2, 0, 9});
  EXPECT_DOUBLE_EQ(CountPairs(all, 0, 550).density(), 1);
  const AttentionPolicy policy = Parse("dilated_blocks:block=16,rates=1/2/5");
  for (const auto& [begin, end] : {std::pair{0, 103}, {37, 38}, {16, 48}, {33, 103}, {0, 1}}) {
    const PatternShape shape = ShapeFor(policy, begin, end, 3);
    EXPECT_EQ(shape.head_groups, 3);
    const BlockPattern pattern = BuildBlockPattern(policy, shape);
    double chosen = 0;
    double causal = 0;
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t key = 0; key <= row; ++key) {
        ++causal;
        for (int group = 0; group < 3; ++group) {
          const auto keys = pattern.keys(group, static_cast<int32_t>(row / 16));
          chosen += std::ranges::binary_search(keys, static_cast<int32_t>(key / 16)) ? 1.0 / 3 : 0;
        }
      }
    }
    const PairCount pairs = CountPairs(pattern, begin, end);
    EXPECT_NEAR(pairs.chosen, chosen, 1e-6) << begin;
    EXPECT_DOUBLE_EQ(pairs.causal, causal) << begin;
  }
}

TEST(BlockPatternTest, AMillionTokensTakeMemoryByChosenBlocks) {
  const BlockPattern pattern =
      BuildBlockPattern(Parse("window:sinks=64,window=4096"), PatternShape{1, 0, 15'625});
  EXPECT_LT(pattern.bytes(), 15'625u * (4 * 67 + 8) + 64);
}

}  // namespace
}  // namespace annulus
