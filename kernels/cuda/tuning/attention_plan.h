#ifndef ANNULUS_KERNELS_CUDA_TUNING_ATTENTION_PLAN_H_
#define ANNULUS_KERNELS_CUDA_TUNING_ATTENTION_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/sm80/attention.h"
#include "kernels/ops/attention.h"

namespace annulus::cuda {

// Units and merges that are launched together: so many more of the plan's. Rounds follow each other
// and use the same workspace.
struct AttentionRound {
  int64_t prefill = 0;
  int64_t decode = 0;
  int64_t merges = 0;  // without those of decode units, whose launch does them (but of float32)
};

// The units of one attention op, by shape of block, in the order in which they start: the longest
// of a round first or, with `section_bytes`, the longest of a section (unit_order.h).
struct AttentionPlan {
  std::vector<AttentionUnit> prefill;
  std::vector<AttentionUnit> decode;
  std::vector<AttentionMerge> merges;  // first those that a launch of their own does
  std::vector<AttentionRound> rounds;
  int64_t partial_rows = 0;  // rows of workspace for parts of units
  int largest_merge = 0;     // in rows
};

// Divides the rows of every item and kv head into units, of up to `prefill_rows` rows if there are
// more than a decode unit takes (PathOfPrefill). Leaves out pages that no row of a unit sees. If
// there are fewer units than blocks that the device holds at once, divides each unit's pages among
// parts of at least kPartTokens tokens, whose states are merged afterwards (flash decoding, Dao et
// al. 2023). A multiprocessor holds kPrefillBlocks blocks, or `decode_blocks` of the decode shape
// (at most kMostBlocks). Every row belongs to exactly one unit or merge, even a row without pages.
// `section_bytes` orders units of many rows: see SortUnits. Pure: depends only on its arguments.
inline constexpr int kPartTokens = 256;
inline constexpr int kPrefillBlocks = 2;
inline constexpr int kMostBlocks = 2;
AttentionPlan PlanAttention(const AttentionParams& params, int multiprocessors, int prefill_rows,
                            int decode_blocks, int64_t section_bytes = 0);

// The most partial rows of any plan for items with `rows` rows in total (a row is a position and a
// query head), in units of up to `unit_rows`. Pure.
int64_t MostPartialRows(int64_t rows, int unit_rows, int multiprocessors);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_TUNING_ATTENTION_PLAN_H_
