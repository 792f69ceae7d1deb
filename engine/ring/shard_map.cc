#include "engine/ring/shard_map.h"

#include <algorithm>

namespace annulus {

namespace {

// Whether some row's block chose the block, for some head.
std::vector<bool> ChosenBlocks(const BlockPattern& pattern, std::span<const int32_t> positions) {
  std::vector<bool> chosen(positions.back() / pattern.block_tokens + 1, false);
  int32_t last = -1;
  for (const int32_t position : positions) {
    const int32_t block = position / pattern.block_tokens;
    if (block == last) continue;
    last = block;
    for (int group = 0; group < pattern.shape.head_groups; ++group) {
      for (const int32_t key : pattern.keys(group, block)) chosen[key] = true;
    }
  }
  return chosen;
}

}  // namespace

int RingItem::index_of(int rank) const {
  const auto found = std::find(ring.begin(), ring.end(), rank);
  return found == ring.end() ? -1 : static_cast<int>(found - ring.begin());
}

int RingItem::home_index() const {
  for (int i = 0; i < degree(); ++i) {
    if (!positions[i].empty()) return i;
  }
  return index;
}

int64_t RingItem::served_offset(int runner, int n) const {
  int64_t offset = state_offset;
  for (int i = 0; i < runner; ++i) {
    if (i != index) offset += states * static_cast<int64_t>(positions[i].size());
  }
  return offset + n * static_cast<int64_t>(positions[runner].size());
}

std::vector<ShardPage> VisiblePages(std::span<const PageEntry> entries, int32_t rank,
                                    std::span<const int32_t> positions, int32_t end, int32_t window,
                                    int32_t page_tokens, const BlockPattern* pattern) {
  std::vector<ShardPage> visible;
  if (positions.empty()) return visible;
  const std::vector<bool> chosen =
      pattern == nullptr ? std::vector<bool>() : ChosenBlocks(*pattern, positions);
  for (const PageEntry& entry : entries) {
    const int32_t first = entry.first_position;
    if (entry.rank != rank || first >= end || first > positions.back()) continue;
    if (pattern != nullptr && !chosen[first / pattern->block_tokens]) continue;
    const int32_t tokens = std::min(page_tokens, end - first);
    if (window > 0) {
      // Rows in [first, first + tokens + window - 1) see some token of the page.
      const auto row = std::lower_bound(positions.begin(), positions.end(), first);
      if (int64_t{*row} >= int64_t{first} + tokens + window - 1) continue;
    }
    visible.push_back({entry.page, first, tokens});
  }
  return visible;
}

std::vector<ShardPage> ChosenPages(const BlockPattern& pattern, std::span<const int32_t> positions,
                                   std::span<const ShardPage> pages) {
  std::vector<ShardPage> visible;
  if (positions.empty()) return visible;
  const std::vector<bool> chosen = ChosenBlocks(pattern, positions);
  for (const ShardPage& page : pages) {
    if (chosen[page.first_position / pattern.block_tokens]) visible.push_back(page);
  }
  return visible;
}

PageLists MakePageLists(const BlockPattern& pattern, std::span<const int32_t> positions,
                        std::span<const ShardPage> pages) {
  PageLists lists;
  lists.full = false;
  lists.head_groups = pattern.shape.head_groups;
  std::vector<int32_t> blocks;  // of the rows, each once
  for (size_t row = 0; row < positions.size(); ++row) {
    const int32_t block = positions[row] / pattern.block_tokens;
    if (!blocks.empty() && blocks.back() == block) continue;
    blocks.push_back(block);
    lists.query_block_rows.push_back(static_cast<int32_t>(row));
  }
  lists.query_block_rows.push_back(static_cast<int32_t>(positions.size()));
  // Pages of key block b: [first_page[b], first_page[b + 1]).
  std::vector<int32_t> first_page(blocks.empty() ? 1 : blocks.back() + 2, 0);
  for (const ShardPage& page : pages) {
    const size_t block = page.first_position / pattern.block_tokens;
    if (block + 1 < first_page.size()) ++first_page[block + 1];
  }
  for (size_t b = 1; b < first_page.size(); ++b) first_page[b] += first_page[b - 1];
  lists.offsets.push_back(0);
  for (int group = 0; group < pattern.shape.head_groups; ++group) {
    for (const int32_t block : blocks) {
      for (const int32_t key : pattern.keys(group, block)) {
        for (int32_t page = first_page[key]; page < first_page[key + 1]; ++page) {
          lists.pages.push_back(page);
        }
      }
      lists.offsets.push_back(static_cast<int32_t>(lists.pages.size()));
    }
  }
  return lists;
}

ItemShards BuildItemShards(const RingItem& item, std::span<const PageEntry> entries, int32_t window,
                           int32_t page_tokens, int shards_of_tree) {
  const BlockPattern* const pattern = window > 0 ? nullptr : item.pattern.get();
  const int degree = item.degree();
  ItemShards shards;
  shards.held_by.resize(degree);
  shards.seen_by.resize(degree);
  shards.held_lists.resize(degree);
  shards.seen_lists.resize(degree);
  for (int i = 0; i < degree; ++i) {
    const std::span<const int32_t> own = item.positions[item.index];
    const std::span<const int32_t> theirs = item.positions[i];
    shards.held_by[i] =
        VisiblePages(entries, item.ring[i], own, item.end, window, page_tokens, pattern);
    shards.seen_by[i] = VisiblePages(entries, item.ring[item.index], theirs, item.end, window,
                                     page_tokens, pattern);
    if (pattern == nullptr || !item.branches.empty()) continue;
    shards.held_lists[i] = MakePageLists(*pattern, own, shards.held_by[i]);
    shards.seen_lists[i] = MakePageLists(*pattern, theirs, shards.seen_by[i]);
  }
  const auto end =
      std::partition_point(entries.begin(), entries.end(),
                           [&](const PageEntry& entry) { return entry.first_position < item.end; });
  shards.subtrees = SubtreesOf({entries.begin(), end}, item.ring, page_tokens, shards_of_tree);
  return shards;
}

std::vector<Subtree> SubtreesSeen(const RingItem& item, const ItemShards& shards) {
  std::vector<Subtree> seen;
  for (int s = 0; s < item.steps(); ++s) {
    const int holder = RingItem::Visits(item.index, s);
    if (holder >= item.degree() || shards.held_by[holder].empty()) continue;
    seen.insert(seen.end(), shards.subtrees[holder].begin(), shards.subtrees[holder].end());
  }
  return seen;
}

}  // namespace annulus
