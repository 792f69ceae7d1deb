#include "engine/ring/shard_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace annulus {
namespace {

struct Layout {
  int degree = 1;
  int page_tokens = 16;
  int32_t begin = 0;
  int32_t end = 0;
};

std::vector<PageEntry> Striped(const Layout& layout) {
  std::vector<PageEntry> entries;
  for (int32_t first = 0; first < layout.end; first += layout.page_tokens) {
    const int32_t page = first / layout.page_tokens;
    entries.push_back({page % layout.degree, page / layout.degree, first});
  }
  return entries;
}

RingItem MakeItem(const Layout& layout, int index, const AttentionPolicy& policy, int head_groups) {
  RingItem item;
  item.index = index;
  item.begin = layout.begin;
  item.end = layout.end;
  item.positions.resize(layout.degree);
  for (int rank = 0; rank < layout.degree; ++rank) item.ring.push_back(rank);
  for (int32_t row = layout.begin; row < layout.end; ++row) {
    item.positions[row / layout.page_tokens % layout.degree].push_back(row);
  }
  const int32_t first = layout.begin / policy.block;
  const int32_t blocks = (layout.end - 1) / policy.block + 1 - first;
  item.pattern = std::make_shared<const BlockPattern>(
      BuildBlockPattern(policy, PatternShape{head_groups, first, blocks}));
  return item;
}

// Whether row `row` of `lists` attends page index `page`.
bool Attends(const PageLists& lists, int group, int32_t row, int32_t page) {
  const auto after =
      std::upper_bound(lists.query_block_rows.begin(), lists.query_block_rows.end(), row);
  const auto block = after - lists.query_block_rows.begin() - 1;
  const auto blocks = static_cast<int64_t>(lists.query_block_rows.size()) - 1;
  const auto list = group * blocks + block;
  const auto first = lists.pages.begin() + lists.offsets[list];
  const auto last = lists.pages.begin() + lists.offsets[list + 1];
  EXPECT_TRUE(std::is_sorted(first, last));
  return std::binary_search(first, last, page);
}

// Own rows on every rank against the pages that every rank holds: lists and pages together must
// give exactly the chosen pairs.
void CheckLayout(const Layout& layout, const AttentionPolicy& policy, int head_groups) {
  SCOPED_TRACE(::testing::Message()
               << PolicyText(policy) << ", ring of " << layout.degree << ", page "
               << layout.page_tokens << ", rows [" << layout.begin << ", " << layout.end << ")");
  const std::vector<PageEntry> entries = Striped(layout);
  for (int index = 0; index < layout.degree; ++index) {
    const RingItem item = MakeItem(layout, index, policy, head_groups);
    const ItemShards shards = BuildItemShards(item, entries, 0, layout.page_tokens, 8);
    const std::vector<int32_t>& rows = item.positions[index];
    for (int holder = 0; holder < layout.degree; ++holder) {
      const std::vector<ShardPage>& held = shards.held_by[holder];
      // Both sides of an exchange list the same pages.
      const ItemShards theirs = BuildItemShards(MakeItem(layout, holder, policy, head_groups),
                                                entries, 0, layout.page_tokens, 8);
      ASSERT_EQ(held.size(), theirs.seen_by[index].size());
      EXPECT_EQ(shards.held_lists[holder].pages, theirs.seen_lists[index].pages);
      if (rows.empty()) continue;
      std::vector<bool> used(held.size(), false);
      for (const PageEntry& entry : entries) {
        if (entry.rank != holder) continue;
        const auto place = std::find_if(held.begin(), held.end(), [&](const ShardPage& page) {
          return page.first_position == entry.first_position;
        });
        for (size_t r = 0; r < rows.size(); ++r) {
          if (entry.first_position > rows[r]) continue;
          for (int group = 0; group < head_groups; ++group) {
            const auto keys = item.pattern->keys(group, rows[r] / policy.block);
            const bool expected =
                std::ranges::binary_search(keys, entry.first_position / policy.block);
            const auto page = static_cast<int32_t>(place - held.begin());
            const bool listed = place != held.end() && Attends(shards.held_lists[holder], group,
                                                               static_cast<int32_t>(r), page);
            ASSERT_EQ(listed, expected)
                << "row " << rows[r] << " page at " << entry.first_position << " group " << group;
            if (listed) used[page] = true;
          }
        }
      }
      // What travels is what somebody chose.
      EXPECT_TRUE(std::ranges::all_of(used, [](bool u) { return u; })) << "holder " << holder;
    }
  }
}

TEST(ShardMapTest, ListsGiveExactlyTheChosenPairs) {
  const char* const policies[] = {"window:sinks=20,window=50", "dilated_blocks:rates=1/2/3",
                                  "strided:stride=3,local=1", "random:window=20,random=2",
                                  "hierarchical:near=2"};
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    Layout layout;
    layout.degree = pick(1, 4);
    layout.page_tokens = 16 * pick(1, 2);
    layout.end = pick(1, 500);
    layout.begin = pick(0, layout.end - 1);
    AttentionPolicy policy = ParsePolicy(policies[pick(0, 4)]).value();
    policy.block = layout.page_tokens * pick(1, 3);
    CheckLayout(layout, policy, pick(1, 3));
  }
}

TEST(ShardMapTest, AWindowOfTheModelIsNoPolicy) {
  const Layout layout{2, 16, 0, 200};
  const RingItem item =
      MakeItem(layout, 0, ParsePolicy("window:window=1,sinks=0,block=16").value(), 1);
  const ItemShards shards = BuildItemShards(item, Striped(layout), 64, 16, 8);
  RingItem plain = item;
  plain.pattern = nullptr;
  const ItemShards expected = BuildItemShards(plain, Striped(layout), 64, 16, 8);
  EXPECT_EQ(shards.held_by[1].size(), expected.held_by[1].size());
  EXPECT_TRUE(shards.held_lists[1].full);
}

}  // namespace
}  // namespace annulus
