#ifndef ANNULUS_TESTS_SUPPORT_CUDA_EMULATED_CLUSTERS_H_
#define ANNULUS_TESTS_SUPPORT_CUDA_EMULATED_CLUSTERS_H_

namespace annulus::cuda {

// How many blocks a cluster of the kernel has (DeclareCluster); 1: it has no clusters. Thread-safe.
int ClusterOf(const void* kernel);

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_SUPPORT_CUDA_EMULATED_CLUSTERS_H_
