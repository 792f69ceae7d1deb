#ifndef ANNULUS_KERNELS_OPS_BLOCK_MASSES_H_
#define ANNULUS_KERNELS_OPS_BLOCK_MASSES_H_

#include <cstdint>
#include <span>

#include "kernels/base/tensor_view.h"

namespace annulus {

// What blocks of keys are ranked by, from the scores of row groups (block_scores.h): the mean, over
// the row groups of a query block and the query heads of a kv head, of the share of its attention
// that a row group's head gives the block. XAttention (arXiv 2503.16428, section 2.2) sums the same
// shares.
//
// The softmax is over all blocks that a row group sees, and these may lie on several ranks, or be
// scored some at a time where memory is short. So there are two ops: ScoreSums for all blocks, then
// BlockMasses for all blocks again, with the sums of all. A list is a row group and a query head:
// list = row group * heads + head.

// sums[list] = log of the sum of exp(score) over the list's blocks; -infinity where it sees none.
// Good to 1e-5, and to what float32 loses in rounding the result. Bytes: scores once.
struct ScoreSumsParams {
  ConstMatrixView scores;  // [lists, blocks]; no NaN, no +infinity
  float* sums = nullptr;   // [lists], written
  bool add = false;        // they hold what other blocks gave, which counts too
};

// masses[run * kv_heads + kv_head][block] = the mean of exp(score - sum) over the row groups
// [ends[run - 1], ends[run]) and the kv head's query heads; lists without a sum (-infinity) count
// as 0. Over all blocks a run's masses add up to 1, or less where lists see nothing. A share
// exp(x) is good to 3e-6 + 2e-7 * |x| of itself, and below exp(-85) it may be 0; sums over lists
// are float32, in their order. Bytes: scores once, 1 / (row groups of a run * heads / kv_heads) of
// it written.
struct BlockMassesParams {
  ConstMatrixView scores;         // [row groups * heads, blocks]; no NaN, no +infinity
  const float* sums = nullptr;    // [row groups * heads], of all blocks: no less than any score
  std::span<const int32_t> ends;  // [runs], ascending, each run with one row group or more
  int heads = 0;                  // multiple of kv_heads
  int kv_heads = 0;
  MatrixView masses;  // [runs * kv_heads, blocks]; must not overlap the scores
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_BLOCK_MASSES_H_
