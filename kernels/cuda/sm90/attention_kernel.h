#ifndef ANNULUS_KERNELS_CUDA_SM90_ATTENTION_KERNEL_H_
#define ANNULUS_KERNELS_CUDA_SM90_ATTENTION_KERNEL_H_

// Prefill attention over pages with the engines of compute capability 9.0. Source: FlashAttention-3
// (Shah et al. 2024, arXiv 2407.08608). Section 3.1: a producer copies while two consumers compute.
// Section 3.2: the scores of the next tile are computed while the weights of this
// one are made.
//
// Shapes and units are those of sm80/attention_kernel.h. A block has three warpgroups and computes
// one AttentionUnit after the other. One warp of the first group copies tiles of 128 slots (64 with
// 256 columns), assembled from boxes of consecutive pages of the unit's list. Each of the other two
// groups attends 64 rows of the unit:
//
//   scores(t) = query keys(t)     starts while weights(t - 1) values(t - 1) runs
//   weights(t) = softmax          while the other consumer's products run
//
// Scores, weights and sums are float32; queries and weights are rounded to the pages' type. Pages
// of 8 bits arrive as codes, which the other three warps of the first warpgroup widen in shared
// memory (attention_widener.h), int8 to bf16 and fp8 to f16; the scales of int8 multiply scores and
// weights.
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/multicast.h"
#include "kernels/cuda/sm90/attention_consumer.h"
#include "kernels/cuda/sm90/attention_producer.h"

namespace annulus::cuda {

// One consumer's walk over the tiles of its block. Tiles are numbered consecutively over all units.
template <class C>
struct Consumer {
  const HopperAttentionArguments& h;
  HopperShared<C>& shared;
  uint32_t tile = 0;  // the next tile to score

  ANNULUS_DEVICE static int Stage(uint32_t tile) { return StageOf<C::kStages>(tile); }
  ANNULUS_DEVICE static int Parity(uint32_t tile) { return ParityOf<C::kStages>(tile); }

  ANNULUS_DEVICE void WaitForKeys(uint32_t t) const {
    WaitForPhase(shared.keys_full[Stage(t)], Parity(t));
  }
  ANNULUS_DEVICE void WaitForValues(uint32_t t) const {
    WaitForPhase(shared.values_full[Stage(t)], Parity(t));
  }
  // Called by every warp on its own, because its part of a product may end before the others'. Only
  // SyncWarp orders what other lanes have read of notes and scales before the arrival of one lane:
  // neither products nor shuffles order memory.
  ANNULUS_DEVICE void Release(PhaseBarrier& barrier) const {
    SyncWarp();
    if constexpr (C::kBlocks == 1) {
      if (Lane() == 0) Arrive(barrier);
    } else if (Lane() < C::kBlocks) {
      ArriveIn(barrier, Lane());
    }
  }

  ANNULUS_DEVICE TileNotes<C>& NotesOf(uint32_t t) const {
    return shared.notes[StageOf<C::kNotes>(t)];
  }

  // Prepares the scores of tile t, which is special or has scaled keys; returns whether it has
  // marked values.
  ANNULUS_DEVICE bool Prepare(uint32_t t, int32_t special, float (&scores)[C::kScores],
                              const ConsumerRows<C>& rows) const {
    if constexpr (C::kScaled) {
      ScaleColumns<C>(shared.code_notes.key_scales[StageOf<C::kNotes>(t)], scores);
    }
    if (Usual(special == 0)) return false;
    bool marked = false;
    if ((special & kHiddenKeys) != 0) {
      WaitForValues(t);
      marked = ClearValues<C>(shared, t);
    }
    ChangeScores<C>(h.attention, NotesOf(t), scores, rows);
    return marked;
  }

  ANNULUS_DEVICE static void Rescale(const float (&rescale)[2], ConsumerRows<C>& rows) {
#pragma unroll
    for (int i = 0; i < 2; ++i) rows.sum[i] *= rescale[i];
#pragma unroll
    for (int i = 0; i < C::kDim / 2; ++i) rows.o[i] *= rescale[i % 4 / 2];
  }

  // Adds to the output what products cannot.
  ANNULUS_DEVICE void AddMarked(uint32_t t, const float (&weights)[C::kScores],
                                ConsumerRows<C>& rows) const {
    AddMarkedValues<C>(h.attention, h.box_slots, NotesOf(t), weights, rows);
  }

  ANNULUS_DEVICE void Attend(int tiles, ConsumerRows<C>& rows) {
    float scores[C::kScores];
    uint32_t weights[C::kKeys / 16][4];
    const float factor = FactorOf(h.attention);
    float rescale[2];
    float sums[2];
    WaitForKeys(tile);
    int32_t special = NotesOf(tile).special;
    StartScores<C>(shared, Stage(tile), scores);
    WgmmaWait<0>();
    SettleRegisters(scores);
    Release(shared.keys_free[Stage(tile)]);
    bool marked = Prepare(tile, special, scores, rows);
    RaiseBases<C>(scores, factor, rows, rescale);
    Weigh<C>(scores, factor, rows, rows.sum);
    if (!Usual(!marked)) AddMarked(tile, scores, rows);
    PackWeights<C>(shared, tile, scores, weights);
#pragma unroll 1
    for (const uint32_t last = tile + static_cast<uint32_t>(tiles) - 1; tile != last;) {
      const uint32_t before = tile++;
      WaitForKeys(tile);
      special = NotesOf(tile).special;
      StartScores<C>(shared, Stage(tile), scores);
      WaitForValues(before);
      StartOutput<C>(shared, Stage(before), weights, rows.o);
      WgmmaWait<1>();
      SettleRegisters(scores);
      Release(shared.keys_free[Stage(tile)]);
      marked = Prepare(tile, special, scores, rows);
      const bool moved = RaiseBases<C>(scores, factor, rows, rescale);
      WgmmaWait<0>();
      SettleRegisters(rows.o);
      Release(shared.values_free[Stage(before)]);
      if (!Usual(!moved)) Rescale(rescale, rows);
      Weigh<C>(scores, factor, rows, sums);
#pragma unroll
      for (int i = 0; i < 2; ++i) rows.sum[i] += sums[i];
      if (!Usual(!marked)) AddMarked(tile, scores, rows);
      PackWeights<C>(shared, tile, scores, weights);
    }
    WaitForValues(tile);
    StartOutput<C>(shared, Stage(tile), weights, rows.o);
    WgmmaWait<0>();
    SettleRegisters(rows.o);
    Release(shared.values_free[Stage(tile)]);
    ++tile;
  }

  // Loads the rows and queries of a unit and returns its number of tiles. The unit is read again
  // when its rows are stored; keeping its fields would take registers from the products.
  ANNULUS_DEVICE int Begin(int64_t index, ConsumerRows<C>& rows) const {
    const AttentionArguments& a = h.attention;
    const AttentionUnit unit = a.units[index];
    const AttentionItemView item = a.items[unit.item];
    StartRows<C>(a, unit, item, rows);
    // Waits until all warps have finished with the previous queries; the second wait, until these
    // are written.
    SyncSome(kQueryReady + ConsumerOf(), kWarpgroup);
    LoadQueryPanels<C>(a, unit, item, shared);
    FenceSharedForEngines();
    SyncSome(kQueryReady + ConsumerOf(), kWarpgroup);
    return TilesOf<C>(h, unit, item);
  }

  ANNULUS_DEVICE void Run() {
    const AttentionArguments& a = h.attention;
    for (int round = 0; round * GridX() < h.units; ++round) {
      const int64_t index = UnitOfRound(round);
      if (index >= h.units) continue;
      ConsumerRows<C> rows;
      const int tiles = Begin(index, rows);
      if (tiles > 0) Attend(tiles, rows);
      StoreConsumerRows<C>(a, UnitOfRound(round), rows);
    }
  }
};

// Pages of fp8 have an instance with those of int8. Only consumers know the type of operands.
template <class C>
ANNULUS_DEVICE void ConsumeFloat8(const HopperAttentionArguments& h, HopperShared<C>& shared) {
  using Float8 = HopperConfig<Float16, C::kDim, true>;
  static_assert(sizeof(HopperShared<Float8>) == sizeof(HopperShared<C>));
  Consumer<Float8>{h, reinterpret_cast<HopperShared<Float8>&>(shared)}.Run();
}

template <class C>
ANNULUS_KERNEL(C::kThreads, 1)
HopperAttentionKernel(ANNULUS_ARGUMENT HopperAttentionArguments h) {
  // 65536 registers for 3 warpgroups: each thread starts with 168.
  constexpr int kProducerRegisters = C::kDim <= 128 ? 72 : 56;
  constexpr int kConsumerRegisters = (3 * 168 - kProducerRegisters) / 2;
  auto& shared = *reinterpret_cast<HopperShared<C>*>(SharedMemory());
  if (ThreadIndex() == 0) {
    for (int s = 0; s < C::kStages; ++s) {
      constexpr int kConsumerWarps = C::kConsumerThreads / kWarp;
      constexpr int kFillers = C::kNarrow ? C::kWideners : 1;  // warps
      InitPhaseBarrier(shared.keys_full[s], kFillers);
      InitPhaseBarrier(shared.values_full[s], kFillers);
      InitPhaseBarrier(shared.keys_free[s], kConsumerWarps);
      InitPhaseBarrier(shared.values_free[s], kConsumerWarps);
    }
    if constexpr (C::kNarrow) InitCodeBarriers<C>(shared);
    FencePhaseBarriers();
  }
  SyncThreads();
  if (ThreadIndex() < kWarpgroup) {
    GiveRegisters<kProducerRegisters>();
    if (WarpIndex() == 0) {
      Produce<C>(h, shared);
    } else if constexpr (C::kNarrow) {
      WidenTiles<C>(h, shared);
    }
  } else {
    TakeRegisters<kConsumerRegisters>();
    if constexpr (C::kScaled) {
      if (h.attention.layout.dtype != DType::kI8) {
        ConsumeFloat8<C>(h, shared);
        return;
      }
    }
    Consumer<C>{h, shared}.Run();
  }
}

template <class C>
int LaunchHopperAttention(StreamHandle stream, int64_t blocks,
                          const HopperAttentionArguments& arguments) {
  static_assert(sizeof(HopperShared<C>) <= HopperShared<C>::kMostBytes);
  const Grid grid{.x = blocks, .threads = C::kThreads, .shared_bytes = sizeof(HopperShared<C>)};
  return Launch<HopperAttentionKernel<C>>(stream, grid, arguments);
}

// These are all instances: 3 head dimensions for each 16-bit type, and for the three 8-bit types
// together.
template <class T, bool kCodes>
int LaunchHopperAttentionOf(StreamHandle stream, int dim, int64_t blocks,
                            const HopperAttentionArguments& arguments) {
  if (dim <= 64) {
    return LaunchHopperAttention<HopperConfig<T, 64, kCodes>>(stream, blocks, arguments);
  }
  if (dim <= 128) {
    return LaunchHopperAttention<HopperConfig<T, 128, kCodes>>(stream, blocks, arguments);
  }
  return LaunchHopperAttention<HopperConfig<T, 256, kCodes>>(stream, blocks, arguments);
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM90_ATTENTION_KERNEL_H_
