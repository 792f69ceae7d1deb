#ifndef ANNULUS_KERNELS_CUDA_SM90_LINEAR_CLUSTER_H_
#define ANNULUS_KERNELS_CUDA_SM90_LINEAR_CLUSTER_H_

#include "kernels/cuda/sm80/linear.h"

namespace annulus::cuda {

// LaunchLinearTensor, bit for bit, with kDepthParts blocks for each of its tiles. They are a
// cluster of compute capability 9.0: each sums one part of the depth, and they add up the parts in
// order, through distributed shared memory. So products whose outputs are too few to give every
// multiprocessor a tile, as those of small models are, still occupy all of them. Returns 0 or
// CUDA's error number. On trial: see trial.h.
int LaunchLinearCluster(StreamHandle stream, const ManyRowsArguments& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM90_LINEAR_CLUSTER_H_
