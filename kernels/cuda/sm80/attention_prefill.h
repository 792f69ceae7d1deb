#ifndef ANNULUS_KERNELS_CUDA_SM80_ATTENTION_PREFILL_H_
#define ANNULUS_KERNELS_CUDA_SM80_ATTENTION_PREFILL_H_

// Attention of many rows over pages by the tensor cores of compute capability 8.0 and up. Source:
// FlashAttention-2 (Dao 2023): online softmax, scores and output in registers; a tile's values
// arrive while its scores are computed, and the next tile's keys during softmax and output.
//
// A block computes one AttentionUnit. Tiles of kKeys slots never cross a page. Scores, weights and
// sums are float32; queries and weights are rounded to the operand type T. 8-bit codes are widened
// once per tile, into the place that products read. The scales of int8 multiply scores and weights,
// in float32.
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/widen.h"
#include "kernels/cuda/sm80/attention_prefill_tile.h"

namespace annulus::cuda {

// Copies a tile's keys or values. `source`: the first slot's row, of `row_bytes` bytes. Absent
// slots and columns become 0.
template <class C>
ANNULUS_DEVICE void StartCopy(const std::byte* source, int row_bytes, int count,
                              uint16_t (&to)[C::kKeys][C::kDim + 8]) {
  constexpr int kChunks = C::kDim / 8;
  constexpr int kStep = C::kThreads / kChunks;
  const int thread = static_cast<int>(Unhoisted(ThreadIndex()));
  const int chunk = thread % kChunks;
  const int first = thread / kChunks;
  const std::byte* from = source + first * row_bytes + chunk * 16;
  uint16_t* const into = &to[first][chunk * 8];
  const int present = chunk * 16 < row_bytes ? count - first : 0;
#pragma unroll
  for (int i = 0; i < C::kKeys; i += kStep) {
    AsyncCopy16(into + i * (C::kDim + 8), from, i < present);
    from += kStep * row_bytes;
  }
}

// The place of the first 16 codes that a thread copies and widens; the others are kStep slots
// apart. 8 lanes have two chunks of rows r, r+1, r+4 and r+5, so that they read whole sectors and
// write to different banks.
template <class C>
struct CodesPlace {
  int slot;
  int chunk;

  ANNULUS_DEVICE explicit CodesPlace(int thread)
      : slot(thread / 16 / kPairs * 8 + thread / 2 % 2 + thread / 4 % 2 * 4 + thread / 8 % 2 * 2),
        chunk(thread / 16 % kPairs * 2 + thread % 2) {}

  static constexpr int kPairs = C::kDim / 32;
  static constexpr int kStep = C::kThreads / 16 / kPairs * 8;
  static_assert(C::kThreads % (16 * kPairs) == 0 && C::kKeys % kStep == 0);
};

// Like StartCopy, for codes.
template <class C>
ANNULUS_DEVICE void StartCodes(const std::byte* source, int row_bytes, int count,
                               PrefillShared<C>& shared) {
  const int thread = static_cast<int>(Unhoisted(ThreadIndex()));
  const CodesPlace<C> place(thread);
  const std::byte* from = source + place.slot * row_bytes + place.chunk * 16;
  std::byte* const into = shared.Codes() + thread * 16;
  const int present = place.chunk * 16 < row_bytes ? count - place.slot : 0;
#pragma unroll
  for (int i = 0; i < C::kKeys; i += CodesPlace<C>::kStep) {
    AsyncCopy16(into + i / CodesPlace<C>::kStep * C::kThreads * 16, from, i < present);
    from += CodesPlace<C>::kStep * row_bytes;
  }
}

// Widens 16 codes by `widen`, a function of a word and a pair, into 32 bytes of shared memory.
template <class Widen>
ANNULUS_DEVICE void Widen16(const Bytes16& codes, Bytes16* into, const Widen& widen) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t first = codes.words[2 * half];
    const uint32_t second = codes.words[2 * half + 1];
    into[half] = {{widen(first, CodePair::k01), widen(first, CodePair::k23),
                   widen(second, CodePair::k01), widen(second, CodePair::k23)}};
  }
}

// Widens the codes that this thread copied. Only if there are fp8 codes that are not finite, does
// so again for them, with code that is small rather than fast.
template <class C>
ANNULUS_DEVICE void WidenTile(DType dtype, PrefillShared<C>& shared,
                              uint16_t (&to)[C::kKeys][C::kDim + 8]) {
  constexpr int kCount = C::kKeys / CodesPlace<C>::kStep;
  constexpr int kApart = CodesPlace<C>::kStep * (C::kDim + 8) / 8;
  const int thread = static_cast<int>(Unhoisted(ThreadIndex()));
  const CodesPlace<C> place(thread);
  const auto* const from = reinterpret_cast<const Bytes16*>(shared.Codes()) + thread;
  auto* const into = reinterpret_cast<Bytes16*>(&to[place.slot][place.chunk * 16]);
  if (dtype == DType::kI8) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) Widen16(from[n * C::kThreads], into + n * kApart, WidenInt8);
    return;
  }
  uint32_t beyond = 0;
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    const Bytes16 codes = from[n * C::kThreads];
#pragma unroll
    for (const uint32_t word : codes.words) beyond |= BeyondFinite8(dtype, word);
    Widen16(codes, into + n * kApart,
            [&](uint32_t word, CodePair pair) { return WidenFinite8(dtype, word, pair); });
  }
  if ((beyond & 0x80808080u) == 0) return;
#pragma unroll 1
  for (int n = 0; n < kCount; ++n) {
    Widen16(from[n * C::kThreads], into + n * kApart,
            [&](uint32_t word, CodePair pair) { return WidenFloat8(dtype, word, pair); });
  }
}

// Starts the copies of the scales of int8, by the first threads.
template <class C>
ANNULUS_DEVICE void StartScales(const std::byte* source, int count, uint16_t* to) {
  const int i = ThreadIndex() * 8;
  if (i < C::kKeys) AsyncCopy16(to + i, source + i * 2, i < count);
}

template <class C>
ANNULUS_DEVICE void StartKeys(const PageLayout& layout, int kv_head, const PrefillTile& tile,
                              PrefillShared<C>& shared) {
  const KeyTile& keys = tile.keys;
  const std::byte* const source = keys.page + layout.Key(kv_head, keys.slot);
  const int row_bytes = layout.k_stride * C::kElement;
  if constexpr (C::kNarrow) {
    StartCodes<C>(source, row_bytes, keys.count, shared);
    if (layout.dtype == DType::kI8) {
      StartScales<C>(keys.page + layout.KeyScale(kv_head, keys.slot), keys.count,
                     shared.KeyScales(tile.parity));
    }
  } else {
    StartCopy<C>(source, row_bytes, keys.count, shared.keys);
  }
  AsyncCommit();
}

template <class C>
ANNULUS_DEVICE void StartValues(const PageLayout& layout, int kv_head, const PrefillTile& tile,
                                PrefillShared<C>& shared) {
  const KeyTile& keys = tile.keys;
  const std::byte* const source = keys.page + layout.Value(kv_head, keys.slot);
  const int row_bytes = layout.v_stride * C::kElement;
  if constexpr (C::kNarrow) {
    StartCodes<C>(source, row_bytes, keys.count, shared);
    if (layout.dtype == DType::kI8) {
      StartScales<C>(keys.page + layout.ValueScale(kv_head, keys.slot), keys.count,
                     shared.ValueScales(tile.parity));
    }
  } else {
    StartCopy<C>(source, row_bytes, keys.count, shared.values);
  }
  AsyncCommit();
}

// Rounds the unit's queries into shared memory. Each warp has 16 rows at a time under way.
template <class C>
ANNULUS_DEVICE void LoadRows(const AttentionArguments& a, const AttentionUnit& unit,
                             const AttentionItemView& item, PrefillShared<C>& shared) {
  constexpr int kBatch = 16;
  static_assert(C::kRows % (kBatch * C::kRowWarps) == 0);
#pragma unroll 1
  for (int i = 0; i < C::kDim; i += 2 * kWarp) {
    const int d = i + 2 * Lane();
#pragma unroll 1
    for (int first = WarpIndex() * kBatch; first < C::kRows; first += kBatch * C::kRowWarps) {
      float low[kBatch];
      float high[kBatch];
#pragma unroll
      for (int n = 0; n < kBatch; ++n) {
        const bool present = first + n < unit.row_count;
        const int row = unit.row_begin + first + n;
        const int head = unit.kv_head * a.group + row % a.group;
        const float* const query =
            item.query + row / a.group * item.query_stride + int64_t{head} * a.layout.k_dim;
        low[n] = present && d < a.layout.k_dim ? query[d] : 0;
        high[n] = present && d + 1 < a.layout.k_dim ? query[d + 1] : 0;
      }
#pragma unroll
      for (int n = 0; n < kBatch; ++n) {
        *reinterpret_cast<uint32_t*>(&shared.query[first + n][d]) =
            Pack(typename C::Operand{}, low[n], high[n]);
      }
    }
  }
}

template <class C>
ANNULUS_DEVICE void StoreOutput(const AttentionArguments& a, const AttentionUnit& unit,
                                const AttentionItemView& item, PrefillRows<C>& rows) {
#pragma unroll
  for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = rows.sum[i][h];
      sum += ShuffleXor(sum, 1);
      sum += ShuffleXor(sum, 2);
      const int r = PrefillRow<C>(i, h);
      const RowStore store = StoreOf(a, unit, item, r, NaturalOf(rows.base[i][h]), sum);
      SyncWarp();
      if (r >= unit.row_count) continue;
      const int first = Lane() % 4 * 2;
      float* const o = store.o + first;
      const int columns = a.layout.v_dim - first;
#pragma unroll
      for (int n = 0; n < C::kDim / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& value = rows.o[i][n][2 * h + e];
          value = store.from == 0 ? 0 : store.from * value;
          if (store.into != 0 && 8 * n + e < columns) value += store.into * o[8 * n + e];
        }
      }
#pragma unroll
      for (int n = 0; n < C::kDim / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (8 * n + e < columns) o[8 * n + e] = rows.o[i][n][2 * h + e];
        }
      }
      if (Lane() % 4 == 0) *store.lse = store.new_lse;
    }
  }
}

// Walks over the tiles of a unit that hold a key which some row may see.
template <class C>
struct TileWalk {
  int32_t page;
  int32_t slot = 0;
  int32_t read;  // the page whose view is first in shared memory
  int32_t end;
  int32_t lowest;  // positions of the unit's rows
  int32_t highest;
  bool dilated;

  ANNULUS_DEVICE TileWalk(const AttentionArguments& a, const AttentionUnit& unit,
                          const AttentionItemView& item)
      : page(unit.page_begin),
        read(unit.page_begin),
        end(unit.page_end),
        lowest(item.positions[unit.row_begin / a.group]),
        highest(item.positions[(unit.row_begin + unit.row_count - 1) / a.group]),
        dilated(item.branch_count > 0) {}

  // The view of a page, of this layer's part.
  ANNULUS_DEVICE static KvPageView ViewOf(const AttentionItemView& item, int32_t page) {
    KvPageView view = PageOf(item, page);
    view.data += item.page_offset;
    return view;
  }

  // For the whole block: reads the views of the next pages into shared memory. A barrier must
  // follow before Next, and have followed since.
  ANNULUS_DEVICE void ReadViews(const AttentionItemView& item, PrefillShared<C>& shared) {
    read = page;
    const int32_t own = page + ThreadIndex();
    if (own < end) shared.views[ThreadIndex()] = ViewOf(item, own);
  }
  ANNULUS_DEVICE bool NeedsViews() const { return page - read >= C::kThreads / 2; }

  // The next tile, without keys if there is none.
  ANNULUS_DEVICE PrefillTile Next(const AttentionArguments& a, const AttentionItemView& item,
                                  PrefillShared<C>& shared, int parity) {
    while (page < end) {
      const KvPageView view =
          page - read < C::kThreads ? shared.views[page - read] : ViewOf(item, page);
      const KeyTile tile{view.data, slot, view.first_position + slot,
                         Smaller(view.tokens - slot, C::kKeys)};
      slot += C::kKeys;
      if (slot >= a.layout.page_tokens) {
        slot = 0;
        ++page;
      }
      const int64_t last = int64_t{tile.first} + tile.count - 1;
      const bool left_behind = a.window > 0 && last <= int64_t{lowest} - a.window;
      if (tile.count > 0 && tile.first <= highest && !left_behind) {
        const bool hidden =
            last > lowest || (a.window > 0 && tile.first <= int64_t{highest} - a.window) || dilated;
        return {tile, hidden, parity};
      }
    }
    return {};
  }
};

// Attends a tile whose keys are under way, and starts the copies of the next one's, which it
// returns.
template <class C, TileWork kWork>
ANNULUS_DEVICE PrefillTile AttendPrefillTile(const AttentionArguments& a, const AttentionUnit& unit,
                                             int kv_head, const AttentionItemView& item,
                                             const PrefillTile& tile, PrefillShared<C>& shared,
                                             TileWalk<C>& walk, PrefillRows<C>& rows) {
  AsyncWait<0>();
  if constexpr (C::kNarrow) {
    // The keys of the previous tile have been read: all warps have passed its second barrier.
    WidenTile<C>(a.layout.dtype, shared, shared.keys);
  }
  SyncThreads();  // the keys are there, and the previous tile's values have been read
  StartValues<C>(a.layout, kv_head, tile, shared);
  if (walk.NeedsViews()) walk.ReadViews(item, shared);
  PrefillScores<C> scores = {};
  PrefillProducts<C>(a.layout, shared, scores);
  AsyncWait<0>();
  if constexpr (C::kNarrow) WidenTile<C>(a.layout.dtype, shared, shared.values);
  SyncThreads();  // the values are there, and the keys have been read
  const PrefillTile next = walk.Next(a, item, shared, 1 - tile.parity);
  if (next.keys.count > 0) StartKeys<C>(a.layout, kv_head, next, shared);
  const bool bad =
      kWork == TileWork::kAny && tile.hidden && ClearValues<C>(a.layout, shared, tile.parity);
  PrefillSoftmax<C, kWork>(a, unit, item, shared, tile, scores, rows);
  if constexpr (kWork == TileWork::kAny) {
    if (bad) AddClearedValues<C>(a, unit, item, shared, tile.keys, scores, rows);
  }
  if (HasScales<C, kWork>(a.layout)) {
    MultiplyByScales<C>(shared.ValueScales(tile.parity), tile.keys.count, scores);
  }
  PrefillOutput<C>(a.layout, shared, scores, rows);
  return next;
}

template <class C>
ANNULUS_KERNEL(C::kThreads, 2)
PrefillKernel(ANNULUS_ARGUMENT AttentionArguments a) {
  auto& shared = *reinterpret_cast<PrefillShared<C>*>(SharedMemory());
  const AttentionUnit& unit = a.units[BlockX()];
  const AttentionItemView& item = a.items[unit.item];
  const int kv_head = unit.kv_head;
  TileWalk<C> walk(a, unit, item);
  walk.ReadViews(item, shared);
  SyncThreads();
  PrefillTile tile = walk.Next(a, item, shared, 0);
  if (tile.keys.count > 0) StartKeys<C>(a.layout, kv_head, tile, shared);
  LoadRows<C>(a, unit, item, shared);
  PrefillRows<C> rows;
#pragma unroll
  for (int i = 0; i < C::kRowTiles; ++i) {
    rows.base[i][0] = kNoScore;
    rows.base[i][1] = kNoScore;
  }
  while (tile.keys.count > 0) {
    const bool any = tile.hidden || tile.keys.count < C::kKeys || a.soft_cap > 0 || !(a.scale > 0);
    if (any) {
      tile = AttendPrefillTile<C, TileWork::kAny>(a, unit, kv_head, item, tile, shared, walk, rows);
    } else if (C::kNarrow && a.layout.dtype == DType::kI8) {
      tile =
          AttendPrefillTile<C, TileWork::kScaled>(a, unit, kv_head, item, tile, shared, walk, rows);
    } else {
      tile =
          AttendPrefillTile<C, TileWork::kPlain>(a, unit, kv_head, item, tile, shared, walk, rows);
    }
  }
  StoreOutput<C>(a, unit, item, rows);
}

template <class C>
int LaunchPrefill(StreamHandle stream, int64_t units, const AttentionArguments& arguments) {
  static_assert(sizeof(PrefillShared<C>) <= 99 * 1024, "of a block, on 8.6, 8.9 and 12.0");
  const Grid grid{.x = units, .threads = C::kThreads, .shared_bytes = sizeof(PrefillShared<C>)};
  return Launch<PrefillKernel<C>>(stream, grid, arguments);
}

// Calls `use` with the Config for many rows of a dimension.
template <class T, bool kNarrow, class Use>
auto WithPrefillConfig(int dim, const Use& use) {
  if (dim <= 64) return use(PrefillConfig<T, kNarrow, 64, 2, 4, 64>{});
  if (dim <= 128) return use(PrefillConfig<T, kNarrow, 128, 2, 4, 64>{});
  return use(PrefillConfig<T, kNarrow, 256, 1, 4, 32>{});
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ATTENTION_PREFILL_H_
