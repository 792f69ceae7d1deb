// Which pages a restore reads, and which restores may be under way together.

#include "engine/pages/restores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/support/simulated_ranks.h"

namespace annulus::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr int32_t kTokens = 16;

PageMarks Marks(std::vector<int32_t> windows) {
  return {HashOf("model"), SimulatedLimits(1, kTokens, std::move(windows))};
}

// The first pages of a text of so many tokens, each the number of its page but for `other`.
SavedBeginning Beginning(const PageMarks& marks, int pages, int32_t other = -1,
                         const TenantId& tenant = {}) {
  SavedBeginning beginning;
  beginning.tokens = pages * kTokens;
  PageMark mark = marks.Root(tenant, nullptr, 0);
  for (int32_t page = 0; page < pages; ++page) {
    PageMarks::Advance(std::vector<int32_t>(kTokens, page == other ? 1000 : page), mark);
    beginning.marks.push_back(mark);
  }
  return beginning;
}

TEST(PageMarksTest, AChainNamesAllThatAPageDependsOn) {
  const PageMarks marks = Marks({0});
  const AttentionAssignment policy = *ParseAssignment("window");
  const TenantId other = *TenantId::FromName("other");
  std::vector<PageMark> roots = {marks.Root({}, nullptr, 0), marks.Root({}, &policy, 0),
                                 marks.Root({}, nullptr, 4096), marks.Root(other, nullptr, 0),
                                 marks.RootUnder(HashOf("another model"), {}, nullptr, 0)};
  for (size_t i = 0; i < roots.size(); ++i) {
    PageMarks::Advance(std::vector<int32_t>(kTokens, 5), roots[i]);
    EXPECT_EQ(roots[i].first_position, 0);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(roots[i].chain, roots[j].chain) << i << " " << j;
  }
  PageMark next = roots[0];
  PageMarks::Advance(std::vector<int32_t>(kTokens, 5), next);
  EXPECT_EQ(next.parent, roots[0].chain);
  EXPECT_EQ(next.first_position, kTokens);
  EXPECT_NE(next.chain, roots[0].chain) << "though the tokens are equal";
}

TEST(PageMarksTest, ARestoreReadsFullGroupsPagesAndTheLastWindows) {
  const PageMarks marks = Marks({0, 20});
  std::vector<std::pair<int, int32_t>> read;
  const auto each = [&](int group, int32_t first) { read.emplace_back(group, first); };
  marks.ForEachRead(16, 64, each);
  // The row at 64 sees positions from 45 on.
  EXPECT_THAT(read, ElementsAre(Pair(0, 16), Pair(0, 32), Pair(0, 48), Pair(1, 32), Pair(1, 48)));
  read.clear();
  marks.ForEachWindowPage(16, each);
  EXPECT_THAT(read, ElementsAre(Pair(1, 0)));
  EXPECT_TRUE(marks.has_windows());
  const PageMarks full = Marks({0});
  EXPECT_FALSE(full.has_windows());
  read.clear();
  full.ForEachWindowPage(64, each);
  EXPECT_THAT(read, IsEmpty());
}

class RestoresTest : public ::testing::Test {
 protected:
  // Another restore under way, of so many pages, of which so many have not come.
  PageOwner Add(int64_t pages, int64_t left = 0, SavedBeginning beginning = {}) {
    const PageOwner owner{PageOwner::Kind::kTier, next_++};
    Restore& restore = restores_.all()[owner];
    restore.all = pages;
    restore.left = left;
    restore.left_on[0] = left;
    restore.beginning = std::move(beginning);
    return owner;
  }

  const PageMarks marks_ = Marks({0});
  Restores restores_{marks_};
  uint64_t next_ = 1;
};

TEST_F(RestoresTest, TwoMayBeUnderWayAndMoreOfFarFewerPages) {
  EXPECT_TRUE(restores_.MayBegin(1000));
  Add(100);
  EXPECT_TRUE(restores_.MayBegin(1000));
  Add(40);
  EXPECT_FALSE(restores_.MayBegin(1000));
  EXPECT_FALSE(restores_.MayBegin(20)) << "half of the shorter one";
  EXPECT_TRUE(restores_.MayBegin(19));
  for (int i = 0; i < 4; ++i) Add(100);
  EXPECT_FALSE(restores_.MayBegin(1)) << "six are the most";
}

TEST_F(RestoresTest, OnlyShorterBatchesAreReadFirst) {
  Add(10, 7);
  Add(30, 20);
  EXPECT_EQ(restores_.PagesAhead(9)[0], 0);
  EXPECT_EQ(restores_.PagesAhead(10)[0], 7);
  EXPECT_EQ(restores_.PagesAhead(30)[0], 27);
}

TEST_F(RestoresTest, ARequestWaitsForARestoreThatBringsHalfOfItsOwn) {
  const PageOwner ten = Add(10, 10, Beginning(marks_, 10));
  const TenantId us;
  EXPECT_EQ(restores_.Like(us, Beginning(marks_, 10), 0), ten);
  EXPECT_EQ(restores_.Like(us, Beginning(marks_, 20), 0), ten);
  EXPECT_EQ(restores_.Like(us, Beginning(marks_, 21), 0), std::nullopt) << "less than half";
  EXPECT_EQ(restores_.Like(us, Beginning(marks_, 20), 2 * kTokens), std::nullopt)
      << "memory has two, so eight of 18 come";
  EXPECT_EQ(restores_.Like(us, Beginning(marks_, 10, /*other=*/4), 0), std::nullopt)
      << "four pages in common";
  EXPECT_EQ(restores_.Like(us, Beginning(marks_, 10, /*other=*/5), 0), ten);
  EXPECT_EQ(restores_.Like(*TenantId::FromName("them"), Beginning(marks_, 10), 0), std::nullopt);
}

// With windows a restore comes back whole, for its own end alone.
TEST_F(RestoresTest, OfWindowsNoPartIsShared) {
  const PageMarks marks = Marks({0, 20});
  Restores restores(marks);
  const PageOwner owner{PageOwner::Kind::kTier, 1};
  restores.all()[owner].beginning = Beginning(marks, 10);
  EXPECT_EQ(restores.Like({}, Beginning(marks, 12), 0), owner);
  EXPECT_EQ(restores.Like({}, Beginning(marks, 9), 0), std::nullopt);
}

TEST(RestoreTest, SaysWhereItsTokensCameFrom) {
  Restore restore;
  restore.from = 2 * kTokens;
  restore.came_from = {0, 1, 1, 0};
  EXPECT_THAT(restore.CameBack(6 * kTokens, kTokens), ElementsAre(2 * kTokens, 2 * kTokens));
  EXPECT_THAT(restore.CameBack(3 * kTokens, kTokens), ElementsAre(kTokens, 0));
  EXPECT_THAT(restore.CameBack(2 * kTokens, kTokens), ElementsAre(0, 0));
}

}  // namespace
}  // namespace annulus::testing
