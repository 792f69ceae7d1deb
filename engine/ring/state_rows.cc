// How many states the layers of a step need, and where each item's are.
#include <algorithm>

#include "engine/ring/ring_attention.h"

namespace annulus {

void RingAttention::Note(std::span<const ItemShards> shards, std::span<RingItem> items) {
  for (size_t i = 0; i < items.size(); ++i) {
    RingItem& item = items[i];
    item.states = std::max(item.states, static_cast<int>(shards[i].subtrees[item.index].size()));
    if (item.own_rows() == 0 || item.degree() == 1) continue;
    StateMerger merger(SubtreesSeen(item, shards[i]));
    for (int s = 0; s < item.steps(); ++s) {
      const int holder = RingItem::Visits(item.index, s);
      if (holder >= item.degree() || shards[i].held_by[holder].empty()) continue;
      for (const Subtree& subtree : shards[i].subtrees[holder]) merger.Take(subtree);
      merger.Settle([](int, int) {});
    }
    item.kept_slots = std::max(item.kept_slots, merger.slots());
  }
}

StateRows RingAttention::Reserve(std::span<RingItem> items) {
  StateRows rows;
  for (RingItem& item : items) {
    item.kept_offset = rows.kept;
    rows.kept += (item.kept_slots - 1) * item.own_rows();
    item.state_offset = rows.served;
    if (item.mode != RingMode::kPassQ) continue;
    for (int i = 0; i < item.degree(); ++i) {
      if (i == item.index) continue;
      rows.served += item.states * static_cast<int64_t>(item.positions[i].size());
    }
  }
  return rows;
}

}  // namespace annulus
