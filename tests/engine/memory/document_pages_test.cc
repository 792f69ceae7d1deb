#include "engine/memory/document_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace annulus {
namespace {

using std::chrono::seconds;

TEST(DocumentPages, TagsAreATenantsOwn) {
  const TenantId us = *TenantId::FromName("us");
  EXPECT_EQ(TagOf(us, "a"), TagOf(us, "a"));
  EXPECT_NE(TagOf(us, "a"), TagOf(us, "b"));
  EXPECT_NE(TagOf(us, "a"), TagOf(*TenantId::FromName("them"), "a"));
}

TEST(DocumentPages, KnowsEachPlaceAndTheMostTokens) {
  DocumentPages pages;
  int handles[3];
  pages.Add({{1, 0}, {2, 50}}, &handles[0], 100);
  pages.Add({{1, 20}}, &handles[1], 200);
  EXPECT_THAT(pages.NodesOf(1), ::testing::UnorderedElementsAre(&handles[0], &handles[1]));
  EXPECT_EQ(pages.TokensOf(1), 180);
  EXPECT_EQ(pages.TokensOf(2), 50);
  EXPECT_EQ(pages.TokensOf(3), 0);
  EXPECT_GT(pages.bytes(), 0);
  pages.Remove({{1, 20}}, &handles[1], 200);
  EXPECT_EQ(pages.TokensOf(1), 100);
  pages.Remove({{1, 0}}, &handles[2], 100);  // it was never there
  pages.Remove({{1, 0}, {2, 50}}, &handles[0], 100);
  EXPECT_TRUE(pages.NodesOf(1).empty());
  EXPECT_EQ(pages.bytes(), 0);
}

// The latest prompts are those that a new one is compared with.
TEST(DocumentPages, PlacesStayInOrderWhateverGoes) {
  DocumentPages pages;
  int handles[4];
  for (int& handle : handles) pages.Add({{1, 0}}, &handle, 100);
  pages.Remove({{1, 0}}, &handles[1], 100);
  EXPECT_THAT(pages.NodesOf(1), ::testing::ElementsAre(&handles[0], &handles[2], &handles[3]));
  pages.Remove({{1, 0}}, &handles[0], 100);
  EXPECT_THAT(pages.NodesOf(1), ::testing::ElementsAre(&handles[2], &handles[3]));
}

TEST(DocumentPages, RequestsFromBeforeADeletionAreKnown) {
  DocumentPages pages;
  const SteadyTime start;
  pages.Forget(1, start + seconds(10));
  EXPECT_TRUE(pages.WasForgotten({{2, 0}, {1, 5}}, start + seconds(10)));
  EXPECT_FALSE(pages.WasForgotten({{1, 0}}, start + seconds(11)));
  EXPECT_FALSE(pages.WasForgotten({{2, 0}}, start));
  EXPECT_FALSE(pages.WasForgotten({}, start));
  // What is not remembered any more counts as forgotten.
  for (int i = 0; i < 1024; ++i) pages.Forget(100 + i, start + seconds(20));
  EXPECT_TRUE(pages.WasForgotten({{2, 0}}, start + seconds(10)));
  EXPECT_FALSE(pages.WasForgotten({{2, 0}}, start + seconds(11)));
  EXPECT_FALSE(pages.WasForgotten({}, start));
}

}  // namespace
}  // namespace annulus
