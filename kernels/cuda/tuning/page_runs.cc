#include "kernels/cuda/tuning/page_runs.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/ops/shards.h"

namespace annulus::cuda {
namespace {

// Builds the runs of one list after the other.
class RunBuilder {
 public:
  RunBuilder(const AttentionParams& params, const AttentionItem& item, int tile_pages)
      : item_(item),
        page_tokens_(params.shape.page_tokens),
        shards_(params.shards),
        span_(int64_t{params.shards} * kAttentionSpan),
        tile_pages_(tile_pages) {
    for (int page = 0; page < shards_; ++page) leaf_of_[page] = LeafOfPage(page, shards_);
  }

  // `chosen`: ascending indices of pages; null for all of them.
  void AddList(const int32_t* chosen, int64_t count) {
    const auto index = [&](int64_t i) {
      return chosen != nullptr ? chosen[i] : static_cast<int32_t>(i);
    };
    std::array<int64_t, kMostVirtualShards> next{};
    for (int64_t i = 0; i < count; ++i) ++next[LeafOf(index(i))];
    int64_t end = 0;
    for (int leaf = 0; leaf < shards_; ++leaf) {
      const int64_t pages = next[leaf];
      next[leaf] = end;
      end += pages;
    }
    sorted_.resize(count);
    for (int64_t i = 0; i < count; ++i) sorted_[next[LeafOf(index(i))]++] = index(i);
    // next[leaf] is now the end of that leaf's part.
    int64_t begin = 0;
    for (int leaf = 0; leaf < shards_; ++leaf) {
      if (Attends(item_, leaf)) AddLeaf(leaf, begin, next[leaf]);
      begin = next[leaf];
    }
    runs_.list_ends.push_back(static_cast<int32_t>(runs_.runs.size()));
  }

  PageRuns Take() { return std::move(runs_); }

 private:
  int64_t FirstOf(int32_t index) const { return item_.pages[index].first_position; }
  int LeafOf(int32_t index) const {
    return leaf_of_[FirstOf(index) / page_tokens_ & (shards_ - 1)];
  }

  // sorted_[begin, end) are the pages of one leaf.
  void AddLeaf(int leaf, int64_t begin, int64_t end) {
    int64_t span = -1;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = FirstOf(sorted_[i]);
      const bool begins = first / span_ != span;
      if (begins) {
        span = first / span_;
        runs_.runs.push_back({leaf, Size(), Size()});
      }
      if (tile_pages_ > 1) AddAbsent(first, begins);
      Add(sorted_[i], first);
      runs_.runs.back().end = Size();
    }
  }

  // Missing pages before the page at `first`: in its group, and in the previous group of the run.
  void AddAbsent(int64_t first, bool begins) {
    const int64_t step = int64_t{page_tokens_} * shards_;  // from a page of a shard to the next one
    const int64_t number = first / step;
    const int64_t group = number / tile_pages_ * tile_pages_;
    int64_t next = group;
    if (!begins) {
      next = runs_.first_positions.back() / step + 1;
      for (; next < group && next % tile_pages_ != 0; ++next) {
        Add(kAbsentPage, next * step + first % step);
      }
      next = std::max(next, group);
    }
    for (; next < number; ++next) Add(kAbsentPage, next * step + first % step);
  }

  int32_t Size() const { return static_cast<int32_t>(runs_.pages.size()); }
  void Add(int32_t page, int64_t first_position) {
    runs_.pages.push_back(page);
    runs_.first_positions.push_back(static_cast<int32_t>(first_position));
  }

  const AttentionItem& item_;
  const int page_tokens_;
  const int shards_;
  const int64_t span_;
  const int tile_pages_;
  std::array<int, kMostVirtualShards> leaf_of_{};  // [page mod shards]
  std::vector<int32_t> sorted_;
  PageRuns runs_;
};

}  // namespace

PageRuns RunsOf(const AttentionParams& params, const AttentionItem& item, int tile_pages) {
  RunBuilder builder(params, item, tile_pages);
  if (item.blocks.full) {
    builder.AddList(nullptr, std::ssize(item.pages));
    return builder.Take();
  }
  for (size_t list = 0; list + 1 < item.blocks.offsets.size(); ++list) {
    const int32_t begin = item.blocks.offsets[list];
    builder.AddList(item.blocks.pages.data() + begin, item.blocks.offsets[list + 1] - begin);
  }
  return builder.Take();
}

VisiblePages VisibleOf(const AttentionParams& params, const PageRuns& runs, const PageRun& run,
                       int64_t lowest, int64_t highest, int tile_pages) {
  const auto first = runs.first_positions.begin();
  VisiblePages seen{run.begin, run.end};
  if (params.window > 0) {
    const int64_t behind = lowest - params.window + 1 - params.shape.page_tokens;
    const auto begin = std::upper_bound(first + run.begin, first + run.end, behind);
    seen.begin += static_cast<int32_t>(begin - first - run.begin) / tile_pages * tile_pages;
  }
  seen.end =
      static_cast<int32_t>(std::upper_bound(first + seen.begin, first + run.end, highest) - first);
  while (seen.end > seen.begin && runs.pages[seen.end - 1] == kAbsentPage) --seen.end;
  return seen;
}

}  // namespace annulus::cuda
