#ifndef ANNULUS_KERNELS_CUDA_SM80_ATTENTION_ROWS_H_
#define ANNULUS_KERNELS_CUDA_SM80_ATTENTION_ROWS_H_

// What all attention kernels share: tiles of keys, the mask, and how states are stored.
#include <cmath>

#include "kernels/cuda/common/convert.h"
#include "kernels/cuda/common/state.h"
#include "kernels/cuda/sm80/attention.h"

namespace annulus::cuda {

// Slots of one page that are attended together.
struct KeyTile {
  const std::byte* page;
  int32_t slot;   // within the page
  int32_t first;  // position of that slot
  int32_t count;  // slots that hold a key; may be negative
};

ANNULUS_DEVICE const KvPageView& PageOf(const AttentionItemView& item, int32_t index) {
  return item.pages[item.lists == nullptr ? index : item.lists[index]];
}

// Tile number `tile` of a unit. Tiles of `keys` slots never cross a page.
template <int kKeys>
ANNULUS_DEVICE KeyTile TileAt(const AttentionArguments& a, const AttentionUnit& unit,
                              const AttentionItemView& item, int tile) {
  const int per_page = (a.layout.page_tokens + kKeys - 1) / kKeys;
  const KvPageView& page = PageOf(item, unit.page_begin + tile / per_page);
  const int32_t slot = tile % per_page * kKeys;
  return {page.data + item.page_offset, slot, page.first_position + slot,
          Smaller(page.tokens - slot, kKeys)};
}

// How often the row at `position` counts the key in slot `slot`: 0 or 1 or, with branches, the
// number of branches that keep it. Compares slots instead of positions, so that nothing overflows
// int32.
ANNULUS_DEVICE int TimesSeen(const AttentionArguments& a, const AttentionItemView& item,
                             const KeyTile& tile, int32_t position, int head, int slot) {
  const int32_t low = position - a.window;
  if (slot >= tile.count || slot > position - tile.first) return 0;
  if (a.window > 0 && low >= tile.first && slot <= low - tile.first) return 0;
  if (item.branch_count == 0) return 1;
  const int32_t key = tile.first + slot;
  int times = 0;
#pragma unroll 1
  for (int b = 0; b < item.branch_count; ++b) {
    const DilatedBranch branch = item.branches[b];
    const int32_t residue = head % branch.rate;
    times += position / branch.segment == key / branch.segment &&
             position % branch.rate == residue && key % branch.rate == residue;
  }
  return times;
}

// The slots of a tile that the row at `position` sees, if its item has no branches: [begin, end).
struct SlotRange {
  int begin;
  int end;
};
ANNULUS_DEVICE SlotRange SlotsSeen(const AttentionArguments& a, const KeyTile& tile,
                                   int32_t position) {
  const int32_t low = position - a.window;
  const int end = position < tile.first ? 0 : Smaller(tile.count, position - tile.first + 1);
  return {a.window > 0 && low >= tile.first ? low - tile.first + 1 : 0, end};
}

// Element `d` of a slot's value, read from the page.
ANNULUS_DEVICE float ValueAt(const PageLayout& layout, const KeyTile& tile, int kv_head, int slot,
                             int d) {
  const float value =
      LoadElement(layout.dtype, tile.page + layout.Value(kv_head, tile.slot + slot), d);
  if (layout.dtype != DType::kI8) return value;
  return value * WidenBFloat16(*reinterpret_cast<const uint16_t*>(
                     tile.page + layout.ValueScale(kv_head, tile.slot + slot)));
}

// How to store the state of a unit's row: o = into * o + from * (sums of weight * value).
struct RowStore {
  float* o;
  float* lse;
  float new_lse;
  float into;
  float from;

  ANNULUS_DEVICE void Put(int d, float value) const {
    const float own = from == 0 ? 0 : from * value;
    o[d] = into == 0 ? own : into * o[d] + own;
  }
};

// The store of row r of the unit. `sum` is the sum of its weights relative to exp(maximum). If the
// item merges, this reads the present state, so no lane may store before all lanes of the row have
// called it. For rows beyond the unit's, returns a store without addresses.
ANNULUS_DEVICE RowStore StoreOf(const AttentionArguments& a, const AttentionUnit& unit,
                                const AttentionItemView& item, int r, float maximum, float sum) {
  if (r >= unit.row_count) return {};
  const float lse = sum == 0 ? -FloatOf(0x7f800000u) : maximum + logf(sum);
  const float reciprocal = sum == 0 ? 0 : 1 / sum;
  if (unit.partial >= 0) {
    const int64_t index = int64_t{unit.partial} + r;
    return {a.partial_o + index * a.layout.v_dim, a.partial_lse + index, lse, 0, reciprocal};
  }
  const int row = unit.row_begin + r;
  const int64_t index = int64_t{row / a.group} * a.heads + unit.kv_head * a.group + row % a.group;
  float* const o = item.o + index * a.layout.v_dim;
  if (!item.merges) return {o, item.lse + index, lse, 0, reciprocal};
  const MergeWeights weights = WeightsOfMerge(item.lse[index], lse);
  return {o, item.lse + index, weights.lse, weights.into, weights.from * reciprocal};
}

// Converts a maximum in units of log 2 to the natural logarithm that StoreOf takes.
ANNULUS_DEVICE float NaturalOf(float maximum) { return maximum * 0.6931471805599453f; }

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ATTENTION_ROWS_H_
