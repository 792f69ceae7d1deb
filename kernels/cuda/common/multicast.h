#ifndef ANNULUS_KERNELS_CUDA_COMMON_MULTICAST_H_
#define ANNULUS_KERNELS_CUDA_COMMON_MULTICAST_H_

#include "kernels/cuda/common/cluster.h"
#include "kernels/cuda/common/hopper.h"

// Copies into several blocks of a cluster at once, which read global memory once for all of them,
// and the barriers that this needs. Source: PTX ISA 8.x, cp.async.bulk.tensor
// (.multicast::cluster), mbarrier, mapa.

namespace annulus::cuda {

#if defined(__CUDACC__)

// CopyBox into blocks 0 .. kBlocks - 1 of the cluster, at the same place in each: the bytes count
// for `barrier` of each block, also before it was told to expect them. No block may have ended.
template <int kBlocks>
ANNULUS_DEVICE void CopyBoxToBlocks(void* shared, const TensorMap& map, PhaseBarrier& barrier,
                                    int column, int row, int page) {
  static_assert(kBlocks <= kMostClusterBlocks);
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(SharedAddress(shared)),
      "l"(&map), "r"(SharedAddress(&barrier)), "r"(column), "r"(row), "r"(page),
      "h"(static_cast<uint16_t>((1 << kBlocks) - 1))
      : "memory");
}

// Arrive at this barrier of block `rank` of the cluster, which must not have ended.
ANNULUS_DEVICE void ArriveIn(PhaseBarrier& barrier, int rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(there)
               : "r"(SharedAddress(&barrier)), "r"(rank));
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there)
               : "memory");
}

// WaitForPhase of a barrier at which threads of other blocks arrive: what they wrote before is
// seen.
ANNULUS_DEVICE void WaitForClusterPhase(PhaseBarrier& barrier, int parity) {
  uint32_t ended = 0;
  while (ended == 0) {
    asm volatile(
        "{ .reg .pred ended; "
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ended, [%1], %2; "
        "selp.u32 %0, 1, 0, ended; }"
        : "=r"(ended)
        : "r"(SharedAddress(&barrier)), "r"(parity)
        : "memory");
  }
}

#else

void CopyBoxToFirst(int blocks, void* shared, const TensorMap& map, PhaseBarrier& barrier,
                    int column, int row, int page);
template <int kBlocks>
void CopyBoxToBlocks(void* shared, const TensorMap& map, PhaseBarrier& barrier, int column, int row,
                     int page) {
  CopyBoxToFirst(kBlocks, shared, map, barrier, column, row, page);
}
void ArriveIn(PhaseBarrier& barrier, int rank);
inline void WaitForClusterPhase(PhaseBarrier& barrier, int parity) {
  WaitForPhase(barrier, parity);
}

#endif

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_MULTICAST_H_
