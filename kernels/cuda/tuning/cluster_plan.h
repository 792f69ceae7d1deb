#ifndef ANNULUS_KERNELS_CUDA_TUNING_CLUSTER_PLAN_H_
#define ANNULUS_KERNELS_CUDA_TUNING_CLUSTER_PLAN_H_

#include <cstdint>

#include "kernels/cuda/runtime.h"

namespace annulus::cuda {

// Tiles per block of a product of `rows` rows whose depth is split over clusters
// (sm90/linear_cluster.h): the most with which every multiprocessor still has a block. 0: the
// depth stays whole. That is so on devices without clusters, for rows that a library multiplies
// (from kLibraryRows on), and if blocks of one tile are kEnoughBlocks for each multiprocessor
// without the split. Pure.
inline constexpr int kEnoughBlocks = 4;
int ClusterTiles(int64_t rows, int64_t out_features, const DeviceInfo& device);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_TUNING_CLUSTER_PLAN_H_
