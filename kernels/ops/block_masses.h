#ifndef ANNULUS_KERNELS_OPS_BLOCK_MASSES_H_
#define ANNULUS_KERNELS_OPS_BLOCK_MASSES_H_

#include <cstdint>
#include <span>

#include "kernels/base/tensor_view.h"

namespace annulus {

// Turns the scores of row groups (block_scores.h) into masses, by which sparse policies rank blocks
// of keys. The mass of a block is the share of attention that a row group's head gives to it,
// averaged over the row groups of a query block and the query heads of a kv head. XAttention (arXiv
// 2503.16428, section 2.2) sums the same shares.
//
// A share is a softmax over all blocks that the row group sees. These blocks may lie on several
// ranks, or be scored a part at a time to save memory, so it takes two passes: first ScoreSums over
// all parts, then BlockMasses over all parts with the complete sums. Below, a list is the scores of
// one row group and one query head: list = row group * heads + head.

// sums[list] = log of the sum of exp(score) over the list's blocks; -infinity if the list sees
// none. Absolute error up to 1e-5, plus the rounding of the result to float32. Bytes: scores once.
struct ScoreSumsParams {
  ConstMatrixView scores;  // [lists, blocks]; no NaN, no +infinity
  float* sums = nullptr;   // [lists], written
  bool add = false;        // true: `sums` already covers other blocks; add to it
};

// masses[run * kv_heads + kv_head][block] = mean of exp(score - sum) over the row groups [ends[run
// - 1], ends[run]) and the kv head's query heads. A list whose sum is -infinity counts as 0. A
// run's masses add up to 1 over all blocks, or to less if some lists see nothing. Each share exp(x)
// has a relative error of up to 3e-6 + 2e-7 * |x|; shares below exp(-85) may be 0. Shares are added
// in float32, in the order of the lists. Bytes: reads the scores once; writes 1 / (row groups of a
// run * heads / kv_heads) of their size.
struct BlockMassesParams {
  ConstMatrixView scores;         // [row groups * heads, blocks]; no NaN, no +infinity
  const float* sums = nullptr;    // [row groups * heads], over all blocks: at least every score
  std::span<const int32_t> ends;  // [runs], ascending; a run has at least one row group
  int heads = 0;                  // multiple of kv_heads
  int kv_heads = 0;
  MatrixView masses;  // [runs * kv_heads, blocks]; must not overlap the scores
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_BLOCK_MASSES_H_
