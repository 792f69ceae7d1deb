#ifndef ANNULUS_KERNELS_CUDA_TUNING_WARPGROUP_PLAN_H_
#define ANNULUS_KERNELS_CUDA_TUNING_WARPGROUP_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/base/dtype.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/sm90/linear_warpgroups.h"
#include "kernels/ops/linear.h"

namespace annulus::cuda {

// Products of the same inputs that may be one launch.
struct JointProducts {
  int64_t rows;
  int64_t in_features;
  int64_t tiles;  // of all of them (WarpgroupTiles)
  DType dtype;
};

// The shape of the launch. A tile has 32 rows if that is all, else kMostTileRows if the block's
// part of the inputs leaves room for the sums of kWarpgroups tiles, else 32: each tile of rows
// reads the weights. Two blocks share a multiprocessor if both fit with sums of kWarpgroups tiles;
// sums are of as many tiles as a stripe has or the block's share of the memory holds. Clusters are
// as many as run at once. Pure.
//
// No such launch on devices without clusters; for fewer rows than 17 or more than 127; if weights
// would be read more than twice (with 227 KiB: from a depth of 18,433 on, and from 8,193 on for
// more than 64 rows); and if two things hold: without clusters, blocks of one tile are
// kEnoughBlocks for each multiprocessor; and the sums that blocks exchange, 28 bytes an output and
// row of a tile, are more bytes than an output's weights.
WarpgroupShape WarpgroupShapeOf(const JointProducts& products, const DeviceInfo& device);

// How many of `parts`, from the first on, one launch multiplies: at most kMostTogether, of as many
// rows as the first, the same activations and dtype, whose outputs lie apart; the most for which
// there is such a launch. 0: not even the first. Pure.
size_t ProductsTogether(std::span<const LinearParams> parts, const DeviceInfo& device);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_TUNING_WARPGROUP_PLAN_H_
