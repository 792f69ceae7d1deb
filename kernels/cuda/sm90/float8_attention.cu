// Prefill attention of compute capability 9.0 whose products are of e4m3. Source: FlashAttention-3
// (Shah et al. 2024, arXiv 2407.08608), section 3.3, "Low-precision with FP8"; but weights have a
// shift for each row and tile, and a tile's output is a sum of its own.
//
// The shape is that of attention_kernel.h: a warp copies tiles of 128 slots, two warpgroups attend
// 64 rows each. Keys are multiplied where they arrive; of values, which products need with keys
// along the rows, the three warps next to the producer make columns (float8_transposer.h):
//
//   scores(t) = query keys(t)                   starts while a part of t - 1 runs
//   part = weights(t - 1) values(t - 1)         of 64 columns, one after the other
//   output += carry(t - 1) part
//   weights(t) = softmax                        while the last part and the other consumer's
//                                               products run
//
// A tile of 128 keys, not the 224 of FlashAttention-3: scores, a part and the output then take 160
// of a thread's 224 registers, and a part is what may be added up in 14 bits.
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/sm90/attention_producer.h"
#include "kernels/cuda/sm90/float8_consumer.h"
#include "kernels/cuda/sm90/float8_transposer.h"

namespace annulus::cuda {
namespace {

// One consumer's walk over the tiles of its block. Tiles are numbered consecutively over all units.
template <class C>
struct Float8Consumer {
  const HopperAttentionArguments& h;
  Float8Shared<C>& shared;
  uint32_t tile = 0;  // the next tile to score

  ANNULUS_DEVICE static int Stage(uint32_t t) { return StageOf<C::kStages>(t); }
  ANNULUS_DEVICE static int Parity(uint32_t t) { return ParityOf<C::kStages>(t); }
  ANNULUS_DEVICE void WaitForKeys(uint32_t t) const {
    WaitForPhase(shared.keys_full[Stage(t)], Parity(t));
  }
  ANNULUS_DEVICE void WaitForColumns(uint32_t t) const {
    WaitForPhase(shared.columns_full[Stage(t)], Parity(t));
  }
  // By every warp on its own: see Consumer::Release.
  ANNULUS_DEVICE void Release(PhaseBarrier& barrier) const {
    SyncWarp();
    if (Lane() == 0) Arrive(barrier);
  }

  // Prepares the scores of tile t, if it is special.
  ANNULUS_DEVICE void Prepare(uint32_t t, int32_t special, float (&scores)[C::kScores],
                              ConsumerRows<C>& rows) const {
    if (Usual(special == 0)) return;
    const TileNotes<C>& notes = shared.notes[StageOf<C::kNotes>(t)];
    if ((special & kHiddenKeys) != 0) {
      WaitForColumns(t);
      int32_t marked = 0;
      for (int warp = 0; warp < C::kTransposers; ++warp) marked |= shared.marked[Stage(t)][warp];
      if (!Usual(marked == 0)) AddMarkedCodes<C>(h.attention, h.box_slots, notes, rows);
    }
    ChangeCodeScores<C>(h.attention, shared, notes, scores, rows);
  }

  // What follows the products of this tile's scores: see MeetTile.
  ANNULUS_DEVICE void Meet(const float (&factors)[2], float (&scores)[C::kScores],
                           ConsumerRows<C>& rows, TileFactors& own, float (&carry)[2]) const {
    SettleRegisters(scores);
    const int32_t special = shared.notes[StageOf<C::kNotes>(tile)].special;
    Release(shared.keys_free[Stage(tile)]);
    Prepare(tile, special, scores, rows);
    MeetTile<C>(scores, factors, rows, own, carry);
  }

  // After StartPart of the first part of tile t, whose weights have to stay until this returns:
  // waits for it, and for the others one by one. `meanwhile` is done while the last one runs.
  template <class Work>
  ANNULUS_DEVICE void FinishParts(uint32_t t, const uint32_t (&weights)[C::kKeys / C::kDepth][4],
                                  const float (&carry)[2], float (&part)[C::kPartColumns / 2],
                                  ConsumerRows<C>& rows, const Work& meanwhile) const {
#pragma unroll
    for (int i = 1; i < C::kParts; ++i) {
      WgmmaWait<0>();
      AddPart<C>(i - 1, part, carry, rows);
      StartPart<C>(shared, Stage(t), i, weights, part);
    }
    meanwhile();
    WgmmaWait<0>();
    AddPart<C>(C::kParts - 1, part, carry, rows);
    Release(shared.columns_free[Stage(t)]);
  }

  ANNULUS_DEVICE void Attend(int tiles, ConsumerRows<C>& rows) {
    float scores[C::kScores];
    float part[C::kPartColumns / 2];
    uint32_t weights[C::kKeys / C::kDepth][4];
    float factors[2];
    float carry[2] = {};  // of the tile before
    TileFactors own;
    FactorsOf<C>(h.attention, shared, factors);
    WaitForKeys(tile);
    StartCodeScores<C>(shared, Stage(tile), scores);
    WgmmaWait<0>();
    Meet(factors, scores, rows, own, carry);
    WeighTile<C>(factors, own, scores, rows);
    PackCodeWeights<C>(scores, weights);
#pragma unroll 1
    for (const uint32_t last = tile + static_cast<uint32_t>(tiles) - 1; tile != last;) {
      const uint32_t before = tile++;
#pragma unroll
      for (int i = 0; i < 2; ++i) carry[i] = own.carry[i];
      WaitForKeys(tile);
      StartCodeScores<C>(shared, Stage(tile), scores);
      WaitForColumns(before);
      StartPart<C>(shared, Stage(before), 0, weights, part);
      WgmmaWait<1>();
      Meet(factors, scores, rows, own, carry);
      FinishParts(before, weights, carry, part, rows, [&] {
        WeighTile<C>(factors, own, scores, rows);
        SettleRegisters(scores);  // weights are made here, not later
      });
      PackCodeWeights<C>(scores, weights);
    }
    WaitForColumns(tile);
    StartPart<C>(shared, Stage(tile), 0, weights, part);
    FinishParts(tile, weights, own.carry, part, rows, [] {});
    ++tile;
  }

  // Loads the rows and queries of a unit and returns its number of tiles.
  ANNULUS_DEVICE int Begin(int64_t index, ConsumerRows<C>& rows) const {
    const AttentionArguments& a = h.attention;
    const AttentionUnit unit = a.units[index];
    const AttentionItemView item = a.items[unit.item];
    StartRows<C>(a, unit, item, rows);
    // Waits until all warps have finished with the previous queries; the second wait, until these
    // are written.
    SyncSome(kQueryReady + ConsumerOf(), kWarpgroup);
    LoadQueryCodes<C>(a, unit, item, shared);
    FenceSharedForEngines();
    SyncSome(kQueryReady + ConsumerOf(), kWarpgroup);
    return TilesOf<C>(h, unit, item);
  }

  ANNULUS_DEVICE void Run() {
    for (int round = 0; round * GridX() < h.units; ++round) {
      const int64_t index = UnitOfRound(round);
      if (index >= h.units) continue;
      ConsumerRows<C> rows;
      const int tiles = Begin(index, rows);
      if (tiles > 0) Attend(tiles, rows);
      StoreConsumerRows<C>(h.attention, UnitOfRound(round), rows);
    }
  }
};

// Called by one thread.
template <class C>
ANNULUS_DEVICE void InitBarriers(Float8Shared<C>& shared) {
  constexpr int kConsumerWarps = C::kConsumerThreads / kWarp;
  for (int s = 0; s < C::kStages; ++s) {
    InitPhaseBarrier(shared.keys_full[s], 1);
    InitPhaseBarrier(shared.keys_free[s], kConsumerWarps);
    InitPhaseBarrier(shared.values_full[s], 1);
    InitPhaseBarrier(shared.values_free[s], C::kTransposers);
    InitPhaseBarrier(shared.columns_full[s], C::kTransposers);
    InitPhaseBarrier(shared.columns_free[s], kConsumerWarps);
  }
  FencePhaseBarriers();
}

template <class C>
ANNULUS_KERNEL(C::kThreads, 1)
Float8AttentionKernel(ANNULUS_ARGUMENT HopperAttentionArguments h) {
  // 65536 registers for 3 warpgroups: each thread starts with 168.
  constexpr int kProducerRegisters = 56;
  constexpr int kConsumerRegisters = (3 * 168 - kProducerRegisters) / 2;
  auto& shared = *reinterpret_cast<Float8Shared<C>*>(SharedMemory());
  if (ThreadIndex() == 0) InitBarriers<C>(shared);
  SyncThreads();
  if (ThreadIndex() < kWarpgroup) {
    GiveRegisters<kProducerRegisters>();
    if (WarpIndex() == 0) {
      Produce<C>(h, shared);
    } else {
      TransposeTiles<C>(h, shared);
    }
  } else {
    TakeRegisters<kConsumerRegisters>();
    Float8Consumer<C>{h, shared}.Run();
  }
}

template <class C>
int LaunchOf(StreamHandle stream, int64_t blocks, const HopperAttentionArguments& arguments) {
  static_assert(sizeof(Float8Shared<C>) <= HopperShared<C>::kMostBytes);
  const Grid grid{.x = blocks, .threads = C::kThreads, .shared_bytes = sizeof(Float8Shared<C>)};
  return Launch<Float8AttentionKernel<C>>(stream, grid, arguments);
}

}  // namespace

int LaunchFloat8Attention(StreamHandle stream, int dim, int64_t blocks,
                          const HopperAttentionArguments& arguments) {
  if (dim <= 64) return LaunchOf<Float8Config<64>>(stream, blocks, arguments);
  return LaunchOf<Float8Config<128>>(stream, blocks, arguments);
}

}  // namespace annulus::cuda
