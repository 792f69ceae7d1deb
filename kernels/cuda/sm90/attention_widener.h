#ifndef ANNULUS_KERNELS_CUDA_SM90_ATTENTION_WIDENER_H_
#define ANNULUS_KERNELS_CUDA_SM90_ATTENTION_WIDENER_H_

// The wideners of attention_kernel.h: the three warps next to the producer. A product needs both
// operands of one 16-bit type, so they widen int8 to bf16 and fp8 to f16, in which codes are exact:
// one instruction converts two codes of fp8 to f16, and four to bf16. They read codes in one place
// of shared memory and write operands to another, where products read them like
// 16-bit pages. Pieces (a tile's keys, then its values) pass through the stages of codes one after
// the other.
//
// A lane widens 16 codes of a row, which become two chunks of operands. The 8 lanes that access
// shared memory together take 4 neighbouring chunks of codes in rows r and r ^ 5 of 8. Because
// chunks are exchanged, the chunks of codes then cover all banks, and so do the even chunks of
// operands, and the odd ones.
#include "kernels/cuda/common/widen.h"
#include "kernels/cuda/sm90/attention_shared.h"

namespace annulus::cuda {

// Two codes in the low 16 bits of `codes` as operands; the first goes to the low half.
ANNULUS_DEVICE uint32_t WidenTwo(DType dtype, uint32_t codes) {
  return dtype == DType::kI8 ? WidenInt8(codes, CodePair::k01) : WidenToHalves(dtype, codes);
}

ANNULUS_DEVICE Bytes16 WidenEight(DType dtype, uint32_t first, uint32_t second) {
  if (dtype == DType::kI8) {
    return {WidenInt8(first, CodePair::k01), WidenInt8(first, CodePair::k23),
            WidenInt8(second, CodePair::k01), WidenInt8(second, CodePair::k23)};
  }
  return {WidenToHalves(dtype, first), WidenToHalves(dtype, first >> 16),
          WidenToHalves(dtype, second), WidenToHalves(dtype, second >> 16)};
}

// Widens this warp's part of a piece: every third group of 8 rows, from group `first` on.
template <class C, DType kDType>
ANNULUS_DEVICE void WidenGroups(int first,
                                const std::byte (&codes)[C::kCopyPanels][C::kKeys * kPanelRowBytes],
                                std::byte (&panels)[C::kPanels][C::kKeys * kPanelRowBytes]) {
  constexpr int kGroups = C::kKeys / 8;
  constexpr int kBatch = 4 / C::kPanels;  // groups whose loads overlap
  constexpr int kStep = C::kWideners;
  const int row = Lane() / 8 ^ Lane() / 4 % 2 * 5;
  const int chunk = Lane() % 4;
  const int from = PanelOffset(row, chunk);
  const int to = PanelOffset(row, 2 * chunk);
#pragma unroll 1
  for (int begin = first; begin < kGroups; begin += kBatch * kStep) {
    Bytes16 words[kBatch][C::kPanels];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int group = begin + b * kStep;
      if (group >= kGroups) break;
#pragma unroll
      for (int p = 0; p < C::kPanels; ++p) {
        words[b][p] = *reinterpret_cast<const Bytes16*>(codes[p / 2] + group * 8 * kPanelRowBytes +
                                                        (from ^ p % 2 << 6));
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int group = begin + b * kStep;
      if (group >= kGroups) break;
#pragma unroll
      for (int p = 0; p < C::kPanels; ++p) {
        const uint32_t(&own)[4] = words[b][p].words;
        std::byte* const rows = panels[p] + group * 8 * kPanelRowBytes;
        *reinterpret_cast<Bytes16*>(rows + to) = WidenEight(kDType, own[0], own[1]);
        *reinterpret_cast<Bytes16*>(rows + (to ^ 16)) = WidenEight(kDType, own[2], own[3]);
      }
    }
  }
}

// Widens piece number `piece` into panels that are free once the phase of `parity` of `free` has
// ended.
template <class C>
ANNULUS_DEVICE void WidenPiece(DType dtype, uint32_t piece, PhaseBarrier& free, int parity,
                               HopperShared<C>& shared, PhaseBarrier& full,
                               std::byte (&panels)[C::kPanels][C::kKeys * kPanelRowBytes]) {
  const int stage = StageOf<C::kCodeStages>(piece);
  const auto& codes = shared.codes.stages[stage];
  WaitForPhase(shared.code_notes.full[stage], ParityOf<C::kCodeStages>(piece));
  WaitForPhase(free, parity);
  // The number of groups is not a multiple of the number of warps: they take turns at the extra
  // group.
  const auto first = static_cast<int>((piece + WarpIndex()) % C::kWideners);
  if (dtype == DType::kI8) {
    WidenGroups<C, DType::kI8>(first, codes, panels);
  } else if (dtype == DType::kF8E4M3) {
    WidenGroups<C, DType::kF8E4M3>(first, codes, panels);
  } else {
    WidenGroups<C, DType::kF8E5M2>(first, codes, panels);
  }
  FenceSharedForEngines();
  SyncWarp();
  if (Lane() != 0) return;
  Arrive(shared.code_notes.free[stage]);
  Arrive(full);
}

// Run by each of the three warps, for all units of the block, in the producer's order.
template <class C>
ANNULUS_DEVICE void WidenTiles(const HopperAttentionArguments& h, HopperShared<C>& shared) {
  const AttentionArguments& a = h.attention;
  uint32_t tile = 0;
  uint32_t piece = 0;
  const auto widen_values = [&](uint32_t t) {
    const int stage = StageOf<C::kStages>(t);
    WidenPiece<C>(a.layout.dtype, piece++, shared.values_free[stage], ParityOf<C::kStages>(t) ^ 1,
                  shared, shared.values_full[stage], shared.values[stage]);
  };
  for (int round = 0; round * GridX() < h.units; ++round) {
    const int64_t index = UnitOfRound(round);
    if (index >= h.units) continue;
    const AttentionUnit unit = a.units[index];
    const int tiles = TilesOf<C>(h, unit, a.items[unit.item]);
#pragma unroll 1
    for (const uint32_t end = tile + static_cast<uint32_t>(tiles); tile != end; ++tile) {
      const int stage = StageOf<C::kStages>(tile);
      WidenPiece<C>(a.layout.dtype, piece++, shared.keys_free[stage],
                    ParityOf<C::kStages>(tile) ^ 1, shared, shared.keys_full[stage],
                    shared.keys[stage]);
      if (tile != 0) widen_values(tile - 1);
    }
  }
  if (tile != 0) widen_values(tile - 1);
}

// Called by one thread, before FencePhaseBarriers.
template <class C>
ANNULUS_DEVICE void InitCodeBarriers(HopperShared<C>& shared) {
  for (int s = 0; s < C::kCodeStages; ++s) {
    InitPhaseBarrier(shared.code_notes.full[s], 1);
    InitPhaseBarrier(shared.code_notes.free[s], C::kWideners);
  }
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM90_ATTENTION_WIDENER_H_
