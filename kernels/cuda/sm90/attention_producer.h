#ifndef ANNULUS_KERNELS_CUDA_SM90_ATTENTION_PRODUCER_H_
#define ANNULUS_KERNELS_CUDA_SM90_ATTENTION_PRODUCER_H_

// The producer of attention_kernel.h: one warp, with a lane for every box of a tile. It copies
// 16-bit pages to where products read them, and 8-bit pages to the wideners (attention_widener.h).
#include "kernels/cuda/sm90/attention_shared.h"

namespace annulus::cuda {

// A lane's part of a page.
struct KeyBox {
  const std::byte* page;
  int slot;
  int first;    // position of that slot
  int present;  // slots that hold a key; none if <= 0
};

ANNULUS_DEVICE KeyBox BoxAt(const HopperAttentionArguments& h, const AttentionUnit& unit,
                            const AttentionItemView& item, int box) {
  const int per_page = h.attention.layout.page_tokens / h.box_slots;
  const KvPageView& page = PageOf(item, unit.page_begin + box / per_page);
  const int slot = box % per_page * h.box_slots;
  return {page.data + item.page_offset, slot, page.first_position + slot,
          Smaller(page.tokens - slot, h.box_slots)};
}

// Positions of a unit's rows.
struct PositionRange {
  int64_t lowest;
  int64_t highest;
};

// Writes the notes that consumers need about a tile. Lane b < count has box b of the tile.
template <class C>
ANNULUS_DEVICE void WriteNotes(const HopperAttentionArguments& h, const AttentionUnit& unit,
                               const KeyBox& box, int count, const PositionRange& rows,
                               TileNotes<C>& notes) {
  const AttentionArguments& a = h.attention;
  const int boxes = C::kKeys / h.box_slots;
  const bool mine = Lane() < count;
#pragma unroll
  for (int i = 0; i < C::kKeys; i += kWarp) {
    const int key = i + Lane();
    const auto first =
        static_cast<int>(ShuffleFrom(static_cast<uint32_t>(box.first), key / h.box_slots));
    const auto present =
        static_cast<int>(ShuffleFrom(static_cast<uint32_t>(box.present), key / h.box_slots));
    const int offset = key % h.box_slots;
    notes.position[key] = offset < present ? first + offset : -1;
  }
  const int64_t last = int64_t{box.first} + box.present - 1;
  bool hidden = Lane() < boxes && !mine;
  if (mine) {
    hidden = box.present < h.box_slots || last > rows.lowest ||
             (a.window > 0 && box.first <= rows.highest - a.window);
    notes.values[Lane()] = box.page + a.layout.Value(unit.kv_head, box.slot);
  }
  const uint32_t any = WarpMax(static_cast<uint32_t>(hidden));
  if (Lane() == 0) notes.hidden = static_cast<int32_t>(any);
}

// The sources of the copies of a tile's boxes.
struct TileBoxes {
  int count;  // of lanes that have a box
  int row;    // of this lane's box
  int page;
};

// Starts the copies of the boxes of one tile's keys or values, whose destination must be free.
// Those who wait for `full` see the notes written before SyncWarp, and also wait for `more_bytes`
// of each box.
template <class C>
ANNULUS_DEVICE void StartBoxes(const HopperAttentionArguments& h, const TensorMap& map,
                               const TileBoxes& boxes, int more_bytes, PhaseBarrier& full,
                               std::byte (&panels)[C::kCopyPanels][C::kKeys * kPanelRowBytes]) {
  const int box_bytes = h.box_slots * kPanelRowBytes;
  SyncWarp();
  if (Lane() == 0) {
    ArriveExpecting(full, boxes.count * (C::kCopyPanels * box_bytes + more_bytes));
  }
  SyncWarp();
  if (Lane() >= boxes.count) return;
#pragma unroll
  for (int p = 0; p < C::kCopyPanels; ++p) {
    CopyBox(panels[p] + Lane() * box_bytes, map, full, p * C::kCopyColumns, boxes.row, boxes.page);
  }
}

// Starts a tile of 16-bit pages, each half as soon as its destination is free.
template <class C>
ANNULUS_DEVICE void StartOperands(const HopperAttentionArguments& h, const AttentionUnit& unit,
                                  const PositionRange& range, const KeyBox& box,
                                  const TileBoxes& boxes, uint32_t tile, HopperShared<C>& shared) {
  const int stage = StageOf<C::kStages>(tile);
  const int parity = ParityOf<C::kStages>(tile);
  WaitForPhase(shared.keys_free[stage], parity ^ 1);
  WriteNotes<C>(h, unit, box, boxes.count, range, shared.notes[StageOf<C::kNotes>(tile)]);
  StartBoxes<C>(h, h.keys, boxes, 0, shared.keys_full[stage], shared.keys[stage]);
  WaitForPhase(shared.values_free[stage], parity ^ 1);
  StartBoxes<C>(h, h.values, boxes, 0, shared.values_full[stage], shared.values[stage]);
}

// The same for codes. The scales of int8 come with the keys, because consumers need them before the
// values.
template <class C>
ANNULUS_DEVICE void StartCodes(const HopperAttentionArguments& h, const AttentionUnit& unit,
                               const PositionRange& range, const KeyBox& box,
                               const TileBoxes& boxes, uint32_t tile, HopperShared<C>& shared) {
  const PageLayout& layout = h.attention.layout;
  CodeNotes<C>& notes = shared.code_notes;
  const bool scaled = layout.dtype == DType::kI8;
  const int scale_bytes = scaled ? h.box_slots * 2 : 0;  // for the keys, and again for the values
  const uint32_t keys = 2 * tile;                        // number of this piece
  const int stage = StageOf<C::kCodeStages>(keys);
  WaitForPhase(notes.free[stage], ParityOf<C::kCodeStages>(keys) ^ 1);
  WriteNotes<C>(h, unit, box, boxes.count, range, shared.notes[StageOf<C::kNotes>(tile)]);
  StartBoxes<C>(h, h.keys, boxes, 2 * scale_bytes, notes.full[stage], shared.codes.stages[stage]);
  if (scaled && Lane() < boxes.count) {
    const int to = Lane() * h.box_slots;
    const int own = StageOf<C::kNotes>(tile);
    CopyBytes(notes.key_scales[own] + to, box.page + layout.KeyScale(unit.kv_head, box.slot),
              scale_bytes, notes.full[stage]);
    CopyBytes(notes.value_scales[own] + to, box.page + layout.ValueScale(unit.kv_head, box.slot),
              scale_bytes, notes.full[stage]);
  }
  const uint32_t values = keys + 1;
  const int next = StageOf<C::kCodeStages>(values);
  WaitForPhase(notes.free[next], ParityOf<C::kCodeStages>(values) ^ 1);
  StartBoxes<C>(h, h.values, boxes, 0, notes.full[next], shared.codes.stages[next]);
}

// Run by one warp, for all units of the block.
template <class C>
ANNULUS_DEVICE void Produce(const HopperAttentionArguments& h, HopperShared<C>& shared) {
  const AttentionArguments& a = h.attention;
  const int boxes = C::kKeys / h.box_slots;
  if (Lane() == 0) {
    PrefetchTensorMap(h.keys);
    PrefetchTensorMap(h.values);
  }
  uint32_t tile = 0;
  for (int64_t round = 0; round * GridX() < h.units; ++round) {
    const int64_t index = UnitOfRound(round);
    if (index >= h.units) continue;
    const AttentionUnit unit = a.units[index];
    const AttentionItemView item = a.items[unit.item];
    const PositionRange positions{LowestPosition(a, unit, item), HighestPosition(a, unit, item)};
    const BoxRange range = BoxesOf(h, unit, item);
    for (int begin = range.begin; begin < range.end; begin += boxes, ++tile) {
      TileBoxes own{Smaller(range.end - begin, boxes), 0, 0};
      KeyBox box{};
      if (Lane() < own.count) {
        box = BoxAt(h, unit, item, begin + Lane());
        own.page = static_cast<int>((box.page - h.first_page) >> h.page_shift);
      }
      own.row = unit.kv_head * a.layout.page_tokens + box.slot;
      if constexpr (C::kNarrow) {
        StartCodes<C>(h, unit, positions, box, own, tile, shared);
      } else {
        StartOperands<C>(h, unit, positions, box, own, tile, shared);
      }
    }
  }
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM90_ATTENTION_PRODUCER_H_
