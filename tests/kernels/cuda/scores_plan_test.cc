// How scores of blocks are cut into tiles.
#include "kernels/cuda/tuning/scores_plan.h"

#include <set>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

namespace annulus::cuda {
namespace {

// `tokens` positions in pages of 64, some of which are not there.
std::vector<KvPageView> Pages(int32_t tokens, const std::set<int32_t>& absent = {}) {
  std::vector<KvPageView> pages;
  for (int32_t p = 0; p * 64 < tokens; ++p) {
    if (!absent.contains(p)) pages.push_back({nullptr, p * 64, std::min(64, tokens - p * 64)});
  }
  return pages;
}

std::vector<int32_t> From(int32_t first, int32_t count) {
  std::vector<int32_t> positions;
  for (int32_t i = 0; i < count; ++i) positions.push_back(first + i);
  return positions;
}

BlockScoresParams Params(const BlockScoresItem& item, int32_t stride, int32_t block_tokens) {
  BlockScoresParams params;
  params.shape = {.page_tokens = 64, .kv_heads = 2, .k_dim = 128, .v_dim = 128};
  params.heads = 8;
  params.stride = stride;
  params.block_tokens = block_tokens;
  params.items = {&item, 1};
  return params;
}

TEST(ScoresPlanTest, GroupsKnowWhichSlotsTheirRowsMeet) {
  const std::vector<int32_t> positions = {17, 18, 31, 32, 33};
  const std::vector<RowGroup> groups = RowGroups(positions, 16);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(std::tie(groups[0].first, groups[0].count, groups[0].tile), std::tuple(0, 3, 1));
  EXPECT_EQ(std::tie(groups[1].first, groups[1].count, groups[1].tile), std::tuple(3, 2, 2));
  // Position 17 is row 1 of tile 1, whose distances are even: it meets slot 16 - 2 - 1.
  EXPECT_EQ(groups[0].slots, 1u << 13 | 1u << 12 | 1u << 15);
  EXPECT_EQ(groups[1].slots, 1u << 15 | 1u << 14);
}

TEST(ScoresPlanTest, BlocksHavePowersOfTwoOfColumnsOrTilesOfTheirOwn) {
  BlockScoresItem item;
  const std::tuple<int32_t, int32_t, int> cases[] = {{16, 64, 4},   {16, 128, 8},  {8, 192, 32},
                                                     {1, 64, 64},   {1, 128, 128}, {1, 192, 256},
                                                     {8, 4096, 512}};
  for (const auto& [stride, block, columns] : cases) {
    EXPECT_EQ(PlanTensorScores(Params(item, stride, block), 128).block_columns, columns)
        << stride << " " << block;
  }
}

TEST(ScoresPlanTest, DepthIsWholeStepsAndTwoAtLeast) {
  BlockScoresItem item;
  EXPECT_EQ(PlanTensorScores(Params(item, 16, 64), 128).depth, 2048);
  EXPECT_EQ(PlanTensorScores(Params(item, 1, 64), 80).depth, 96);
  EXPECT_EQ(PlanTensorScores(Params(item, 1, 64), 16).depth, 64);
}

// Each row tile meets each block once, and row tiles of the same keys follow each other.
TEST(ScoresPlanTest, TilesCoverAllRowsAndBlocks) {
  for (const int32_t stride : {1, 8, 16}) {
    const std::vector<KvPageView> pages = Pages(9000, {0, 7, 8, 40});
    const std::vector<int32_t> positions = From(5000, stride == 1 ? 45 : 700);
    BlockScoresItem item;
    item.pages = pages;
    item.positions = positions;
    const BlockScoresParams params = Params(item, stride, 128);
    const TensorScoresPlan plan = PlanTensorScores(params, 128);
    const int64_t rows = CountRowGroups(positions, stride) * 4;
    const int64_t row_tiles = (rows + plan.tile_rows - 1) / plan.tile_rows;
    ASSERT_GT(row_tiles, 1);
    EXPECT_EQ(static_cast<int64_t>(plan.row_tiles.size()), row_tiles);
    EXPECT_EQ(plan.packed_tiles, 2 * row_tiles);
    const auto blocks = static_cast<int32_t>(CountBlocks(pages, 128));
    ASSERT_EQ(plan.block_pages[0].size(), static_cast<size_t>(blocks) + 1);
    std::set<std::pair<int32_t, int32_t>> met;
    for (size_t t = 0; t < plan.tiles.size(); ++t) {
      const ScoresTile& tile = plan.tiles[t];
      EXPECT_EQ(tile.row_tile, static_cast<int32_t>(t % row_tiles));
      EXPECT_LE(tile.block_begin, tile.block_seen);
      EXPECT_LE(tile.block_seen, tile.block_end);
      for (int32_t b = tile.block_begin; b < tile.block_end; ++b) {
        EXPECT_TRUE(met.emplace(tile.row_tile, b).second);
        // Blocks are seen whose first key is not behind the tile's last row group.
        const int64_t last = std::min(rows, (int64_t{tile.row_tile} + 1) * plan.tile_rows) - 1;
        const KvPageView& first = pages[plan.block_pages[0][b]];
        const bool seen = first.first_position / stride <= plan.groups[0][last / 4].tile;
        EXPECT_EQ(b < tile.block_seen, seen) << stride << " " << b;
      }
    }
    EXPECT_EQ(static_cast<int64_t>(met.size()), row_tiles * blocks);
  }
}

TEST(ScoresPlanTest, SummariesOfABlockHaveTheirSharedMemory) {
  DeviceInfo device;
  device.shared_bytes = size_t{227} << 10;
  EXPECT_EQ(SummaryRun(128, 4, device), 32);
  EXPECT_EQ(SummaryRun(256, 1, device), 16);
  device.shared_bytes = size_t{99} << 10;
  EXPECT_EQ(SummaryRun(128, 16, device), 16);
  EXPECT_EQ(SummaryRun(256, 4, device), 8);
  EXPECT_EQ(SummaryRun(256, 16, device), 16);  // a page is not taken apart
  EXPECT_EQ(SummaryRun(1 << 16, 1, device), 1);
}

}  // namespace
}  // namespace annulus::cuda
