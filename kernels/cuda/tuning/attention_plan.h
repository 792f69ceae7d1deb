#ifndef ANNULUS_KERNELS_CUDA_TUNING_ATTENTION_PLAN_H_
#define ANNULUS_KERNELS_CUDA_TUNING_ATTENTION_PLAN_H_

#include <cstdint>
#include <vector>

#include "kernels/cuda/sm80/attention.h"
#include "kernels/ops/attention.h"

namespace annulus::cuda {

// What the blocks of one attention op compute, per shape of block: units in the order in which they
// start, the longest first.
struct AttentionPlan {
  std::vector<AttentionUnit> prefill;
  std::vector<AttentionUnit> decode;
  std::vector<AttentionMerge> merges;
  int64_t partial_rows = 0;  // of the workspace
  int largest_merge = 0;     // rows
};

// Cuts the rows of every item and kv head into units, of up to `prefill_rows` where there are more
// than those of the decode shape (PathOfPrefill), leaves out pages that no row of a unit sees,
// and, where the units are fewer than twice the multiprocessors, shares the pages of each out among
// parts of at least kPartTokens tokens, whose states are merged afterwards (flash decoding, Dao et
// al. 2023). Every row belongs to exactly one unit or merge, those without pages too. Pure: depends
// on nothing but its arguments.
inline constexpr int kPartTokens = 256;
AttentionPlan PlanAttention(const AttentionParams& params, int multiprocessors, int prefill_rows);

// The most partial rows of any plan for items with `rows` rows together (a position and a query
// head each), in units of up to `unit_rows`. Pure.
int64_t MostPartialRows(int64_t rows, int unit_rows, int multiprocessors);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_TUNING_ATTENTION_PLAN_H_
