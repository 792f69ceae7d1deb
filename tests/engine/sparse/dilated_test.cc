#include "engine/sparse/dilated.h"

#include <gtest/gtest.h>

namespace annulus {
namespace {

AttentionPolicy ParseDilated(const char* text) { return ParsePolicy(text).value(); }

TEST(DilatedTest, OtherPoliciesHaveNoBranches) {
  EXPECT_TRUE(DilatedBranches(ParseDilated("dilated_blocks")).empty());
  const std::vector<DilatedBranch> branches = DilatedBranches(ParseDilated("dilated"));
  ASSERT_EQ(branches.size(), 3u);
  EXPECT_EQ(branches[2].segment, 8192);
  EXPECT_EQ(branches[2].rate, 4);
}

// A row finds every key of every branch in the blocks of its list.
TEST(DilatedTest, ListsHoldTheLongestSegment) {
  const AttentionPolicy policy = ParseDilated("dilated:block=16,segments=32/96/48,rates=1/4/3");
  const BlockPattern pattern = BuildBlockPattern(policy, ShapeFor(policy, 100, 250, 2));
  EXPECT_EQ(pattern.shape.head_groups, 1);
  EXPECT_EQ(pattern.keys(0, 6).size(), 1u);   // [96, 112) begins a segment
  EXPECT_EQ(pattern.keys(0, 11).front(), 6);  // and [176, 192) ends it
  EXPECT_EQ(pattern.keys(0, 11).size(), 6u);
}

TEST(DilatedTest, PairsAreCountedWithMultiplicity) {
  const std::vector<DilatedBranch> branches =
      DilatedBranches(ParseDilated("dilated:block=16,segments=32/96/48/240,rates=1/4/3/5"));
  for (const int heads : {1, 3, 4, 7}) {
    for (const auto& [begin, end] : {std::pair{0, 103}, {37, 38}, {16, 48}, {93, 260}}) {
      double chosen = 0;
      double causal = 0;
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t key = 0; key <= row; ++key) {
          ++causal;
          for (int head = 0; head < heads; ++head) {
            for (const DilatedBranch& branch : branches) {
              chosen += branch.Keeps(head, row, key) ? 1.0 / heads : 0;
            }
          }
        }
      }
      const PairCount pairs = CountDilatedPairs(branches, heads, begin, end);
      EXPECT_NEAR(pairs.chosen, chosen, 1e-6) << begin << " " << heads;
      EXPECT_DOUBLE_EQ(pairs.causal, causal);
    }
  }
}

}  // namespace
}  // namespace annulus
