#ifndef ANNULUS_KERNELS_CUDA_SM90_ATTENTION_CONSUMER_H_
#define ANNULUS_KERNELS_CUDA_SM90_ATTENTION_CONSUMER_H_

// The consumers of attention_kernel.h. A warpgroup has 64 rows of a unit; each thread has two of
// them, with the columns that wgmma.h assigns to it.
#include <cmath>

#include "kernels/cuda/common/matrix.h"
#include "kernels/cuda/sm90/attention_shared.h"
#include "kernels/cuda/sm90/attention_widener.h"

namespace annulus::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

// A thread's part of its rows; half h is row 8 * h + lane / 4 of its warp's 16.
template <class C>
struct ConsumerRows {
  float o[C::kDim / 2] = {};
  float base[2];  // weights are 2^(score - base), in units of log 2
  float sum[2] = {};
  int32_t position[2];  // -1: no row
};

ANNULUS_DEVICE int ConsumerOf() { return ThreadIndex() / kWarpgroup - 1; }

// The row of the unit that half h of this thread computes.
template <class C>
ANNULUS_DEVICE int RowOf(int h) {
  return ConsumerOf() * C::kConsumerRows + WarpIndex() % 4 * 16 + 8 * h + Lane() / 4;
}

template <class C>
ANNULUS_DEVICE void StartRows(const AttentionArguments& a, const AttentionUnit& unit,
                              const AttentionItemView& item, ConsumerRows<C>& rows) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = RowOf<C>(h);
    const bool present = r < unit.row_count;
    rows.base[h] = -FloatOf(0x7f800000u);
    rows.position[h] = present ? item.positions[(unit.row_begin + r) / a.group] : -1;
  }
}

// Loads kBatch * 4 elements per lane of 16 rows, the first of which is number `first` of the
// lane's. Lane r % 16 has the address of row r, null if there is no such row.
template <class C, bool kWide, int kBatch>
ANNULUS_DEVICE void LoadQueries(const float* own, int k_dim, int first, float (&fours)[kBatch][4]) {
  constexpr int kFours = C::kDim / 4;  // per row
  const auto address = reinterpret_cast<uintptr_t>(own);
#pragma unroll
  for (int b = 0; b < kBatch; ++b) {
    const int i = (first + b) * kWarp + Lane();
    const uint32_t low = ShuffleFrom(static_cast<uint32_t>(address), i / kFours);
    const auto high = ShuffleFrom(static_cast<uint32_t>(uint64_t{address} >> 32), i / kFours);
    const auto* const row = reinterpret_cast<const float*>(uint64_t{high} << 32 | low);
    const int d = i % kFours * 4;
    if constexpr (kWide) {
      Bytes16 bytes{};
      if (row != nullptr && d < k_dim) bytes = *reinterpret_cast<const Bytes16*>(row + d);
#pragma unroll
      for (int e = 0; e < 4; ++e) fours[b][e] = FloatOf(bytes.words[e]);
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) fours[b][e] = row != nullptr && d + e < k_dim ? row[d + e] : 0;
    }
  }
}

// A finite number, or the largest one of f16 that has its sign; infinity and NaN stay.
ANNULUS_DEVICE float WithinHalf(float x) {
  constexpr float kMost = 65504;
  const float size = fabsf(x);
  return size > kMost && size < FloatOf(0x7f800000u) ? copysignf(kMost, x) : x;
}

// Rounds a pair of queries. Those of f16 pages become infinite beyond f16, like in every kernel;
// fp8 has no such limit, so there they stay finite.
template <class C>
ANNULUS_DEVICE uint32_t PackQueries(float first, float second) {
  if constexpr (C::kNarrow && !C::kScaled) {
    first = WithinHalf(first);
    second = WithinHalf(second);
  }
  return Pack(typename C::Operand{}, first, second);
}

// Loads this warp's 16 queries into its warpgroup's panels, rounded. Loads in batches, so that
// they overlap.
template <class C>
ANNULUS_DEVICE void LoadQueryPanels(const AttentionArguments& a, const AttentionUnit& unit,
                                    const AttentionItemView& item, HopperShared<C>& shared) {
  constexpr int kBatch = 8;
  constexpr int kFours = C::kDim / 4;
  constexpr int kLoads = 16 * kFours / kWarp;  // per lane
  static_assert(kLoads % kBatch == 0);
  const int k_dim = a.layout.k_dim;
  const int first_row = WarpIndex() % 4 * 16;
  const int r = ConsumerOf() * C::kConsumerRows + first_row + Lane() % 16;
  const float* const own = r < unit.row_count ? QueryOf(a, unit, item, r) : nullptr;
  const bool wide = Ballot(k_dim % 4 != 0 || reinterpret_cast<uintptr_t>(own) % 16 != 0) == 0;
  std::byte* const panels = shared.query[ConsumerOf()][0];
#pragma unroll 1
  for (int begin = 0; begin < kLoads; begin += kBatch) {
    float fours[kBatch][4];
    if (wide) {
      LoadQueries<C, true>(own, k_dim, begin, fours);
    } else {
      LoadQueries<C, false>(own, k_dim, begin, fours);
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = (begin + b) * kWarp + Lane();
      const int d = i % kFours * 4;
      const float(&four)[4] = fours[b];
      const int panel = d / kPanelColumns * C::kConsumerRows * kPanelRowBytes;
      const int at = PanelOffset(first_row + i / kFours, d % kPanelColumns / 8) + d % 8 * 2;
      const uint32_t low = PackQueries<C>(four[0], four[1]);
      const uint32_t high = PackQueries<C>(four[2], four[3]);
      *reinterpret_cast<uint64_t*>(panels + panel + at) = uint64_t{high} << 32 | low;
    }
  }
}

// Starts scores = query times key, asynchronously.
template <class C>
ANNULUS_DEVICE void StartScores(const HopperShared<C>& shared, int stage,
                                float (&scores)[C::kScores]) {
  const uint64_t queries = PanelMatrix(shared.query[ConsumerOf()][0], kOnePanel);
  const uint64_t keys = PanelMatrix(shared.keys[stage][0], kOnePanel);
  SettleRegisters(scores);
  WgmmaFence();
#pragma unroll
  for (int k = 0; k < C::kDim; k += 16) {
    const int panel = k / kPanelColumns;
    const int at = k % kPanelColumns * 2;
    MultiplyShared(typename C::Operand{}, scores,
                   FurtherMatrix(queries, panel * C::kConsumerRows * kPanelRowBytes + at),
                   FurtherMatrix(keys, panel * C::kKeys * kPanelRowBytes + at), k > 0);
  }
  WgmmaCommit();
}

// Starts o += weights times values, asynchronously.
template <class C>
ANNULUS_DEVICE void StartOutput(const HopperShared<C>& shared, int stage,
                                const uint32_t (&weights)[C::kKeys / 16][4],
                                float (&o)[C::kDim / 2]) {
  const uint64_t values = PanelMatrix(shared.values[stage][0], C::kKeys * kPanelRowBytes);
  SettleRegisters(o);
  WgmmaFence();
#pragma unroll
  for (int k = 0; k < C::kKeys / 16; ++k) {
    MultiplyRegisters(typename C::Operand{}, o, weights[k],
                      FurtherMatrix(values, 16 * k * kPanelRowBytes));
  }
  WgmmaCommit();
}

ANNULUS_DEVICE float WidenValue(BFloat16, uint32_t bits) { return WidenBFloat16(bits & 0xffffu); }
ANNULUS_DEVICE float WidenValue(Float16, uint32_t bits) { return WidenHalf(bits & 0xffffu); }

constexpr uint32_t InfiniteBits(BFloat16) { return 0x7f80u; }
constexpr uint32_t InfiniteBits(Float16) { return 0x7c00u; }

// Returns the bits of a key's scale if they make its int8 value infinite or NaN, else 0. Sets the
// scale to 0 in that case, and if there is no key.
ANNULUS_DEVICE uint16_t ClearScale(uint16_t& scale, bool absent) {
  const uint16_t own = scale;
  const bool bad = (own & 0x7f80u) == 0x7f80u;
  if (bad || absent) scale = 0;
  return bad && !absent ? own : 0;
}

// For all consumers together, with 2 or 4 lanes per key: sets values to 0 if there is no key, or if
// they are infinite or NaN; the latter are marked. In a matrix product, 0 times infinity would
// reach rows that do not see the key. Returns whether any value is marked.
template <class C>
ANNULUS_DEVICE bool ClearValues(HopperShared<C>& shared, uint32_t tile) {
  constexpr int kLanes = C::kConsumerThreads / C::kKeys;  // per key
  static_assert(kLanes * C::kKeys == C::kConsumerThreads && (kLanes == 2 || kLanes == 4));
  constexpr uint32_t infinite = InfiniteBits(typename C::Operand{});
  const int stage = StageOf<C::kStages>(tile);
  const int note = StageOf<C::kNotes>(tile);
  const int key = (ThreadIndex() - kWarpgroup) / kLanes;
  uint32_t bad = 0;
#pragma unroll 1
  for (int i = Lane() % kLanes; i < C::kPanels * 8; i += kLanes) {
    const auto& chunk =
        *reinterpret_cast<const Bytes16*>(shared.values[stage][i / 8] + PanelOffset(key, i % 8));
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const uint32_t word = chunk.words[w];
      bad |=
          static_cast<uint32_t>((word & 0x7fffu) >= infinite || (word >> 16 & 0x7fffu) >= infinite);
    }
  }
#pragma unroll
  for (int mask = 1; mask < kLanes; mask *= 2) bad |= ShuffleXor(bad, mask);
  const bool absent = shared.notes[note].position[key] < 0;
  uint16_t mark = bad != 0 && !absent;
  if (Lane() % kLanes == 0) {
    if constexpr (C::kScaled) {
      mark = ClearScale(shared.code_notes.value_scales[note][key], absent);
    }
    shared.notes[note].bad[key] = mark;
  }
#pragma unroll 1
  for (int i = Lane() % kLanes; (bad != 0 || absent) && i < C::kPanels * 8; i += kLanes) {
    *reinterpret_cast<Bytes16*>(shared.values[stage][i / 8] + PanelOffset(key, i % 8)) = {};
  }
  FenceSharedForEngines();
  return SyncSomeOr(kValuesCleared, C::kConsumerThreads, mark != 0);
}

// Whether the row of half h sees the key at position `key`, if there is one.
template <class C>
ANNULUS_DEVICE bool Sees(const ConsumerRows<C>& rows, int h, int32_t window, int32_t key) {
  const int32_t low = window > 0 ? Larger(rows.position[h] - window, -1) : -1;
  return key > low && key <= rows.position[h];
}

// The weight of a tile's key `key`, for half h of this thread. Registers cannot be indexed at run
// time, so a mask selects one of the thread's weights. With a comparison of indices, the compiler
// would generate indexing.
template <class C>
ANNULUS_DEVICE float WeightOf(const float (&weights)[C::kScores], int key, int h) {
  const uint32_t mask = 1u << (key / 8 * 2 + key % 2);
  float own = 0;
#pragma unroll
  for (int i = 0; i < C::kScores / 2; ++i) {
    if ((mask >> i & 1u) != 0) own = weights[i / 2 * 4 + 2 * h + i % 2];
  }
  return ShuffleFrom(own, Lane() / 4 * 4 + key % 8 / 2);
}

// Columns 2 `pair` and 2 `pair` + 1 of the value at `value` in its page, as operands, without the
// scale.
template <class C>
ANNULUS_DEVICE uint32_t LoadOperands(DType dtype, const std::byte* value, int pair) {
  if constexpr (C::kNarrow) {
    return WidenTwo(dtype, reinterpret_cast<const uint16_t*>(value)[pair]);
  } else {
    return reinterpret_cast<const uint32_t*>(value)[pair];
  }
}

// Adds the marked values to the rows that see them, after all other values of their tile. This is
// rare, so the code is small rather than fast: only a load of two columns (0 beyond the page's
// columns) and four sums are unrolled.
template <class C>
ANNULUS_DEVICE void AddMarkedValues(const AttentionArguments& a, int box_slots,
                                    const TileNotes<C>& notes, const float (&weights)[C::kScores],
                                    ConsumerRows<C>& rows) {
  using T = typename C::Operand;
  const PageLayout& layout = a.layout;
#pragma unroll 1
  for (int key = 0; key < C::kKeys; ++key) {
    if (notes.bad[key] == 0) continue;
    const std::byte* const value =
        notes.values[key / box_slots] + int64_t{key % box_slots} * layout.v_stride * layout.element;
    const float scale = C::kScaled ? WidenBFloat16(notes.bad[key]) : 1;
    const float weight[2] = {WeightOf<C>(weights, key, 0), WeightOf<C>(weights, key, 1)};
    const int32_t position = notes.position[key];
    const bool sees[2] = {Sees(rows, 0, a.window, position), Sees(rows, 1, a.window, position)};
#pragma unroll
    for (int n = 0; n < C::kDim / 8; ++n) {
      if (8 * n >= layout.v_stride) break;
      const uint32_t pair = LoadOperands<C>(layout.dtype, value, 4 * n + Lane() % 4);
      const float columns[2] = {WidenValue(T{}, pair) * scale, WidenValue(T{}, pair >> 16) * scale};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (sees[i / 2]) rows.o[4 * n + i] += weight[i / 2] * columns[i % 2];
      }
    }
  }
}

// Multiplies scores or weights by the scales of their keys.
template <class C>
ANNULUS_DEVICE void ScaleColumns(const uint16_t (&scales)[C::kKeys], float (&scores)[C::kScores]) {
#pragma unroll
  for (int j = 0; j < C::kKeys / 8; ++j) {
    const uint32_t pair = reinterpret_cast<const uint32_t*>(scales)[4 * j + Lane() % 4];
    const float columns[2] = {WidenBFloat16(pair & 0xffffu), WidenBFloat16(pair >> 16)};
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[4 * j + i] *= columns[i % 2];
  }
}

// The positive factor that converts scores, after ChangeScores, to units of log 2.
ANNULUS_DEVICE float FactorOf(const AttentionArguments& a) {
  return a.soft_cap > 0 || a.scale <= 0 ? 1 : a.scale * kLog2E;
}

// Caps scores or applies a scale that is not positive, and hides keys from rows that do not see
// them.
template <class C>
ANNULUS_DEVICE void ChangeScores(const AttentionArguments& a, const TileNotes<C>& notes,
                                 float (&scores)[C::kScores], const ConsumerRows<C>& rows) {
  const float infinity = FloatOf(0x7f800000u);
  if (a.soft_cap > 0) {
    const float inside = a.scale / a.soft_cap;
#pragma unroll
    for (int i = 0; i < C::kScores; ++i) {
      scores[i] = a.soft_cap * kLog2E * Tanh(scores[i] * inside);
    }
  } else if (a.scale <= 0) {  // the largest score must have the largest product
#pragma unroll
    for (int i = 0; i < C::kScores; ++i) scores[i] *= a.scale * kLog2E;
  }
  if ((notes.special & kHiddenKeys) == 0) return;
#pragma unroll
  for (int i = 0; i < C::kScores; ++i) {
    const int32_t key = notes.position[i / 4 * 8 + Lane() % 4 * 2 + i % 2];
    if (!Sees(rows, i % 4 / 2, a.window, key)) scores[i] = -infinity;
  }
}

// The largest scores of this thread's rows.
template <class C>
ANNULUS_DEVICE void TopScores(const float (&scores)[C::kScores], float (&top)[2]) {
  float most[2][2];
#pragma unroll
  for (int i = 0; i < 4; ++i) most[i / 2][i % 2] = scores[i];
#pragma unroll
  for (int i = 4; i < C::kScores; ++i) {
    float& own = most[i % 4 / 2][i % 2];
    own = fmaxf(own, scores[i]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) top[h] = fmaxf(most[h][0], most[h][1]);
#pragma unroll
  for (int mask = 1; mask < 4; mask *= 2) {
#pragma unroll
    for (int h = 0; h < 2; ++h) top[h] = fmaxf(top[h], ShuffleXor(top[h], mask));
  }
}

// Raises the bases of rows whose scores exceed them by more than C::kBaseSlack. `rescale` is the
// factor for the output and the sum so far; returns whether it is not 1 for some row of the warp.
// A row's base depends only on that row's scores.
template <class C>
ANNULUS_DEVICE bool RaiseBases(const float (&scores)[C::kScores], float factor,
                               ConsumerRows<C>& rows, float (&rescale)[2]) {
  float top[2];
  TopScores<C>(scores, top);
  bool moved = false;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float base = top[h] * factor;
    const bool raise = base > rows.base[h] + C::kBaseSlack;
    rescale[h] = raise ? Exp2(rows.base[h] - base) : 1;
    if (raise) rows.base[h] = base;
    moved |= raise;
  }
  return Ballot(moved) != 0;
}

// Turns scores into weights 2^(score * factor - base + C::kHeadroom), in place, and returns their
// sums.
template <class C>
ANNULUS_DEVICE void Weigh(float (&scores)[C::kScores], float factor, const ConsumerRows<C>& rows,
                          float (&sums)[2]) {
  float from[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    // No score yet, or only -infinity: all weights are 0.
    from[h] = rows.base[h] == -FloatOf(0x7f800000u) ? 0 : rows.base[h] - C::kHeadroom;
  }
  float parts[2][2] = {};
#pragma unroll
  for (int i = 0; i < C::kScores; ++i) {
    scores[i] = Exp2(scores[i] * factor - from[i % 4 / 2]);
    parts[i % 4 / 2][i % 2] += scores[i];
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) sums[h] = parts[h][0] + parts[h][1];
}

// Packs weights into operands; for int8, multiplied by the scales of the values.
template <class C>
ANNULUS_DEVICE void PackWeights(const HopperShared<C>& shared, uint32_t tile,
                                float (&weights)[C::kScores],
                                uint32_t (&packed)[C::kKeys / 16][4]) {
  if constexpr (C::kScaled) {
    ScaleColumns<C>(shared.code_notes.value_scales[StageOf<C::kNotes>(tile)], weights);
  }
#pragma unroll
  for (int i = 0; i < C::kScores / 2; ++i) {
    packed[i / 4][i % 4] = Pack(typename C::Operand{}, weights[2 * i], weights[2 * i + 1]);
  }
}

struct alignas(8) FloatPair {
  float first;
  float second;
};

// What Put stores if nothing is merged.
ANNULUS_DEVICE float FreshOf(const RowStore& store, float value) {
  return store.from == 0 ? 0 : store.from * value;
}

// Stores this thread's columns of the row of half h. Columns go in pairs if nothing is merged and
// their addresses allow it: then each sector of 32 bytes is written at once.
template <class C>
ANNULUS_DEVICE void StoreColumns(const RowStore& store, int v_dim, int h,
                                 const ConsumerRows<C>& rows) {
  if (store.into == 0 && v_dim % 2 == 0 && reinterpret_cast<uintptr_t>(store.o) % 8 == 0) {
#pragma unroll
    for (int n = 0; n < C::kDim / 8; ++n) {
      const int d = 8 * n + Lane() % 4 * 2;
      const float* const own = &rows.o[4 * n + 2 * h];
      if (d < v_dim) {
        *reinterpret_cast<FloatPair*>(store.o + d) = {FreshOf(store, own[0]),
                                                      FreshOf(store, own[1])};
      };
    }
    return;
  }
#pragma unroll
  for (int n = 0; n < C::kDim / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int d = 8 * n + Lane() % 4 * 2 + e;
      if (d < v_dim) store.Put(d, rows.o[4 * n + 2 * h + e]);
    }
  }
}

template <class C>
ANNULUS_DEVICE void StoreConsumerRows(const AttentionArguments& a, int64_t index,
                                      const ConsumerRows<C>& rows) {
  const AttentionUnit unit = a.units[index];
  const AttentionItemView item = a.items[unit.item];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = rows.sum[h];
    sum += ShuffleXor(sum, 1);
    sum += ShuffleXor(sum, 2);
    // A row that sees one key has its value exactly, though the product of that key's score was
    // rounded for the base, and not for the weight: an error in proportion to the base.
    constexpr float one = 1 << C::kHeadroom;
    const float error = 0x1p-23f * (fminf(fabsf(rows.base[h]), 0x1p16f) + 64);
    if (fabsf(sum - one) < one * error) sum = one;
    const int r = RowOf<C>(h);
    const RowStore store = StoreOf(a, unit, item, r, NaturalOf(rows.base[h] - C::kHeadroom), sum);
    SyncWarp();
    if (r >= unit.row_count) continue;
    StoreColumns<C>(store, a.layout.v_dim, h, rows);
    if (Lane() % 4 == 0) *store.lse = store.new_lse;
  }
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM90_ATTENTION_CONSUMER_H_
