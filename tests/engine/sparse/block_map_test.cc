#include "engine/sparse/block_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "engine/sparse/block_pattern.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;

BlockMapSpec Spec(const std::string& policy, int64_t tokens, int heads = 1, int cells = 1024) {
  return {ParsePolicy(policy).value(), tokens, heads, cells};
}

// One character for each cell.
std::vector<std::string> Picture(const BlockMap& map, const BlockMap::Head& head) {
  std::vector<std::string> rows;
  for (int row = 0; row < map.side; ++row) {
    std::string& line = rows.emplace_back();
    for (int column = 0; column < map.side; ++column) {
      const uint8_t cell = head.cells[static_cast<size_t>(row) * map.side + column];
      line += cell == 0 ? '.' : cell == 255 ? '#' : '+';
    }
  }
  return rows;
}

TEST(BlockMapTest, ShowsEveryBlockWhereTheyAreFew) {
  const BlockMap map = DrawBlockMap(Spec("dilated_blocks:rates=1/2", 64 * 6 - 5, 2)).value();
  EXPECT_EQ(map.blocks, 6);
  EXPECT_EQ(map.side, 6);
  ASSERT_EQ(map.heads.size(), 2u);
  EXPECT_EQ(map.heads[1].first_head, 1);
  EXPECT_EQ(map.heads[0].density, 1);
  EXPECT_THAT(Picture(map, map.heads[0]),
              ::testing::ElementsAre("#.....", "##....", "###...", "####..", "#####.", "######"));
  EXPECT_THAT(Picture(map, map.heads[1]),
              ::testing::ElementsAre("#.....", ".#....", "#.#...", ".#.#..", "#.#.#.", ".#.#.#"));
}

TEST(BlockMapTest, HeadsThatChooseAlikeShareAMap) {
  const BlockMap map = DrawBlockMap(Spec("strided", 10'000, 8)).value();
  ASSERT_EQ(map.heads.size(), 1u);
  EXPECT_EQ(map.heads[0].first_head, 0);
  EXPECT_EQ(map.heads[0].head_count, 8);
}

// Cells and densities against lists gathered one block at a time.
TEST(BlockMapTest, CellsAreSharesOfCausalBlocks) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const char* policy : {"dense", "window:window=500", "dilated_blocks:rates=1/3",
                             "strided:stride=5", "global_local:window=200", "random:window=100",
                             "hierarchical:near=3", "window:block=16,window=40"}) {
    const int64_t tokens = std::uniform_int_distribution<int>(1, 20'000)(random);
    const int heads = std::uniform_int_distribution<int>(1, 3)(random);
    const int cells = std::uniform_int_distribution<int>(1, 50)(random);
    SCOPED_TRACE(::testing::Message() << policy << ", " << tokens << " tokens, " << cells);
    const BlockMapSpec spec = Spec(policy, tokens, heads, cells);
    const BlockMap map = DrawBlockMap(spec).value();
    const BlockPattern pattern = BuildBlockPattern(
        spec.policy, ShapeFor(spec.policy, 0, static_cast<int32_t>(tokens), heads));
    ASSERT_EQ(map.blocks, (tokens + spec.policy.block - 1) / spec.policy.block);
    ASSERT_EQ(map.side, std::min(cells, map.blocks));
    double mean = 0;
    for (size_t group = 0; group < map.heads.size(); ++group) {
      std::vector<double> chosen(static_cast<size_t>(map.side) * map.side), causal(chosen);
      for (int64_t i = 0; i < map.blocks; ++i) {
        const auto keys = pattern.keys(static_cast<int>(group), static_cast<int32_t>(i));
        const std::set<int32_t> in(keys.begin(), keys.end());
        for (int64_t j = 0; j <= i; ++j) {
          const size_t cell =
              static_cast<size_t>(i * map.side / map.blocks * map.side + j * map.side / map.blocks);
          chosen[cell] += in.count(static_cast<int32_t>(j));
          ++causal[cell];
        }
      }
      for (size_t cell = 0; cell < chosen.size(); ++cell) {
        const double share = causal[cell] == 0 ? 0 : chosen[cell] / causal[cell];
        const uint8_t drawn = map.heads[group].cells[cell];
        EXPECT_NEAR(drawn, share * 255, 1) << group << " " << cell;
        EXPECT_EQ(drawn == 0, share == 0) << group << " " << cell;
      }
      mean += map.heads[group].density / static_cast<double>(map.heads.size());
    }
    EXPECT_NEAR(mean, CountPairs(pattern, 0, tokens).density(), 1e-12);
  }
}

// A segment of two blocks keeps every pair, one of four blocks a quarter.
TEST(BlockMapTest, DilatedBranchesAreShares) {
  const BlockMap map =
      DrawBlockMap(Spec("dilated:block=16,segments=32/64,rates=1/2", 16 * 6, 4)).value();
  ASSERT_EQ(map.heads.size(), 1u);
  EXPECT_EQ(map.heads[0].head_count, 4);
  EXPECT_THAT(Picture(map, map.heads[0]),
              ::testing::ElementsAre("#.....", "##....", "++#...", "++##..", "....#.", "....##"));
  EXPECT_EQ(map.heads[0].cells[2 * 6], 64);
  EXPECT_GT(map.heads[0].density, 0.3);
  EXPECT_EQ(DrawBlockMap(Spec("dilated:segments=auto", 64 * 1000)).value().blocks, 1000);
}

TEST(BlockMapTest, RefusesWhatCannotBeDrawn) {
  const auto error = [](const BlockMapSpec& spec) {
    return std::string(DrawBlockMap(spec).status().message());
  };
  EXPECT_THAT(error(Spec("adaptive", 1000)), HasSubstr("depends on the content"));
  EXPECT_THAT(error(Spec("top_pages", 1000)), HasSubstr("depends on the content"));
  EXPECT_THAT(error(Spec("dense", 0)), HasSubstr("tokens 0 is not allowed: 1 to 1073741824"));
  EXPECT_THAT(error(Spec("dense", 1, 0)), HasSubstr("heads 0 is not allowed: 1 to 1024"));
  EXPECT_THAT(error(Spec("dense", 1, 1, 1025)), HasSubstr("cells 1025 is not allowed: 1 to 1024"));
  EXPECT_THAT(error(Spec("dense", 1 << 22)), HasSubstr("at most 2965760;"));
  EXPECT_TRUE(DrawBlockMap(Spec("hierarchical", 2'965'760)).ok());
}

}  // namespace
}  // namespace annulus
