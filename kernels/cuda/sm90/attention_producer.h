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

// A lane's walk over its boxes of a unit, one box for each tile. The producer's instructions are
// between a free stage and its copies, so this divides only once for each unit, and asks for a page
// one tile before it is needed, and for its index in a list two tiles before.
class BoxWalk {
 public:
  ANNULUS_DEVICE BoxWalk(const HopperAttentionArguments& h, const AttentionUnit& unit,
                         const AttentionItemView& item, const BoxRange& range, int boxes)
      : pages_(item.pages),
        lists_(item.lists),
        page_offset_(item.page_offset),
        box_slots_(h.box_slots),
        per_page_(h.attention.layout.page_tokens / h.box_slots),
        step_pages_(boxes / per_page_),
        step_parts_(boxes % per_page_),
        boxes_(boxes),
        left_(range.end - range.begin - Lane()) {
    const int box = range.begin + Lane();
    page_ = unit.page_begin + box / per_page_;
    part_ = box % per_page_;
    index_ = IndexAt();
    LoadView();
    Advance();
  }

  // The lane's box of this tile, if it has one (see TileBoxes); starts loading that of the next.
  ANNULUS_DEVICE KeyBox Take() {
    const int slot = slot_;
    const KeyBox box{view_.data + page_offset_, slot, view_.first_position + slot,
                     Smaller(view_.tokens - slot, box_slots_)};
    LoadView();
    Advance();
    return box;
  }

 private:
  ANNULUS_DEVICE int IndexAt() const {
    if (left_ <= 0) return 0;
    return lists_ == nullptr ? page_ : lists_[page_];
  }
  ANNULUS_DEVICE void LoadView() {
    slot_ = part_ * box_slots_;
    if (left_ > 0) view_ = pages_[index_];
  }
  ANNULUS_DEVICE void Advance() {
    left_ -= boxes_;
    page_ += step_pages_;
    part_ += step_parts_;
    if (part_ >= per_page_) {
      part_ -= per_page_;
      ++page_;
    }
    index_ = IndexAt();
  }

  const KvPageView* pages_;
  const int32_t* lists_;
  int64_t page_offset_;
  int box_slots_;
  int per_page_;
  int step_pages_;
  int step_parts_;
  int boxes_;
  int left_;           // boxes from that of page_ and part_ to the unit's last
  int page_;           // of the box after the next one: into the item's lists or pages
  int part_;           // its number within the page
  int index_;          // of its page
  KvPageView view_{};  // of the next box
  int slot_;
};

// Positions of a unit's rows.
struct PositionRange {
  int64_t lowest;
  int64_t highest;
};

// Writes the notes that consumers need about a tile. Lane b < count has box b of the tile. Only
// tiles that hide keys need more than one word.
template <class C>
ANNULUS_DEVICE void WriteNotes(const HopperAttentionArguments& h, const AttentionUnit& unit,
                               const KeyBox& box, int count, const PositionRange& rows,
                               TileNotes<C>& notes) {
  const AttentionArguments& a = h.attention;
  const int box_shift = CountBits(static_cast<uint32_t>(h.box_slots) - 1);  // a power of 2
  const bool mine = Lane() < count;
  const int64_t last = int64_t{box.first} + box.present - 1;
  bool hidden = Lane() < C::kKeys >> box_shift && !mine;
  if (mine) {
    hidden = box.present < h.box_slots || last > rows.lowest ||
             (a.window > 0 && box.first <= rows.highest - a.window);
  }
  const bool hides = Ballot(hidden) != 0;
  const int32_t changed = a.soft_cap > 0 || a.scale <= 0 ? kChangedScores : 0;
  if (Lane() == 0) notes.special = changed + (hides ? kHiddenKeys : 0);
  if (!hides) return;
  if (mine) notes.values[Lane()] = box.page + a.layout.Value(unit.kv_head, box.slot);
#pragma unroll 1
  for (int i = 0; i < C::kKeys; i += kWarp) {
    const int key = i + Lane();
    const auto first =
        static_cast<int>(ShuffleFrom(static_cast<uint32_t>(box.first), key >> box_shift));
    const auto present =
        static_cast<int>(ShuffleFrom(static_cast<uint32_t>(box.present), key >> box_shift));
    const int offset = key & (h.box_slots - 1);
    notes.position[key] = offset < present ? first + offset : -1;
  }
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

// Starts a tile's keys of 16-bit pages as soon as their destination is free.
template <class C>
ANNULUS_DEVICE void StartKeys(const HopperAttentionArguments& h, const AttentionUnit& unit,
                              const PositionRange& range, const KeyBox& box, const TileBoxes& boxes,
                              uint32_t tile, HopperShared<C>& shared) {
  const int stage = StageOf<C::kStages>(tile);
  WaitForPhase(shared.keys_free[stage], ParityOf<C::kStages>(tile) ^ 1);
  WriteNotes<C>(h, unit, box, boxes.count, range, shared.notes[StageOf<C::kNotes>(tile)]);
  StartBoxes<C>(h, h.keys, boxes, 0, shared.keys_full[stage], shared.keys[stage]);
}
// The same for its values.
template <class C>
ANNULUS_DEVICE void StartValues(const HopperAttentionArguments& h, const TileBoxes& boxes,
                                uint32_t tile, HopperShared<C>& shared) {
  const int stage = StageOf<C::kStages>(tile);
  WaitForPhase(shared.values_free[stage], ParityOf<C::kStages>(tile) ^ 1);
  StartBoxes<C>(h, h.values, boxes, 0, shared.values_full[stage], shared.values[stage]);
}

// The same for codes, as piece number `piece`. The scales of int8 come with the keys, because
// consumers need them before the values.
template <class C>
ANNULUS_DEVICE void StartKeyCodes(const HopperAttentionArguments& h, const AttentionUnit& unit,
                                  const PositionRange& range, const KeyBox& box,
                                  const TileBoxes& boxes, uint32_t tile, uint32_t piece,
                                  HopperShared<C>& shared) {
  const PageLayout& layout = h.attention.layout;
  CodeNotes<C>& notes = shared.code_notes;
  const bool scaled = layout.dtype == DType::kI8;
  const int scale_bytes = scaled ? h.box_slots * 2 : 0;  // for the keys, and again for the values
  const int stage = StageOf<C::kCodeStages>(piece);
  WaitForPhase(notes.free[stage], ParityOf<C::kCodeStages>(piece) ^ 1);
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
}
template <class C>
ANNULUS_DEVICE void StartValueCodes(const HopperAttentionArguments& h, const TileBoxes& boxes,
                                    uint32_t piece, HopperShared<C>& shared) {
  const int stage = StageOf<C::kCodeStages>(piece);
  WaitForPhase(shared.code_notes.free[stage], ParityOf<C::kCodeStages>(piece) ^ 1);
  StartBoxes<C>(h, h.values, boxes, 0, shared.code_notes.full[stage], shared.codes.stages[stage]);
}

// Brings a unit's queries into the L2 cache: its consumers load them some tiles later.
ANNULUS_DEVICE void PrefetchQueries(const AttentionArguments& a, const AttentionUnit& unit,
                                    const AttentionItemView& item) {
  const int bytes = a.layout.k_dim * static_cast<int>(sizeof(float));
  for (int r = Lane(); r < unit.row_count; r += kWarp) {
    const float* const query = QueryOf(a, unit, item, r);
    if (bytes % 16 == 0 && reinterpret_cast<uintptr_t>(query) % 16 == 0) {
      PrefetchBytes(query, bytes);
    }
  }
}

// Run by one warp, for all units of the block. The values of a tile are copied after the keys of
// the next one, which consumers need first and release earlier.
template <class C>
ANNULUS_DEVICE void Produce(const HopperAttentionArguments& h, HopperShared<C>& shared) {
  const AttentionArguments& a = h.attention;
  const int boxes = C::kKeys / h.box_slots;
  if (Lane() == 0) {
    PrefetchTensorMap(h.keys);
    PrefetchTensorMap(h.values);
  }
  uint32_t tile = 0;
  [[maybe_unused]] uint32_t piece = 0;
  TileBoxes behind{};  // of the tile before
  const auto start_values = [&] {
    if constexpr (C::kNarrow) {
      StartValueCodes<C>(h, behind, piece++, shared);
    } else {
      StartValues<C>(h, behind, tile - 1, shared);
    }
  };
  for (int round = 0; round * GridX() < h.units; ++round) {
    const int64_t index = UnitOfRound(round);
    if (index >= h.units) continue;
    const AttentionUnit unit = a.units[index];
    const AttentionItemView item = a.items[unit.item];
    PrefetchQueries(a, unit, item);
    const PositionRange positions{LowestPosition(a, unit, item), HighestPosition(a, unit, item)};
    const BoxRange range = BoxesOf(h, unit, item);
    if (range.begin == range.end) continue;
    BoxWalk walk(h, unit, item, range, boxes);
#pragma unroll 1
    for (int begin = range.begin; begin < range.end; begin += boxes, ++tile) {
      TileBoxes own{Smaller(range.end - begin, boxes), 0, 0};
      KeyBox box = walk.Take();
      if (Lane() >= own.count) box = {};
      own.page = static_cast<int>((box.page - h.first_page) >> h.page_shift);
      own.row = unit.kv_head * a.layout.page_tokens + box.slot;
      if constexpr (C::kNarrow) {
        StartKeyCodes<C>(h, unit, positions, box, own, tile, piece++, shared);
      } else {
        StartKeys<C>(h, unit, positions, box, own, tile, shared);
      }
      if (tile != 0) start_values();
      behind = own;
    }
  }
  if (tile != 0) start_values();
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM90_ATTENTION_PRODUCER_H_
