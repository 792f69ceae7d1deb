// See attention_pairs.h. Warps, tiles and sums are those of attention_kernel.h, with these changes:
//
// - A stage is filled for both blocks at once, so it is free once the consumers of both have
//   released it: they arrive at the barriers of both blocks.
// - Both blocks walk the tiles of the longer unit of a pair. The notes are each block's own, and
//   beyond its unit they name no keys. What is left of the pair's tiles after the unit's last one,
//   its consumers only release.
// - One lane of the first block takes pairs for both blocks (Turn). It asks for the next pair when
//   all copies of this one have started, while the last tiles are computed.
//
// The values of a unit's last tile are copied before the next pair is asked for: all consumers must
// have read the number of a pair before the next one takes its place, and to get there they need
// these values.
#include "kernels/cuda/common/multicast.h"
#include "kernels/cuda/sm90/attention_kernel.h"
#include "kernels/cuda/sm90/attention_pairs.h"

namespace annulus::cuda {
namespace {

struct PairConfig : HopperConfig<BFloat16, kMostPairedDim, false> {
  static constexpr int kBlocks = kPairBlocks;
};
using C = PairConfig;

// The pair that the cluster computes, told to each block.
struct Turn {
  PhaseBarrier full;
  PhaseBarrier free;  // of the first block, for all readers of both
  int32_t pair;
};

struct PairShared {
  HopperShared<C> tiles;
  Turn turn;
};
constexpr int kConsumerWarps = C::kConsumerThreads / kWarp;
constexpr int kReaders = 1 + kConsumerWarps;  // warps of a block that read each turn

// A warp's walk over the pairs of its cluster.
class PairWalk {
 public:
  ANNULUS_DEVICE PairWalk(const PairedAttentionArguments& a, Turn& turn) : a_(a), turn_(turn) {}

  // Called by one warp of the first block: decides the pair that Next returns.
  ANNULUS_DEVICE void Decide() {
    WaitForClusterPhase(turn_.free, static_cast<int>(number_ % 2) ^ 1);
    if (Lane() == 0) {
      const auto clusters = static_cast<int32_t>(GridX() / kPairBlocks);
      const auto own = static_cast<int32_t>(BlockX() / kPairBlocks);
      const int32_t pair = number_ == 0 ? own : clusters - 1 + Arrivals(a_.next);
      for (int rank = 0; rank < kPairBlocks; ++rank) {
        *InBlock(&turn_.pair, rank) = pair;
        ArriveIn(turn_.full, rank);
      }
    }
    SyncWarp();
  }

  // Whether there is another pair; called by every reader.
  ANNULUS_DEVICE bool Next() {
    WaitForClusterPhase(turn_.full, static_cast<int>(number_++ % 2));
    pair_ = turn_.pair;
    SyncWarp();
    if (Lane() == 0) ArriveIn(turn_.free, 0);
    return int64_t{kPairBlocks} * pair_ < a_.hopper.units;
  }

  // The unit of this block, or of the other one.
  ANNULUS_DEVICE int64_t Own() const { return int64_t{kPairBlocks} * pair_ + ClusterRank(); }
  ANNULUS_DEVICE int64_t Other() const { return Own() ^ 1; }

 private:
  const PairedAttentionArguments& a_;
  Turn& turn_;
  uint32_t number_ = 0;
  int32_t pair_ = 0;
};

ANNULUS_DEVICE BoxRange BoxesOfUnit(const HopperAttentionArguments& h, const AttentionUnit& unit,
                                    const AttentionItemView& item) {
  if (unit.row_count == 0) return {0, 0};
  return BoxesOf(h, unit, item);
}

ANNULUS_DEVICE int TilesOfBoxes(const HopperAttentionArguments& h, const BoxRange& range) {
  const int boxes = C::kKeys / h.box_slots;
  return (range.end - range.begin + boxes - 1) / boxes;
}

// Starts this block's half of the copies of one tile's keys or values, for both blocks, and lets
// `full` expect both halves.
ANNULUS_DEVICE void StartHalf(const HopperAttentionArguments& h, const TensorMap& map,
                              const TileBoxes& boxes, PhaseBarrier& full,
                              std::byte (&panels)[C::kCopyPanels][C::kKeys * kPanelRowBytes]) {
  const int box_bytes = h.box_slots * kPanelRowBytes;
  SyncWarp();
  if (Lane() == 0) ArriveExpecting(full, boxes.count * C::kCopyPanels * box_bytes);
  SyncWarp();
  if (Lane() >= boxes.count) return;
#pragma unroll
  for (int p = 0; p < C::kCopyPanels; ++p) {
    if ((p + Lane()) % kPairBlocks != ClusterRank()) continue;
    CopyBoxToBlocks<kPairBlocks>(panels[p] + Lane() * box_bytes, map, full, p * C::kCopyColumns,
                                 boxes.row, boxes.page);
  }
}

// The producer of a block: one warp.
class PairProducer {
 public:
  ANNULUS_DEVICE PairProducer(const PairedAttentionArguments& a, PairShared& shared)
      : a_(a), h_(a.hopper), shared_(shared) {}

  ANNULUS_DEVICE void Run() {
    if (Lane() == 0) {
      PrefetchTensorMap(h_.keys);
      PrefetchTensorMap(h_.values);
    }
    PairWalk walk(a_, shared_.turn);
    for (;;) {
      if (ClusterRank() == 0) walk.Decide();
      if (!walk.Next()) return;
      CopyTiles(walk);
    }
  }

 private:
  ANNULUS_DEVICE void CopyTiles(const PairWalk& walk) {
    const AttentionArguments& attention = h_.attention;
    const AttentionUnit own = attention.units[walk.Own()];
    const AttentionUnit other = attention.units[walk.Other()];
    const AttentionItemView item = attention.items[own.item];
    PrefetchQueries(attention, own, item);
    const BoxRange own_range = BoxesOfUnit(h_, own, item);
    const BoxRange other_range = BoxesOfUnit(h_, other, item);
    const bool longer = own_range.end >= other_range.end;
    const BoxRange range = longer ? own_range : other_range;
    if (range.begin == range.end) return;
    PositionRange positions{0, 0};
    if (own.row_count > 0) {
      positions = {LowestPosition(attention, own, item), HighestPosition(attention, own, item)};
    }
    const int boxes = C::kKeys / h_.box_slots;
    BoxWalk pages(h_, longer ? own : other, item, range, boxes);
    TileBoxes behind{};  // of the tile before
#pragma unroll 1
    for (int begin = range.begin; begin < range.end; begin += boxes, ++tile_) {
      TileBoxes all{Smaller(range.end - begin, boxes), 0, 0};
      KeyBox box = pages.Take();
      if (Lane() >= all.count) box = {};
      all.page = static_cast<int>((box.page - h_.first_page) >> h_.page_shift);
      all.row = own.kv_head * attention.layout.page_tokens + box.slot;
      StartKeys(own, Smaller(own_range.end - begin, boxes), positions, box, all);
      if (begin != range.begin) StartValues(behind, tile_ - 1);
      behind = all;
    }
    StartValues(behind, tile_ - 1);
  }

  // `seen`: boxes of the tile that are the own unit's.
  ANNULUS_DEVICE void StartKeys(const AttentionUnit& own, int seen, const PositionRange& positions,
                                KeyBox box, const TileBoxes& all) {
    HopperShared<C>& tiles = shared_.tiles;
    const int stage = StageOf<C::kStages>(tile_);
    WaitForClusterPhase(tiles.keys_free[stage], ParityOf<C::kStages>(tile_) ^ 1);
    if (seen > 0) {
      if (Lane() >= seen) box = {};
      WriteNotes<C>(h_, own, box, seen, positions, tiles.notes[StageOf<C::kNotes>(tile_)]);
    }
    StartHalf(h_, h_.keys, all, tiles.keys_full[stage], tiles.keys[stage]);
  }
  ANNULUS_DEVICE void StartValues(const TileBoxes& all, uint32_t tile) {
    HopperShared<C>& tiles = shared_.tiles;
    const int stage = StageOf<C::kStages>(tile);
    WaitForClusterPhase(tiles.values_free[stage], ParityOf<C::kStages>(tile) ^ 1);
    StartHalf(h_, h_.values, all, tiles.values_full[stage], tiles.values[stage]);
  }

  const PairedAttentionArguments& a_;
  const HopperAttentionArguments& h_;
  PairShared& shared_;
  uint32_t tile_ = 0;
};

ANNULUS_DEVICE void Consume(const PairedAttentionArguments& a, PairShared& shared) {
  const HopperAttentionArguments& h = a.hopper;
  Consumer<C> consumer{h, shared.tiles};
  PairWalk walk(a, shared.turn);
  while (walk.Next()) {
    const AttentionUnit own = h.attention.units[walk.Own()];
    const AttentionUnit other = h.attention.units[walk.Other()];
    const AttentionItemView item = h.attention.items[own.item];
    const int tiles = TilesOfBoxes(h, BoxesOfUnit(h, own, item));
    const int left = Larger(TilesOfBoxes(h, BoxesOfUnit(h, other, item)) - tiles, 0);
    if (own.row_count > 0) {
      ConsumerRows<C> rows;
      consumer.Begin(walk.Own(), rows);
      if (tiles > 0) consumer.Attend(tiles, rows);
      StoreConsumerRows<C>(h.attention, walk.Own(), rows);
    }
#pragma unroll 1
    for (int i = 0; i < left; ++i, ++consumer.tile) {
      consumer.WaitForKeys(consumer.tile);
      consumer.Release(shared.tiles.keys_free[Consumer<C>::Stage(consumer.tile)]);
      consumer.WaitForValues(consumer.tile);
      consumer.Release(shared.tiles.values_free[Consumer<C>::Stage(consumer.tile)]);
    }
  }
}

ANNULUS_CLUSTER_KERNEL(kPairBlocks, C::kThreads, 1)
PairedAttentionKernel(ANNULUS_ARGUMENT PairedAttentionArguments a) {
  // 65536 registers for 3 warpgroups: each thread starts with 168.
  constexpr int kProducerRegisters = 72;
  constexpr int kConsumerRegisters = (3 * 168 - kProducerRegisters) / 2;
  auto& shared = *reinterpret_cast<PairShared*>(SharedMemory());
  if (ThreadIndex() == 0) {
    for (int s = 0; s < C::kStages; ++s) {
      InitPhaseBarrier(shared.tiles.keys_full[s], 1);
      InitPhaseBarrier(shared.tiles.values_full[s], 1);
      InitPhaseBarrier(shared.tiles.keys_free[s], kPairBlocks * kConsumerWarps);
      InitPhaseBarrier(shared.tiles.values_free[s], kPairBlocks * kConsumerWarps);
    }
    InitPhaseBarrier(shared.turn.full, 1);
    InitPhaseBarrier(shared.turn.free, kPairBlocks * kReaders);
    FencePhaseBarriers();
  }
  SyncCluster();
  if (ThreadIndex() < kWarpgroup) {
    GiveRegisters<kProducerRegisters>();
    if (WarpIndex() == 0) PairProducer(a, shared).Run();
  } else {
    TakeRegisters<kConsumerRegisters>();
    Consume(a, shared);
  }
  SyncCluster();  // no block ends while the other one copies or arrives there
}

}  // namespace

int LaunchPairedAttention(StreamHandle stream, int64_t clusters,
                          const PairedAttentionArguments& arguments) {
  static_assert(sizeof(PairShared) <= HopperShared<C>::kMostBytes);
  const Grid grid{
      .x = clusters * kPairBlocks, .threads = C::kThreads, .shared_bytes = sizeof(PairShared)};
  return LaunchInClusters<PairedAttentionKernel, kPairBlocks>(stream, grid, arguments);
}

}  // namespace annulus::cuda
