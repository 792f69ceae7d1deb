// Plans of row-invariant attention: the order of pages, how they are divided, and rounds.
#include "kernels/cuda/tuning/invariant_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/tuning/attention_path.h"
#include "kernels/cuda/tuning/page_runs.h"
#include "tests/kernels/cpu/attention_fixture.h"

namespace annulus::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// An op of one item, whose pages have no data.
struct OneItem {
  OneItem(int page_tokens, int shards, const std::vector<int32_t>& numbers) {
    params.shape = {page_tokens, 2, 64, 64, DType::kBF16};
    params.heads = 6;
    params.shards = shards;
    for (const int32_t number : numbers) {
      pages.push_back({nullptr, number * page_tokens, page_tokens});
    }
    item.pages = pages;
    params.items = {&item, 1};
  }
  void Rows(int32_t first, int32_t count) {
    positions = testing::Consecutive(first, count);
    item.positions = positions;
  }

  std::vector<KvPageView> pages;
  std::vector<int32_t> positions;
  AttentionItem item;
  AttentionParams params;
};

std::vector<int32_t> UpTo(int32_t pages) { return testing::Consecutive(0, pages); }

// Shards 0, 2, 1, 3 are the leaves from left to right.
TEST(PageRunsTest, PagesAreSortedByLeafThenByPosition) {
  const OneItem one(16, 4, UpTo(10));
  const PageRuns runs = RunsOf(one.params, one.item, 1);
  EXPECT_THAT(runs.pages, ElementsAre(0, 4, 8, 2, 6, 1, 5, 9, 3, 7));
  ASSERT_EQ(runs.runs.size(), 4u);
  EXPECT_EQ(runs.runs[2].leaf, 2);
  EXPECT_EQ(runs.runs[2].begin, 5);
  EXPECT_EQ(runs.runs[2].end, 8);
}

TEST(PageRunsTest, LeavesOfOthersAreLeftOut) {
  OneItem one(16, 4, UpTo(10));
  one.item.first_leaf = 1;
  one.item.leaves = 2;
  EXPECT_THAT(RunsOf(one.params, one.item, 1).pages, ElementsAre(2, 6, 1, 5, 9));
}

TEST(PageRunsTest, SpansBeginAtTheirPositions) {
  const int32_t pages = 2 * kAttentionSpan / 1024;  // of 2 shards: 2 spans of 8 pages each
  const OneItem one(1024, 2, UpTo(2 * pages));
  const PageRuns runs = RunsOf(one.params, one.item, 1);
  ASSERT_EQ(runs.runs.size(), 4u);
  for (int run = 0; run < 4; ++run) {
    EXPECT_EQ(runs.runs[run].leaf, run / 2);
    EXPECT_EQ(runs.runs[run].end - runs.runs[run].begin, 8);
    EXPECT_EQ(runs.first_positions[runs.runs[run].begin],
              run % 2 * 2 * kAttentionSpan + run / 2 * 1024);
  }
}

TEST(PageRunsTest, EveryListIsSorted) {
  OneItem one(16, 2, UpTo(6));
  const std::vector<int32_t> rows = {0, 1, 2};
  const std::vector<int32_t> offsets = {0, 3, 4};
  const std::vector<int32_t> lists = {0, 1, 4, 5};
  one.item.blocks = {false, 1, rows, offsets, lists};
  const PageRuns runs = RunsOf(one.params, one.item, 1);
  EXPECT_THAT(runs.pages, ElementsAre(0, 4, 1, 5));
  EXPECT_THAT(runs.list_ends, ElementsAre(2, 3));
  EXPECT_EQ(runs.OfList(1)[0].leaf, 1);
}

// With 3 pages to a group, page 7 is the second of the third group.
TEST(PageRunsTest, GapsKeepTheirPlacesInAGroup) {
  const OneItem one(16, 1, {1, 7, 8, 14});
  const PageRuns runs = RunsOf(one.params, one.item, 3);
  EXPECT_THAT(runs.pages, ElementsAre(kAbsentPage, 0, kAbsentPage, kAbsentPage, 1, 2, kAbsentPage,
                                      kAbsentPage, 3));
  EXPECT_THAT(runs.first_positions, ElementsAre(0, 16, 32, 96, 112, 128, 192, 208, 224));
}

TEST(PageRunsTest, WindowsLeaveOutWholeGroups) {
  OneItem one(16, 1, UpTo(20));
  one.params.window = 20;
  const PageRuns runs = RunsOf(one.params, one.item, 4);
  const auto seen = [&](int64_t lowest, int64_t highest) {
    const VisiblePages pages = VisibleOf(one.params, runs, runs.runs[0], lowest, highest, 4);
    return std::pair(pages.begin, pages.end);
  };
  EXPECT_EQ(seen(0, 15), std::pair(0, 1));
  EXPECT_EQ(seen(82, 90), std::pair(0, 6)) << "position 63";
  EXPECT_EQ(seen(83, 90), std::pair(4, 6));
  EXPECT_EQ(seen(319, 319), std::pair(16, 20));
}

// The pages of every row by leaf and span, whatever rows are planned beside it.
TEST(InvariantPlanTest, EveryRowHasTheSamePartsInAnyCompany) {
  OneItem one(64, 8, UpTo(40));
  using Part = std::tuple<int, std::vector<int32_t>>;  // leaf, pages that the row sees
  const auto parts_of = [&](int32_t first, int32_t count, int32_t position) {
    one.Rows(first, count);
    const InvariantPlan plan = PlanInvariantAttention(one.params, {128, 1}, 100000);
    std::vector<Part> parts;
    for (const auto& [merge, first_leaf] : plan.shard_merges) {
      const int64_t row = int64_t{position - first} * 3;
      if (merge.kv_head != 1 || row < merge.row_begin || row >= merge.row_begin + merge.row_count)
        continue;
      for (int p = 0; p < merge.parts; ++p) {
        for (const AttentionUnit& unit : plan.attention.prefill) {
          if (unit.partial != merge.partial_begin + p * merge.row_count) continue;
          std::vector<int32_t> pages;
          for (int32_t i = unit.page_begin; i < unit.page_end; ++i) {
            const int32_t page = plan.runs[0].pages[i];
            if (one.pages[page].first_position <= position) pages.push_back(page);
          }
          if (pages.empty()) continue;
          parts.emplace_back(plan.leaves[first_leaf + p], std::move(pages));
        }
      }
    }
    return parts;
  };
  const std::vector<Part> alone = parts_of(1300, 1, 1300);
  ASSERT_EQ(alone.size(), 8u);
  EXPECT_EQ(std::get<0>(alone[1]), 1);
  EXPECT_THAT(std::get<1>(alone[1]), ElementsAre(4, 12, 20));
  EXPECT_EQ(parts_of(1250, 200, 1300), alone);
  EXPECT_EQ(parts_of(1300, 1000, 1300), alone);
}

TEST(InvariantPlanTest, KeysOfOneShardNeedNoParts) {
  OneItem one(64, 8, UpTo(40));
  one.Rows(0, 64);
  InvariantPlan plan = PlanInvariantAttention(one.params, {128, 1}, 100000);
  EXPECT_EQ(plan.attention.partial_rows, 0);
  EXPECT_THAT(plan.shard_merges, IsEmpty());
  EXPECT_EQ(plan.attention.prefill.size(), 4u);  // 192 rows of each of two heads
  one.item.merges = true;                        // merge_state's bits
  plan = PlanInvariantAttention(one.params, {128, 1}, 100000);
  EXPECT_EQ(plan.attention.partial_rows, 2 * 192);
}

TEST(InvariantPlanTest, RowsWithoutKeysGetTheEmptyStateUnlessTheyMerge) {
  OneItem one(64, 8, {30});
  one.Rows(0, 5);
  InvariantPlan plan = PlanInvariantAttention(one.params, {128, 1}, 100000);
  ASSERT_EQ(plan.attention.prefill.size(), 2u);
  EXPECT_EQ(plan.attention.prefill[0].page_begin, plan.attention.prefill[0].page_end);
  one.item.merges = true;
  EXPECT_THAT(PlanInvariantAttention(one.params, {128, 1}, 100000).attention.prefill, IsEmpty());
}

// Rounds divide the same units, and none has more rows than it may, but for a unit's own parts.
TEST(InvariantPlanTest, RoundsShareTheWorkspace) {
  OneItem one(64, 8, UpTo(40));
  one.Rows(1000, 700);
  const auto key = [](const AttentionUnit& unit) {
    return std::tuple(unit.kv_head, unit.row_begin, unit.row_count, unit.page_begin, unit.page_end);
  };
  const AttentionPlan whole = PlanInvariantAttention(one.params, {128, 1}, 1 << 30).attention;
  EXPECT_EQ(whole.rounds.size(), 1u);
  std::multiset<decltype(key(whole.prefill[0]))> units;
  for (const AttentionUnit& unit : whole.prefill) units.insert(key(unit));
  for (const int64_t most : {1, 3000, 9000}) {
    const AttentionPlan plan = PlanInvariantAttention(one.params, {128, 1}, most).attention;
    EXPECT_GT(plan.rounds.size(), 3u);
    EXPECT_LE(plan.partial_rows, std::max<int64_t>(most, 8 * 128));
    std::multiset<decltype(key(whole.prefill[0]))> own;
    size_t begin = 0;
    for (const AttentionRound& round : plan.rounds) {
      for (int64_t u = 0; u < round.prefill; ++u, ++begin) {
        const AttentionUnit& unit = plan.prefill[begin];
        own.insert(key(unit));
        EXPECT_LE(unit.partial + unit.row_count, plan.partial_rows);
      }
    }
    EXPECT_EQ(begin, plan.prefill.size());
    EXPECT_EQ(own, units);
  }
}

TEST(InvariantPlanTest, TilesOfPagesAreWhole) {
  EXPECT_EQ(TilePages(16, 128), 8);
  EXPECT_EQ(TilePages(48, 128), 8);  // 24 boxes of 16 slots, 8 to a tile
  EXPECT_EQ(TilePages(64, 128), 2);
  EXPECT_EQ(TilePages(64, 256), 1);
  EXPECT_EQ(TilePages(128, 64), 1);
  EXPECT_EQ(TilePages(256, 64), 1);
  EXPECT_EQ(TileBoxes(48, 128), 8);
}

}  // namespace
}  // namespace annulus::cuda
