#ifndef ANNULUS_KERNELS_CUDA_COMMON_CLUSTER_H_
#define ANNULUS_KERNELS_CUDA_COMMON_CLUSTER_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/launch.h"

// Clusters, which compute capability 9.0 adds: blocks that are neighbours in a grid's x run at the
// same time, wait for each other, and reach each other's shared memory. Source: CUDA C++
// Programming Guide, "Thread Block Clusters" and "Distributed Shared Memory"; PTX ISA,
// barrier.cluster and mapa.

namespace annulus::cuda {

// The most blocks of a cluster that every GPU of 9.0 and later can hold.
inline constexpr int kMostClusterBlocks = 8;

#if defined(__CUDACC__)

// Declares a kernel like ANNULUS_KERNEL whose blocks run in clusters of `cluster`, for
// LaunchInClusters.
#define ANNULUS_CLUSTER_KERNEL(cluster, threads, blocks) \
  __global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, blocks)

// The block's number within its cluster: BlockX() % cluster.
ANNULUS_DEVICE int ClusterRank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// Waits for all threads of the cluster. What they wrote before, to shared memory of any of its
// blocks, is seen after. Every warp calls it with all lanes.
ANNULUS_DEVICE void SyncCluster() {
  SyncWarp();  // "aligned" wants all lanes at once
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// Where block `rank` of the cluster has what the own block has at `shared`. A block that others
// read or write must not have ended: all of them call SyncCluster after the last access.
template <class T>
ANNULUS_DEVICE T* InBlock(T* shared, int rank) {
  uint64_t address;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(shared), "r"(rank));
  return reinterpret_cast<T*>(address);
}

#else

#define ANNULUS_CLUSTER_KERNEL(cluster, threads, blocks) inline void

int ClusterRank();
void SyncCluster();
std::byte* AddressInBlock(const void* shared, int rank);
template <class T>
T* InBlock(T* shared, int rank) {
  return reinterpret_cast<T*>(AddressInBlock(shared, rank));
}

// Emulation: RunGrid in clusters of `cluster` blocks.
int RunClusters(const Grid& grid, int cluster, absl::FunctionRef<void()> kernel);
// Emulation: launches of `kernel` (AddressOf) run in clusters of `cluster` blocks from now on.
// Returns true. Thread-safe.
bool DeclareCluster(const void* kernel, int cluster);

#endif

// Launch of an ANNULUS_CLUSTER_KERNEL of `kCluster` blocks, of which grid.x is a multiple. The
// kernel itself carries the size of its clusters, so launches that a stream holds back, and graphs,
// need not know it.
template <auto kKernel, int kCluster, class Arguments>
int LaunchInClusters(StreamHandle stream, const Grid& grid, const Arguments& arguments) {
  static_assert(kCluster <= kMostClusterBlocks);
#if !defined(__CUDACC__)
  [[maybe_unused]] static const bool declared =
      DeclareCluster(AddressOf<kKernel, Arguments>(), kCluster);
#endif
  return Launch<kKernel>(stream, grid, arguments);
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_CLUSTER_H_
