#ifndef ANNULUS_KERNELS_CUDA_SM90_ATTENTION_PRODUCER_H_
#define ANNULUS_KERNELS_CUDA_SM90_ATTENTION_PRODUCER_H_

// The producer of attention_kernel.h: one warp, a lane for every box of a tile.
#include "kernels/cuda/sm90/attention_shared.h"

namespace annulus::cuda {

// A lane's part of a page.
struct KeyBox {
  const std::byte* page;
  int slot;
  int first;    // position
  int present;  // slots that hold a key; at most 0: none
};

ANNULUS_DEVICE KeyBox BoxAt(const HopperAttentionArguments& h, const AttentionUnit& unit,
                            const AttentionItemView& item, int box) {
  const int per_page = h.attention.layout.page_tokens / h.box_slots;
  const KvPageView& page = PageOf(item, unit.page_begin + box / per_page);
  const int slot = box % per_page * h.box_slots;
  return {page.data, slot, page.first_position + slot, Smaller(page.tokens - slot, h.box_slots)};
}

// Writes what the consumers want to know about a tile, of whose boxes lane b < count has box b.
template <class C>
ANNULUS_DEVICE void WriteNotes(const HopperAttentionArguments& h, const AttentionUnit& unit,
                               const KeyBox& box, int count, int64_t lowest, int64_t highest,
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
    hidden = box.present < h.box_slots || last > lowest ||
             (a.window > 0 && box.first <= highest - a.window);
    notes.values[Lane()] = box.page + a.layout.Value(unit.kv_head, box.slot);
  }
  const uint32_t any = WarpMax(static_cast<uint32_t>(hidden));
  if (Lane() == 0) notes.hidden = static_cast<int32_t>(any);
}

// Starts the copies of the boxes of one tile's keys or values; their place is free. Notes that
// were written before SyncWarp are seen by those who wait for `full`.
template <class C>
ANNULUS_DEVICE void StartBoxes(const HopperAttentionArguments& h, const TensorMap& map, int count,
                               int row, int page, PhaseBarrier& full,
                               std::byte (&panels)[C::kPanels][C::kKeys * kPanelRowBytes]) {
  const int box_bytes = h.box_slots * kPanelRowBytes;
  SyncWarp();
  if (Lane() == 0) ArriveExpecting(full, count * C::kPanels * box_bytes);
  SyncWarp();
  if (Lane() >= count) return;
#pragma unroll
  for (int p = 0; p < C::kPanels; ++p) {
    CopyBox(panels[p] + Lane() * box_bytes, map, full, p * kPanelColumns, row, page);
  }
}

// By one warp, for all units of the block.
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
    const int64_t lowest = LowestPosition(a, unit, item);
    const int64_t highest = HighestPosition(a, unit, item);
    const BoxRange range = BoxesOf(h, unit, item);
    for (int begin = range.begin; begin < range.end; begin += boxes, ++tile) {
      const int count = Smaller(range.end - begin, boxes);
      KeyBox box{};
      int page = 0;
      if (Lane() < count) {
        box = BoxAt(h, unit, item, begin + Lane());
        page = static_cast<int>((box.page - h.first_page) >> h.page_shift);
      }
      const int row = unit.kv_head * a.layout.page_tokens + box.slot;
      const int stage = static_cast<int>(tile % C::kStages);
      const int parity = static_cast<int>(tile / C::kStages % 2);
      WaitForPhase(shared.keys_free[stage], parity ^ 1);
      WriteNotes<C>(h, unit, box, count, lowest, highest, shared.notes[tile % C::kNotes]);
      StartBoxes<C>(h, h.keys, count, row, page, shared.keys_full[stage], shared.keys[stage]);
      WaitForPhase(shared.values_free[stage], parity ^ 1);
      StartBoxes<C>(h, h.values, count, row, page, shared.values_full[stage], shared.values[stage]);
    }
  }
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM90_ATTENTION_PRODUCER_H_
