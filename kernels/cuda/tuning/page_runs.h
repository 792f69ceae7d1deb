#ifndef ANNULUS_KERNELS_CUDA_TUNING_PAGE_RUNS_H_
#define ANNULUS_KERNELS_CUDA_TUNING_PAGE_RUNS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops/attention.h"

// The pages of an item in the order in which row-invariant attention sums them ("Order of
// summation" in kernels/ops/attention.h). Pure host code.

namespace annulus::cuda {

// Stands in a run where the pages have a gap.
inline constexpr int32_t kAbsentPage = -1;

// The pages of one leaf in one span, [begin, end) of PageRuns::pages.
struct PageRun {
  int leaf = 0;
  int32_t begin = 0;
  int32_t end = 0;
};

// All pages of an item that has no block lists, or those of each of its lists.
struct PageRuns {
  std::vector<int32_t> pages;            // indices into the item's pages, or kAbsentPage
  std::vector<int32_t> first_positions;  // of each of `pages`, also of those that are absent
  std::vector<PageRun> runs;             // of one list after the other; by leaf, then by span
  std::vector<int32_t> list_ends;        // [lists] one past the list's last run

  std::span<const PageRun> OfList(int64_t list) const {
    const int32_t begin = list == 0 ? 0 : list_ends[list - 1];
    return std::span(runs).subspan(begin, list_ends[list] - begin);
  }
};

// Sorts the item's pages, only those of leaves that it attends. Kernels may attend `tile_pages`
// consecutive pages of a run together. If that is more than 1, each group of so many pages of a
// shard, counted from position 0, takes as many consecutive entries, and a run begins with its
// first group: so the pages that are attended together do not depend on which other pages are
// there.
PageRuns RunsOf(const AttentionParams& params, const AttentionItem& item, int tile_pages);

// The part of a run that rows from position `lowest` to `highest` may see: whole groups of
// `tile_pages` at its beginning, up to the last page that they see. Empty if they see none.
struct VisiblePages {
  int32_t begin = 0;
  int32_t end = 0;
};
VisiblePages VisibleOf(const AttentionParams& params, const PageRuns& runs, const PageRun& run,
                       int64_t lowest, int64_t highest, int tile_pages);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_TUNING_PAGE_RUNS_H_
