#include "engine/ring/shard_map.h"

#include <algorithm>

namespace annulus {

std::vector<ShardPage> VisiblePages(std::span<const PageEntry> entries, int32_t rank,
                                    std::span<const int32_t> positions, int32_t end, int32_t window,
                                    int32_t page_tokens) {
  std::vector<ShardPage> visible;
  if (positions.empty()) return visible;
  for (const PageEntry& entry : entries) {
    const int32_t first = entry.first_position;
    if (entry.rank != rank || first >= end || first > positions.back()) continue;
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

ItemShards BuildItemShards(const RingItem& item, std::span<const PageEntry> entries, int32_t window,
                           int32_t page_tokens) {
  ItemShards shards;
  shards.held_by.resize(item.degree());
  shards.seen_by.resize(item.degree());
  for (int i = 0; i < item.degree(); ++i) {
    shards.held_by[i] = VisiblePages(entries, item.ring[i], item.positions[item.index], item.end,
                                     window, page_tokens);
    shards.seen_by[i] = VisiblePages(entries, item.ring[item.index], item.positions[i], item.end,
                                     window, page_tokens);
  }
  return shards;
}

}  // namespace annulus
