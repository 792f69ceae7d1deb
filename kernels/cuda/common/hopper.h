#ifndef ANNULUS_KERNELS_CUDA_COMMON_HOPPER_H_
#define ANNULUS_KERNELS_CUDA_COMMON_HOPPER_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cuda/common/device.h"
#include "kernels/cuda/common/tensor_map.h"

// What compute capability 9.0 adds for warps with different tasks: barriers in shared memory that
// count bytes, the copy engine (TMA), barriers for some of a block's warps, moving registers from
// one warpgroup to another, and fp8 conversions. Source: PTX ISA 8.x. For products see wgmma.h.

namespace annulus::cuda {

// A barrier in shared memory. It has phases, numbered from 0. A phase ends when all its arrivals
// have happened and all expected bytes have been copied.
struct alignas(8) PhaseBarrier {
  uint64_t state;
};

#if defined(__CUDACC__)

// The address of `shared` within the block's shared memory, as instructions expect it.
ANNULUS_DEVICE uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Called by one thread before any other use; the same thread then calls FencePhaseBarriers, and all
// threads SyncThreads.
ANNULUS_DEVICE void InitPhaseBarrier(PhaseBarrier& barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(&barrier)),
               "r"(arrivals)
               : "memory");
}
ANNULUS_DEVICE void FencePhaseBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One arrival. Threads whose wait ends with this phase see what this thread wrote before.
ANNULUS_DEVICE void Arrive(PhaseBarrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(&barrier))
               : "memory");
}
// Like Arrive; the phase then also waits for `bytes` bytes from the copy engine.
ANNULUS_DEVICE void ArriveExpecting(PhaseBarrier& barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(&barrier)),
      "r"(bytes)
      : "memory");
}
// Waits until a phase of this parity (0 for the first phase) has ended. That is the current phase,
// or, if the current phase has the other parity, the one before it. On a new barrier, the phase
// before the first counts as ended.
ANNULUS_DEVICE void WaitForPhase(PhaseBarrier& barrier, int parity) {
  uint32_t ended = 0;
  while (ended == 0) {
    asm volatile(
        "{ .reg .pred ended; "
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2; "
        "selp.u32 %0, 1, 0, ended; }"
        : "=r"(ended)
        : "r"(SharedAddress(&barrier)), "r"(parity)
        : "memory");
  }
}

ANNULUS_DEVICE void PrefetchTensorMap(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// Starts copying the box at (page, row, column) to `shared`, a multiple of 1024. Its bytes,
// including columns beyond the tensor, count for `barrier`.
ANNULUS_DEVICE void CopyBox(void* shared, const TensorMap& map, PhaseBarrier& barrier, int column,
                            int row, int page) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(SharedAddress(shared)),
      "l"(&map), "r"(SharedAddress(&barrier)), "r"(column), "r"(row), "r"(page)
      : "memory");
}
// Like CopyBox for `bytes` contiguous bytes. `bytes` and both addresses are multiples of 16.
ANNULUS_DEVICE void CopyBytes(void* shared, const std::byte* source, int bytes,
                              PhaseBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(shared)),
      "l"(source), "r"(bytes), "r"(SharedAddress(&barrier))
      : "memory");
}
// Asks for `bytes` contiguous bytes to be brought into the L2 cache. Both are multiples of 16.
ANNULUS_DEVICE void PrefetchBytes(const void* source, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(source), "r"(bytes) : "memory");
}
// Orders this thread's accesses to shared memory before those of the copy engine and of products
// that start after a later barrier.
ANNULUS_DEVICE void FenceSharedForEngines() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Barriers 1 to 15, each for `threads` threads in whole warps. The count includes both the threads
// that wait and those that only arrive.
ANNULUS_DEVICE void SyncSome(int barrier, int threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
ANNULUS_DEVICE void ArriveSome(int barrier, int threads) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// SyncSome that also returns whether `predicate` holds in any of its threads.
ANNULUS_DEVICE bool SyncSomeOr(int barrier, int threads, bool predicate) {
  uint32_t any = 0;
  asm volatile(
      "{ .reg .pred own; .reg .pred any; setp.ne.u32 own, %3, 0; "
      "barrier.cta.red.or.pred any, %1, %2, own; "
      "selp.u32 %0, 1, 0, any; }"
      : "=r"(any)
      : "r"(barrier), "r"(threads), "r"(static_cast<uint32_t>(predicate))
      : "memory");
  return any != 0;
}

// GiveRegisters lowers, and TakeRegisters raises, the number of registers per thread of this
// warpgroup to kRegisters, a multiple of 8. All warps of the warpgroup must call it.
template <int kRegisters>
ANNULUS_DEVICE void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
ANNULUS_DEVICE void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Widens the two fp8 codes in the low 16 bits of `codes` to f16, exactly; the first goes to the low
// half. NaN and infinity are kept.
ANNULUS_DEVICE uint32_t WidenToHalves(DType dtype, uint32_t codes) {
  uint32_t halves;
  if (dtype == DType::kF8E4M3) {
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  } else {
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  }
  return halves;
}

// Rounds four float32 to e4m3, to nearest even and at most 448; the first goes to the lowest byte.
// NaN stays NaN.
ANNULUS_DEVICE uint32_t PackCodes(float first, float second, float third, float fourth) {
  uint32_t packed;
  asm("{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; "
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3; mov.b32 %0, {low, high}; }"
      : "=r"(packed)
      : "f"(first), "f"(second), "f"(third), "f"(fourth));
  return packed;
}

#else

uint32_t SharedAddress(const void* shared);
void InitPhaseBarrier(PhaseBarrier& barrier, int arrivals);
inline void FencePhaseBarriers() {}
void Arrive(PhaseBarrier& barrier);
void ArriveExpecting(PhaseBarrier& barrier, int bytes);
void WaitForPhase(PhaseBarrier& barrier, int parity);
inline void PrefetchTensorMap(const TensorMap&) {}
void CopyBox(void* shared, const TensorMap& map, PhaseBarrier& barrier, int column, int row,
             int page);
void CopyBytes(void* shared, const std::byte* source, int bytes, PhaseBarrier& barrier);
inline void PrefetchBytes(const void*, int) {}
inline void FenceSharedForEngines() {}
void SyncSome(int barrier, int threads);
void ArriveSome(int barrier, int threads);
bool SyncSomeOr(int barrier, int threads, bool predicate);
template <int kRegisters>
inline void GiveRegisters() {}
template <int kRegisters>
inline void TakeRegisters() {}
uint32_t WidenToHalves(DType dtype, uint32_t codes);
uint32_t PackCodes(float first, float second, float third, float fourth);

#endif

// Byte offset of 16-byte chunk `chunk` of row `row` in a panel (rows of 128 bytes, starting at a
// multiple of 1024).
ANNULUS_DEVICE int PanelOffset(int row, int chunk) {
  return row * kPanelRowBytes + ((chunk ^ (row & 7)) << 4);
}

// The descriptor of a matrix of panels, for the products of wgmma.h. `first` is a multiple of 1024,
// plus a multiple of 32 bytes to start further along the rows, or plus whole groups of 8 rows.
// Groups of 8 rows are contiguous. If rows are steps of depth, the next 64 columns start
// panel_bytes later; if depth runs along the rows, pass kOnePanel. Bits: 0-13 the address / 16,
// 16-29 panel_bytes / 16, 32-45 the bytes of 8 rows / 16, 62-63 1 for chunks exchanged in rows of
// 128 bytes (PTX ISA, "Matrix Descriptor Format").
inline constexpr int kOnePanel = 16;  // not read; encoded as 1, as in the PTX ISA
ANNULUS_DEVICE uint64_t PanelMatrix(const std::byte* first, int panel_bytes) {
  const uint32_t low = (SharedAddress(first) >> 4 & 0x3fffu) |
                       static_cast<uint32_t>(panel_bytes >> 4 & 0x3fff) << 16;
  return Unhoisted(low) | static_cast<uint64_t>(8 * kPanelRowBytes >> 4) << 32 | uint64_t{1} << 62;
}
// The matrix that starts `bytes` later. Shared memory ends below 2^18, so the sum fits its field.
ANNULUS_DEVICE uint64_t FurtherMatrix(uint64_t matrix, int bytes) {
  const uint32_t low = static_cast<uint32_t>(matrix) + static_cast<uint32_t>(bytes >> 4);
  return (matrix >> 32 << 32) | low;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_HOPPER_H_
