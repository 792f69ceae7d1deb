#ifndef ANNULUS_KERNELS_CUDA_TUNING_CLUSTER_PLAN_H_
#define ANNULUS_KERNELS_CUDA_TUNING_CLUSTER_PLAN_H_

#include <cstdint>

#include "kernels/cuda/runtime.h"
#include "kernels/cuda/sm90/few_rows_cluster.h"

namespace annulus::cuda {

// Tiles per block of a product of `rows` rows whose depth is split over clusters
// (sm90/linear_cluster.h): the most with which every multiprocessor still has a block. 0: the
// depth stays whole. That is so on devices without clusters, for rows that a library multiplies
// (from kLibraryRows on), and if blocks of one tile are kEnoughBlocks for each multiprocessor
// without the split. Pure.
inline constexpr int kEnoughBlocks = 4;
int ClusterTiles(int64_t rows, int64_t out_features, const DeviceInfo& device);

// The stripes of a product of few rows (sm90/few_rows_cluster.h): a cluster for every kDepthParts
// multiprocessors, or one for each group if there are fewer; the most tiles with which every warp
// still has a group and the block fits its shared memory; sums of as many groups as a cluster has
// or that memory holds. No tiles on devices without clusters, for more than kFewRows rows, and if a
// part of the depth is too long for the shared memory (227 KiB: from a depth of 22,017 on for more
// than 8 rows). Pure.
//
// All clusters are meant to run at once, on 128 of an H200's 132 multiprocessors. A device that
// holds fewer of them starts the others late.
FewRowsStripes StripesOf(int64_t rows, int64_t out_features, int64_t in_features,
                         const DeviceInfo& device);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_TUNING_CLUSTER_PLAN_H_
