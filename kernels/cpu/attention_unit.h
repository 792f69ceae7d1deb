#ifndef ANNULUS_KERNELS_CPU_ATTENTION_UNIT_H_
#define ANNULUS_KERNELS_CPU_ATTENTION_UNIT_H_

#include <cstdint>
#include <span>

#include "kernels/ops/attention.h"

// What the driver of attention (simd_attention.cc) hands to one thread at a time.

namespace annulus::cpu {

// The pages that one query block may attend, before the mask: all of an item's, or a list.
struct PageList {
  std::span<const KvPageView> pages;
  const int32_t* indices = nullptr;  // null: all of `pages`
  int64_t count = 0;

  bool chosen() const { return indices != nullptr; }
  const KvPageView& operator[](int64_t i) const { return pages[indices ? indices[i] : i]; }

  // The first page in [begin, count) with a key at `position` or later.
  int64_t Find(int64_t begin, int64_t position) const {
    int64_t end = count;
    while (begin < end) {
      const int64_t middle = begin + (end - begin) / 2;
      const KvPageView& page = (*this)[middle];
      if (int64_t{page.first_position} + page.tokens > position) {
        end = middle;
      } else {
        begin = middle + 1;
      }
    }
    return begin;
  }
};

// One query block of one kv head, and the keys its rows can see.
struct Unit {
  const AttentionItem* item;
  int kv_head;
  int64_t row;    // first of `positions` rows
  int positions;  // rows of the item, each with all query heads of the group
  PageList pages;
  int64_t first_key;  // positions
  int64_t end_key;
  int64_t first_span;
  int64_t end_span;
};

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ATTENTION_UNIT_H_
