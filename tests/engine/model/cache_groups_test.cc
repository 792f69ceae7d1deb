#include "engine/model/cache_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace annulus {
namespace {

using ::testing::ElementsAre;

ModelConfig WithWindows(const std::vector<int32_t>& windows) {
  ModelConfig config;
  for (const int32_t window : windows) config.layers.push_back({window});
  return config;
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

}  // namespace
}  // namespace annulus
