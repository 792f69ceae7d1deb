#ifndef ANNULUS_KERNELS_CUDA_TUNING_INVARIANT_PLAN_H_
#define ANNULUS_KERNELS_CUDA_TUNING_INVARIANT_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/sm80/shard_merge.h"
#include "kernels/cuda/tuning/attention_plan.h"
#include "kernels/cuda/tuning/page_runs.h"
#include "kernels/ops/attention.h"

// The plan of attention for tables that are row_invariant.

namespace annulus::cuda {

// How the kernel of these tables attends; the same for any rows and pages of a model.
struct InvariantShape {
  int rows = 0;        // of a unit at most
  int tile_pages = 1;  // see RunsOf
};

// Divides the rows of every item and kv head into units, and the pages that they see into runs: one
// unit for each. A row that sees pages of several runs, or whose item merges, gets a part of the
// workspace for each run, and a merge in the tree. Whatever other rows, items and pages the op has,
// a row's keys are divided in the same way, so it has the same bits. Units are all in `prefill`,
// and their pages index `pages` of the item's PageRuns. Rounds count `shard_merges`.
//
// Once the parts of a round have `most_partial_rows` rows, another round begins; only if a single
// unit has more parts than that does a round have more rows. Pure: depends only on its arguments.
struct InvariantPlan {
  AttentionPlan attention;
  std::vector<ShardMerge> shard_merges;
  std::vector<uint8_t> leaves;  // of their parts
  std::vector<PageRuns> runs;   // [items]
};
InvariantPlan PlanInvariantAttention(const AttentionParams& params, const InvariantShape& shape,
                                     int64_t most_partial_rows);

// The rows of a round's parts that fit the workspace which is meant for them: many times what the
// device attends at a time.
inline constexpr size_t kPartialBytes = size_t{128} << 20;
int64_t MostRoundRows(int v_dim);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_TUNING_INVARIANT_PLAN_H_
