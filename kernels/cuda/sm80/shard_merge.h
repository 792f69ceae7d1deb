#ifndef ANNULUS_KERNELS_CUDA_SM80_SHARD_MERGE_H_
#define ANNULUS_KERNELS_CUDA_SM80_SHARD_MERGE_H_

#include <cstdint>

#include "kernels/cuda/common/stream_handle.h"
#include "kernels/cuda/sm80/attention.h"

// The launch of the merge of attention's parts in the tree of shards. All pointers are device
// addresses. Returns 0 or CUDA's error number.

namespace annulus::cuda {

// A unit whose parts are the states of leaves: part p's is leaves[first_leaf + p] of the arguments,
// and those ascend.
struct ShardMerge {
  AttentionMerge unit;
  int32_t first_leaf;
};

// Merges first the parts of each leaf in ascending order, then leaves in their tree
// (kernels/ops/shards.h), then, for items that merge, the result into the item's state: all with
// the operation of merge_state. One block per merge and row.
struct ShardMergeArguments {
  const ShardMerge* merges;
  const uint8_t* leaves;
  AttentionMergeArguments attention;  // `merges` is not used
};
int LaunchShardMerge(StreamHandle stream, int64_t merges, int largest_rows,
                     const ShardMergeArguments& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_SHARD_MERGE_H_
