#ifndef ANNULUS_KERNELS_CUDA_SM90_FEW_ROWS_CLUSTER_H_
#define ANNULUS_KERNELS_CUDA_SM90_FEW_ROWS_CLUSTER_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/sm80/linear.h"

namespace annulus::cuda {

// Products of at most kFewRows rows by tensor cores, without experts: LaunchFewRowsTensor, bit for
// bit, for compute capability 9.0. On trial: see trial.h.
//
// Of 16 rows, linear_few_rows.cu reads the inputs again for every 32 outputs: 115 MB from the L2
// cache for [16, 4096] by [14336, 4096], beside 31 MB of 4-bit weights. Here a block keeps one part
// of the depth of all inputs in shared memory, rounded, and reads it there: 16 KiB for 4096 of
// depth. Its warps take the block's outputs by turns, each with a ring of its own; they meet only
// when their sums are to be added. 8 blocks, one for each part of the depth, are a cluster with a
// stripe of the outputs. They leave their sums in shared memory, and each adds up an eighth of
// them, part after part, through distributed shared memory. Nothing is written twice, and the order
// of sums is that of linear_weights.h.
//
// The depth and the outputs are spread over all multiprocessors, as Stream-K does it (Osama et al.
// 2023, arXiv 2301.03598), but at the seams of the 8 parts only, so that bits stay. Codes keep
// their order in memory. In that of the operands (Marlin, arXiv 2408.11743; Machete in vLLM) a step
// of 32 outputs would take one load from shared memory instead of 4, of some 90 instructions, and
// every other reader of weights, cuBLASLt among them, would need its own order back. A group's
// scale multiplies sums, as ever: in the weights it would need 11 bits, and give other bits.

// How outputs are spread. A group is 8 * tiles outputs; a cluster has a stripe of neighbouring
// groups, and keeps the sums of `groups` of them at once, a multiple of kStripeWarps.
struct FewRowsStripes {
  int tiles = 0;  // a power of two up to kMostTilesTensor; 0: no such launch
  int clusters = 0;
  int groups = 0;

  bool operator==(const FewRowsStripes&) const = default;
};
inline constexpr int kStripeWarps = 16;  // of a block
struct FewRowsClusterArguments {
  LinearArguments linear;  // weights of any dtype but f32 and f16
  FewRowsStripes stripes;
};
// Returns 0 or CUDA's error number.
int LaunchFewRowsCluster(StreamHandle stream, const FewRowsClusterArguments& arguments);
// Bytes of shared memory of a block for so many rows, which keeps the sums of `groups` groups.
size_t FewRowsClusterBytes(int64_t rows, int64_t in_features, int tiles, int64_t groups);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM90_FEW_ROWS_CLUSTER_H_
