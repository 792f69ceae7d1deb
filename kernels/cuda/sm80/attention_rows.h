#ifndef ANNULUS_KERNELS_CUDA_SM80_ATTENTION_ROWS_H_
#define ANNULUS_KERNELS_CUDA_SM80_ATTENTION_ROWS_H_

// What all kernels of attention share: tiles of keys, the mask, and where states go.
#include <cmath>

#include "kernels/cuda/common/convert.h"
#include "kernels/cuda/sm80/attention.h"

namespace annulus::cuda {

// Slots of one page that are attended together.
struct KeyTile {
  const std::byte* page;
  int32_t slot;   // of the page
  int32_t first;  // position
  int32_t count;  // slots that hold a key; may be negative
};

ANNULUS_DEVICE const KvPageView& PageOf(const AttentionItemView& item, int32_t index) {
  return item.pages[item.lists == nullptr ? index : item.lists[index]];
}

// Tile number `tile` of a unit; tiles of `keys` slots never cross a page.
template <int kKeys>
ANNULUS_DEVICE KeyTile TileAt(const AttentionArguments& a, const AttentionUnit& unit,
                              const AttentionItemView& item, int tile) {
  const int per_page = (a.layout.page_tokens + kKeys - 1) / kKeys;
  const KvPageView& page = PageOf(item, unit.page_begin + tile / per_page);
  const int32_t slot = tile % per_page * kKeys;
  return {page.data, slot, page.first_position + slot, Smaller(page.tokens - slot, kKeys)};
}

// How often the row at `position` counts the key in slot `slot`: 0 or 1, or the number of the
// item's branches that keep it. Compared in slots, so that no position is added up beyond int32.
ANNULUS_DEVICE int TimesSeen(const AttentionArguments& a, const AttentionItemView& item,
                             const KeyTile& tile, int32_t position, int head, int slot) {
  const int32_t low = position - a.window;
  if (slot >= tile.count || slot > position - tile.first) return 0;
  if (a.window > 0 && low >= tile.first && slot <= low - tile.first) return 0;
  if (item.branch_count == 0) return 1;
  const int32_t key = tile.first + slot;
  int times = 0;
  for (int b = 0; b < item.branch_count; ++b) {
    const DilatedBranch branch = item.branches[b];
    const int32_t residue = head % branch.rate;
    times += position / branch.segment == key / branch.segment &&
             position % branch.rate == residue && key % branch.rate == residue;
  }
  return times;
}

// Element `d` of a slot's value, from the page itself.
ANNULUS_DEVICE float ValueAt(const PageLayout& layout, const KeyTile& tile, int kv_head, int slot,
                             int d) {
  const float value =
      LoadElement(layout.dtype, tile.page + layout.Value(kv_head, tile.slot + slot), d);
  if (layout.dtype != DType::kI8) return value;
  return value * WidenBFloat16(*reinterpret_cast<const uint16_t*>(
                     tile.page + layout.ValueScale(kv_head, tile.slot + slot)));
}

// Where the state of a unit's row goes.
struct RowTarget {
  float* o;
  float* lse;
};

ANNULUS_DEVICE RowTarget TargetOf(const AttentionArguments& a, const AttentionUnit& unit,
                                  const AttentionItemView& item, int r) {
  int64_t index;
  if (unit.partial >= 0) {
    index = int64_t{unit.partial} + r;
    return {a.partial_o + index * a.layout.v_dim, a.partial_lse + index};
  }
  const int row = unit.row_begin + r;
  index = int64_t{row / a.group} * a.heads + unit.kv_head * a.group + row % a.group;
  return {item.o + index * a.layout.v_dim, item.lse + index};
}

ANNULUS_DEVICE float NaturalLse(float maximum, float sum) {
  constexpr float kLn2 = 0.6931471805599453f;
  return sum == 0 ? -FloatOf(0x7f800000u) : maximum * kLn2 + logf(sum);
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ATTENTION_ROWS_H_
