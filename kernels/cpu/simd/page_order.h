#ifndef ANNULUS_KERNELS_CPU_SIMD_PAGE_ORDER_H_
#define ANNULUS_KERNELS_CPU_SIMD_PAGE_ORDER_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops/attention.h"
#include "kernels/ops/shards.h"

namespace annulus::cpu {

// The pages that one query block may attend, before the mask: grouped by leaf
// (kernels/ops/shards.h), ascending within each leaf.
struct PageList {
  std::span<const KvPageView> pages;
  const int32_t* indices = nullptr;  // into `pages`, by leaf
  const int32_t* ends = nullptr;     // [shards], the end of each leaf's part of `indices`
  const int32_t* chosen = nullptr;   // the same indices in ascending order; null: all of `pages`
  int64_t count = 0;

  const KvPageView& operator[](int64_t i) const { return pages[indices[i]]; }
  int64_t begin_of(int leaf) const { return leaf == 0 ? 0 : ends[leaf - 1]; }
  int64_t end_of(int leaf) const { return ends[leaf]; }

  // The i-th index in ascending order of positions.
  int32_t Ascending(int64_t i) const { return chosen ? chosen[i] : static_cast<int32_t>(i); }
  // The first i, in ascending order, whose page has a key at `position` or later.
  int64_t FindAscending(int64_t position) const {
    int64_t begin = 0;
    for (int64_t end = count; begin < end;) {
      const int64_t middle = begin + (end - begin) / 2;
      const KvPageView& page = pages[Ascending(middle)];
      if (int64_t{page.first_position} + page.tokens > position) {
        end = middle;
      } else {
        begin = middle + 1;
      }
    }
    return begin;
  }

  // The first of [begin, end), within one leaf, whose page has a key at `position` or later.
  int64_t Find(int64_t begin, int64_t end, int64_t position) const {
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

// Sorts lists of pages by leaf and owns the results. Not thread-safe.
class PageOrder {
 public:
  // Allocates room for `lists` calls of Sorted, with `pages` pages in total. Sorted must not be
  // called for more.
  PageOrder(const KvPageShape& shape, int shards, int64_t lists, int64_t pages)
      : page_tokens_(shape.page_tokens), shards_(shards) {
    indices_.resize(pages);
    ends_.resize(lists * shards);
    for (int page = 0; page < shards; ++page) leaf_of_[page] = LeafOfPage(page, shards);
  }

  int LeafOf(const KvPageView& page) const {
    return leaf_of_[page.first_position / page_tokens_ & (shards_ - 1)];
  }

  // Sorts `count` of `pages`. `chosen`: their indices, ascending; null if they are the first
  // `count`. The result points into `pages`, `chosen` and this object, which must outlive it.
  PageList Sorted(std::span<const KvPageView> pages, const int32_t* chosen, int64_t count) {
    const auto index = [&](int64_t i) {
      return chosen != nullptr ? chosen[i] : static_cast<int32_t>(i);
    };
    const auto leaf = [&](int64_t i) { return LeafOf(pages[index(i)]); };
    int32_t* const ends = ends_.data() + used_ends_;
    int32_t* const sorted = indices_.data() + used_indices_;
    used_ends_ += shards_;
    used_indices_ += count;
    std::array<int32_t, kMostVirtualShards> next{};
    for (int64_t i = 0; i < count; ++i) ++next[leaf(i)];
    int32_t end = 0;
    for (int l = 0; l < shards_; ++l) {
      ends[l] = end + next[l];
      next[l] = end;
      end = ends[l];
    }
    for (int64_t i = 0; i < count; ++i) sorted[next[leaf(i)]++] = index(i);
    return {pages, sorted, ends, chosen, count};
  }

 private:
  const int page_tokens_;
  const int shards_;
  std::array<int, kMostVirtualShards> leaf_of_;  // [page mod shards]
  std::vector<int32_t> indices_;
  std::vector<int32_t> ends_;
  int64_t used_indices_ = 0;
  int64_t used_ends_ = 0;
};

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_SIMD_PAGE_ORDER_H_
