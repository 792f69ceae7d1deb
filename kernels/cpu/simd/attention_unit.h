#ifndef ANNULUS_KERNELS_CPU_SIMD_ATTENTION_UNIT_H_
#define ANNULUS_KERNELS_CPU_SIMD_ATTENTION_UNIT_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "kernels/cpu/simd/page_order.h"
#include "kernels/ops/attention.h"

// The units of work that the attention driver (simd/attention.cc) gives to threads, one at a time.

namespace annulus::cpu {

// One query block of one kv head, and the keys that its rows can see.
struct Unit {
  const AttentionItem* item;
  int kv_head;
  int64_t row;    // the first row
  int positions;  // number of rows, each with all query heads of the group
  PageList pages;
  int64_t first_key;  // positions [first_key, end_key)
  int64_t end_key;
};

// The pages of one leaf within one span of positions, as a range of indices into the unit's list.
// Their keys share one running softmax.
struct Piece {
  int leaf;
  int64_t begin;
  int64_t end;
};

// All units of a call: the rows of every item that has no branches.
class AttentionUnits {
 public:
  // A unit has at most `block_positions` positions. The items and their arrays must outlive this
  // object.
  AttentionUnits(const AttentionParams& params, int block_positions)
      : kv_heads_(params.shape.kv_heads),
        window_(params.window),
        block_positions_(block_positions),
        order_(params.shape, params.shards, CountLists(params), CountListedPages(params)) {
    for (const AttentionItem& item : params.items) {
      if (item.branches.empty()) AddItem(item);
    }
    // Later causal blocks see more keys: start the longest first.
    std::reverse(units_.begin(), units_.end());
  }

  int64_t size() const { return std::ssize(units_); }
  const Unit& operator[](int64_t i) const { return units_[i]; }
  std::span<const Unit> all() const { return units_; }
  const PageOrder& order() const { return order_; }

 private:
  static int64_t CountLists(const AttentionParams& params) {
    int64_t lists = 0;
    for (const AttentionItem& item : params.items) {
      lists += item.blocks.full ? 1 : static_cast<int64_t>(item.blocks.offsets.size()) - 1;
    }
    return lists;
  }
  static int64_t CountListedPages(const AttentionParams& params) {
    int64_t pages = 0;
    for (const AttentionItem& item : params.items) {
      pages += item.blocks.full ? std::ssize(item.pages) : std::ssize(item.blocks.pages);
    }
    return pages;
  }

  void AddItem(const AttentionItem& item) {
    const int64_t rows = item.positions.size();
    if (item.blocks.full) {
      const PageList pages = order_.Sorted(item.pages, nullptr, std::ssize(item.pages));
      for (int h = 0; h < kv_heads_; ++h) AddRows(item, h, 0, rows, pages);
      return;
    }
    const BlockLists& lists = item.blocks;
    const int64_t blocks = lists.query_block_rows.size() - 1;
    const int heads_per_group = kv_heads_ / lists.head_groups;
    for (int64_t b = 0; b < blocks; ++b) {
      PageList pages;
      for (int h = 0; h < kv_heads_; ++h) {
        if (h % heads_per_group == 0) {
          const int64_t list = h / heads_per_group * blocks + b;
          const int32_t begin = lists.offsets[list];
          pages = order_.Sorted(item.pages, lists.pages.data() + begin,
                                lists.offsets[list + 1] - begin);
        }
        AddRows(item, h, lists.query_block_rows[b], lists.query_block_rows[b + 1], pages);
      }
    }
  }

  // Rows that see no key become units too, because their state must be written.
  void AddRows(const AttentionItem& item, int kv_head, int64_t begin, int64_t end,
               const PageList& pages) {
    for (int64_t row = begin; row < end; row += block_positions_) {
      Unit unit;
      unit.item = &item;
      unit.kv_head = kv_head;
      unit.row = row;
      unit.positions = static_cast<int>(std::min<int64_t>(block_positions_, end - row));
      unit.pages = pages;
      const std::span<const int32_t> positions = item.positions;
      unit.first_key =
          window_ > 0 ? std::max<int64_t>(0, int64_t{positions[row]} - window_ + 1) : 0;
      unit.end_key = int64_t{positions[row + unit.positions - 1]} + 1;
      units_.push_back(unit);
    }
  }

  const int kv_heads_;
  const int32_t window_;
  const int block_positions_;
  PageOrder order_;
  std::vector<Unit> units_;
};

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_SIMD_ATTENTION_UNIT_H_
