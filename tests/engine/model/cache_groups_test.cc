#include "engine/model/cache_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace annulus {
namespace {

using ::testing::ElementsAre;

ModelConfig WithWindows(const std::vector<int32_t>& windows) {
  ModelConfig config;
  for (const int32_t window : windows) config.layers.push_back({window});
  SetAttention(config, {.heads = 4, .kv_heads = 2, .k_dim = 8, .v_dim = 8});
  return config;
}

// Layers with a window keep `wide` times as much of a token as those without.
ModelConfig WithWideWindows(const std::vector<int32_t>& windows, int32_t wide) {
  ModelConfig config = WithWindows(windows);
  for (LayerConfig& layer : config.layers) {
    if (layer.window > 0) layer.attention.kv_heads *= wide;
  }
  return config;
}

size_t CountGroups(const std::vector<CacheGroup>& groups, size_t layers, int32_t window) {
  return static_cast<size_t>(std::count_if(groups.begin(), groups.end(), [&](const auto& group) {
    return group.layers.size() == layers && group.window == window;
  }));
}

TEST(CacheGroupsTest, OneGroupWhereAllLayersAreAlike) {
  const auto groups = CacheGroups(WithWindows({0, 0, 0}));
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].kind, CacheGroup::Kind::kFull);
  EXPECT_EQ(groups[0].window, 0);
  EXPECT_THAT(groups[0].layers, ElementsAre(0, 1, 2));
}

TEST(CacheGroupsTest, GroupsHoldEquallyManyLayers) {
  const auto groups = CacheGroups(WithWindows({9, 9, 0, 9, 9, 0}));
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_THAT(groups[0].layers, ElementsAre(0, 1));
  EXPECT_EQ(groups[0].kind, CacheGroup::Kind::kWindow);
  EXPECT_EQ(groups[0].window, 9);
  EXPECT_THAT(groups[1].layers, ElementsAre(2, 5));
  EXPECT_EQ(groups[1].kind, CacheGroup::Kind::kFull);
  EXPECT_THAT(groups[2].layers, ElementsAre(3, 4));
}

TEST(CacheGroupsTest, CoprimeCountsGiveOneLayerEach) {
  const auto groups = CacheGroups(WithWindows({5, 5, 5, 0, 0, 7}));
  ASSERT_EQ(groups.size(), 6u);
  for (size_t i = 0; i < groups.size(); ++i) {
    EXPECT_THAT(groups[i].layers, ElementsAre(static_cast<int32_t>(i)));
  }
  EXPECT_EQ(groups[5].window, 7);
}

// Pages of 2 layers without a window or of 1 with one are all full; those of 4 would leave a
// window's partly empty.
TEST(CacheGroupsTest, PagesOfLayersWithoutAWindowAreFullWhereShapesDiffer) {
  const auto groups = CacheGroups(WithWideWindows({9, 0, 9, 0, 9, 0, 9, 0, 9}, 2));
  ASSERT_EQ(groups.size(), 7u);
  EXPECT_THAT(groups[1].layers, ElementsAre(1, 3));
  EXPECT_EQ(CountGroups(groups, 2, 0), 2u);
  EXPECT_EQ(CountGroups(groups, 1, 9), 5u);
}

// Five of one size do not fill pages of two of another: the others' pages stay partly empty.
TEST(CacheGroupsTest, PagesOfWindowsMayBePartlyEmpty) {
  std::vector<int32_t> windows;
  for (int i = 0; i < 5; ++i) windows.insert(windows.end(), {9, 9, 9, 9, 9, 0});
  const auto groups = CacheGroups(WithWideWindows(windows, 2));
  EXPECT_EQ(CountGroups(groups, 5, 0), 1u);
  EXPECT_EQ(CountGroups(groups, 2, 9), 12u);
  EXPECT_EQ(CountGroups(groups, 1, 9), 1u);
  EXPECT_EQ(groups.size(), 14u);
}

TEST(CacheGroupsTest, LayersOfOneWindowAndTwoShapesAreInDifferentGroups) {
  ModelConfig config = WithWindows({9, 9, 9, 9});
  config.layers[1].attention.v_dim = config.layers[3].attention.v_dim = 4;
  const auto groups = CacheGroups(config);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_THAT(groups[0].layers, ElementsAre(0, 2));
  EXPECT_THAT(groups[1].layers, ElementsAre(1, 3));
}

}  // namespace
}  // namespace annulus
