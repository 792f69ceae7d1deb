#ifndef ANNULUS_KERNELS_CUDA_COMMON_HOPPER_H_
#define ANNULUS_KERNELS_CUDA_COMMON_HOPPER_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cuda/common/device.h"
#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/common/widen.h"

// What compute capability 9.0 adds for warps with different tasks: barriers in shared memory that
// count bytes, the copy engine (TMA), barriers of some of a block's warps, and registers moved from
// one warpgroup to another; and conversions of fp8. Source: PTX ISA 8.x. Products: wgmma.h.

namespace annulus::cuda {

// A barrier in shared memory. Its phases, numbered from 0, end when all arrivals of the phase are
// in and all bytes that were expected have come.
struct alignas(8) PhaseBarrier {
  uint64_t state;
};

#if defined(__CUDACC__)

// `value`; what is computed from it is computed anew where this stands. Of the matrices of all
// products of a loop the compiler would keep each in registers, and then spill others.
ANNULUS_DEVICE uint32_t Unhoisted(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Where `shared` lies in the block's shared memory, as instructions want it.
ANNULUS_DEVICE uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// By one thread, then FencePhaseBarriers by the same, then SyncThreads, before any other use.
ANNULUS_DEVICE void InitPhaseBarrier(PhaseBarrier& barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(&barrier)),
               "r"(arrivals)
               : "memory");
}
ANNULUS_DEVICE void FencePhaseBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One arrival; what this thread did before is seen by those whose wait the phase ends.
ANNULUS_DEVICE void Arrive(PhaseBarrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(&barrier))
               : "memory");
}
// The same; the phase also waits for `bytes` of the copy engine.
ANNULUS_DEVICE void ArriveExpecting(PhaseBarrier& barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(&barrier)),
      "r"(bytes)
      : "memory");
}
// Waits for the end of a phase of this parity (0 for the first phase): the current one's, or where
// it has the other parity, the one's before, which a fresh barrier takes as ended.
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
// Starts the copy of the box at (page, row, column) to `shared`, a multiple of 1024. Its bytes,
// columns beyond the tensor included, count for `barrier`.
ANNULUS_DEVICE void CopyBox(void* shared, const TensorMap& map, PhaseBarrier& barrier, int column,
                            int row, int page) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(SharedAddress(shared)),
      "l"(&map), "r"(SharedAddress(&barrier)), "r"(column), "r"(row), "r"(page)
      : "memory");
}
// The same of `bytes` bytes that follow each other, 16 of them or a multiple; both addresses too.
ANNULUS_DEVICE void CopyBytes(void* shared, const std::byte* source, int bytes,
                              PhaseBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(shared)),
      "l"(source), "r"(bytes), "r"(SharedAddress(&barrier))
      : "memory");
}
// Orders this thread's own accesses of shared memory before those of the copy engine and of
// products that a later barrier lets start.
ANNULUS_DEVICE void FenceSharedForEngines() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Barriers 1 to 15 of `threads` threads, whole warps: of those that wait and those that only
// arrive.
ANNULUS_DEVICE void SyncSome(int barrier, int threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
ANNULUS_DEVICE void ArriveSome(int barrier, int threads) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// SyncSome; whether `predicate` holds in any of its threads.
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

// Sets the registers of each thread of this warpgroup, a multiple of 8, which then has fewer or
// more of them than the kernel was launched with. By all warps of the warpgroup.
template <int kRegisters>
ANNULUS_DEVICE void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
ANNULUS_DEVICE void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Two codes of fp8, the low 16 bits of `codes`, as f16, exactly; the first in the low half. NaN
// stays NaN and infinity infinity.
ANNULUS_DEVICE uint32_t WidenToHalves(DType dtype, uint32_t codes) {
  uint32_t halves;
  if (dtype == DType::kF8E4M3) {
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  } else {
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  }
  return halves;
}

#else

inline uint32_t Unhoisted(uint32_t value) { return value; }
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
inline void FenceSharedForEngines() {}
void SyncSome(int barrier, int threads);
void ArriveSome(int barrier, int threads);
bool SyncSomeOr(int barrier, int threads, bool predicate);
template <int kRegisters>
inline void GiveRegisters() {}
template <int kRegisters>
inline void TakeRegisters() {}
uint32_t WidenToHalves(DType dtype, uint32_t codes);

#endif

// Two neighbours of a word's four codes (k01 or k23) as bf16, exactly: as WidenCodes, for which
// compute capability 8.0 takes twice the instructions of fp8. What is not finite stays so.
ANNULUS_DEVICE uint32_t WidenPair(DType dtype, uint32_t codes, CodePair pair) {
  if (dtype == DType::kI8) return WidenInt8(codes, pair);
  const uint32_t halves = WidenToHalves(dtype, pair == CodePair::k01 ? codes : codes >> 16);
  return Pack(BFloat16{}, WidenHalf(halves), WidenHighHalf(halves));
}

// Where 16-byte chunk `chunk` of row `row` of a panel (rows of 128 bytes from a multiple of 1024)
// stands, in bytes.
ANNULUS_DEVICE int PanelOffset(int row, int chunk) {
  return row * kPanelRowBytes + ((chunk ^ (row & 7)) << 4);
}

// A matrix of panels for the products of wgmma.h, which begins at `first`: a multiple of 1024, plus
// whole 32 bytes to begin further along the rows, or whole 8 rows. Groups of 8 rows follow each
// other without gaps; where rows are steps of depth, the next 64 columns are panel_bytes further
// (where depth lies along the rows, kOnePanel).
// Bits: 0-13 the address / 16, 16-29 panel_bytes / 16, 32-45 the bytes of 8 rows / 16, 62-63 1 for
// chunks exchanged in rows of 128 bytes (PTX ISA, "Matrix Descriptor Format").
inline constexpr int kOnePanel = 16;  // not read, and 1 in the descriptor as the PTX ISA has it
ANNULUS_DEVICE uint64_t PanelMatrix(const std::byte* first, int panel_bytes) {
  const uint32_t low = (SharedAddress(first) >> 4 & 0x3fffu) |
                       static_cast<uint32_t>(panel_bytes >> 4 & 0x3fff) << 16;
  return Unhoisted(low) | static_cast<uint64_t>(8 * kPanelRowBytes >> 4) << 32 | uint64_t{1} << 62;
}
// The matrix `bytes` further. Shared memory ends below 2^18, so the sum stays in its field.
ANNULUS_DEVICE uint64_t FurtherMatrix(uint64_t matrix, int bytes) {
  const uint32_t low = static_cast<uint32_t>(matrix) + static_cast<uint32_t>(bytes >> 4);
  return (matrix >> 32 << 32) | low;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_HOPPER_H_
