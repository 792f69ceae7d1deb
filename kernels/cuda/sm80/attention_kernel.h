#ifndef ANNULUS_KERNELS_CUDA_SM80_ATTENTION_KERNEL_H_
#define ANNULUS_KERNELS_CUDA_SM80_ATTENTION_KERNEL_H_

// Attention over pages by the tensor cores of compute capability 8.0 and up. Source:
// FlashAttention-2 (Dao 2023): online softmax, scores and output in registers, tiles of keys and
// values by asynchronous copies, the next while the current is attended.
//
// A block computes one AttentionUnit. Tiles of kKeys slots never cross a page. Scores, weights and
// sums are float32; queries and weights are rounded to the operand type T. Codes of 8 bits are
// widened in registers; then the depth of query and key is permuted inside of 16 (PermutedDepth)
// and the columns of the output inside of 16 (OutputColumn), so that a lane's codes are neighbours.
// The scales of int8 multiply scores and weights, in float32.
//
// The order in which a row adds up depends on its unit (the first page, how many pages share a
// part) and on the shape: see OpTable::row_invariant.
#include <cmath>

#include "kernels/cuda/common/convert.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/matrix.h"
#include "kernels/cuda/common/widen.h"
#include "kernels/cuda/sm80/attention.h"

namespace annulus::cuda {

// T: type of the operands of a product. kNarrow: pages hold 8-bit codes. Warps: kRowWarps by
// kKeyWarps; a warp has kRowTiles times 16 rows and kKeys / kKeyWarps keys of a tile.
template <class T, bool kIsNarrow, int kHeadDim, int kWarpRowTiles, int kWarpsOfRows,
          int kWarpsOfKeys, int kTileKeys>
struct AttentionConfig {
  using Operand = T;
  static constexpr bool kNarrow = kIsNarrow;
  static constexpr int kDim = kHeadDim;
  static constexpr int kRowTiles = kWarpRowTiles;
  static constexpr int kRowWarps = kWarpsOfRows;
  static constexpr int kKeyWarps = kWarpsOfKeys;
  static constexpr int kKeys = kTileKeys;
  static constexpr int kThreads = kWarp * kRowWarps * kKeyWarps;
  static constexpr int kRows = 16 * kRowTiles * kRowWarps;
  static constexpr int kWarpKeys = kKeys / kKeyWarps;
  static constexpr int kElement = kNarrow ? 1 : 2;
  static constexpr int kStages = 2;
  static_assert(kDim % 32 == 0 && kWarpKeys % 16 == 0);
};

// Rows end with 16 unused bytes, so that the rows of an 8x8 matrix lie in different banks.
template <class C>
struct AttentionShared {
  alignas(16) uint16_t query[C::kRows][C::kDim + 8];
  alignas(16) std::byte keys[C::kStages][C::kKeys][C::kDim * C::kElement + 16];
  alignas(16) std::byte values[C::kStages][C::kKeys][C::kDim * C::kElement + 16];
  alignas(16) uint16_t key_scales[C::kStages][C::kKeys];    // int8
  alignas(16) uint16_t value_scales[C::kStages][C::kKeys];  // int8
  uint8_t bad[C::kKeys];  // whether a slot's value is infinite or NaN
};

// What the warps of a block with kKeyWarps > 1 leave for each other; over the tiles.
template <class C>
struct AttentionExchange {
  float o[C::kKeyWarps][C::kRows][C::kDim];
  float maximum[C::kKeyWarps][C::kRows];
  float sum[C::kKeyWarps][C::kRows];
};

// A lane's part of 16 * kRowTiles rows: row tile i, half h is row 16 * i + 8 * h + lane / 4.
template <class C>
struct RowSums {
  float o[C::kRowTiles][C::kDim / 8][4] = {};
  float maximum[C::kRowTiles][2];  // of the scores, in units of log 2
  float sum[C::kRowTiles][2] = {};
  int32_t position[C::kRowTiles][2];  // -1: no row
};

// Slots of one page that are attended together.
struct KeyTile {
  const std::byte* page;
  int32_t slot;   // of the page
  int32_t first;  // position
  int32_t count;  // slots that hold a key; may be negative
};

// Where element `d` of a head stands in a row of queries, so that codes of 4 neighbouring elements
// are a lane's depth {2t, 2t+1, 2t+8, 2t+9}.
ANNULUS_DEVICE int PermutedDepth(int d) {
  const int t = d % 16 / 4;
  const int e = d % 4;
  return d / 16 * 16 + 2 * t + (e & 1) + (e & 2) * 4;
}

// Column of the output that element e (0 or 1) of tile n is.
template <class C>
ANNULUS_DEVICE int OutputColumn(int n, int e) {
  const int t = Lane() % 4;
  return C::kNarrow ? n / 2 * 16 + 4 * t + 2 * e + n % 2 : 8 * n + 2 * t + e;
}

ANNULUS_DEVICE const KvPageView& PageOf(const AttentionItemView& item, int32_t index) {
  return item.pages[item.lists == nullptr ? index : item.lists[index]];
}

template <class C>
ANNULUS_DEVICE KeyTile TileAt(const AttentionArguments& a, const AttentionUnit& unit,
                              const AttentionItemView& item, int tile) {
  const int per_page = (a.layout.page_tokens + C::kKeys - 1) / C::kKeys;
  const KvPageView& page = PageOf(item, unit.page_begin + tile / per_page);
  const int32_t slot = tile % per_page * C::kKeys;
  return {page.data, slot, page.first_position + slot, Smaller(page.tokens - slot, C::kKeys)};
}

// Starts the copies of a tile: absent slots and columns become 0.
template <class C>
ANNULUS_DEVICE void StartTile(const PageLayout& layout, int kv_head, const KeyTile& tile,
                              AttentionShared<C>& shared, int stage) {
  constexpr int kChunks = C::kDim * C::kElement / 16;
  for (int i = ThreadIndex(); i < C::kKeys * kChunks; i += C::kThreads) {
    const int slot = i / kChunks;
    const int chunk = i % kChunks;
    const bool present = slot < tile.count;
    const std::byte* const key = tile.page + layout.Key(kv_head, tile.slot + slot) + chunk * 16;
    const std::byte* const value = tile.page + layout.Value(kv_head, tile.slot + slot) + chunk * 16;
    AsyncCopy16(&shared.keys[stage][slot][chunk * 16], key,
                present && chunk * 16 < layout.k_stride * C::kElement);
    AsyncCopy16(&shared.values[stage][slot][chunk * 16], value,
                present && chunk * 16 < layout.v_stride * C::kElement);
  }
  if (C::kNarrow && layout.dtype == DType::kI8) {
    constexpr int kScaleChunks = C::kKeys / 8;
    for (int i = ThreadIndex(); i < kScaleChunks; i += C::kThreads) {
      const bool present = i * 8 < tile.count;
      AsyncCopy16(&shared.key_scales[stage][i * 8],
                  tile.page + layout.KeyScale(kv_head, tile.slot + i * 8), present);
      AsyncCopy16(&shared.value_scales[stage][i * 8],
                  tile.page + layout.ValueScale(kv_head, tile.slot + i * 8), present);
    }
  }
  AsyncCommit();
}

template <class C>
ANNULUS_DEVICE void LoadQuery(const AttentionArguments& a, const AttentionUnit& unit,
                              const AttentionItemView& item, AttentionShared<C>& shared) {
  constexpr int kPairs = C::kDim / 2;
  for (int i = ThreadIndex(); i < C::kRows * kPairs; i += C::kThreads) {
    const int r = i / kPairs;
    const int d = i % kPairs * 2;
    float low = 0;
    float high = 0;
    if (r < unit.row_count) {
      const int row = unit.row_begin + r;
      const int head = unit.kv_head * a.group + row % a.group;
      const float* const query =
          item.query + row / a.group * item.query_stride + int64_t{head} * a.layout.k_dim;
      if (d < a.layout.k_dim) low = query[d];
      if (d + 1 < a.layout.k_dim) high = query[d + 1];
    }
    const uint32_t pair = Pack(typename C::Operand{}, low, high);
    const int at = C::kNarrow ? PermutedDepth(d) : d;
    *reinterpret_cast<uint32_t*>(&shared.query[r][at]) = pair;
  }
}

// scores = query times key, of this warp's rows and keys.
template <class C>
ANNULUS_DEVICE void Scores(const PageLayout& layout, const AttentionShared<C>& shared, int stage,
                           int first_row, int first_key,
                           float (&scores)[C::kRowTiles][C::kWarpKeys / 8][4]) {
  const int lane = Lane();
#pragma unroll
  for (int k = 0; k < C::kDim; k += 16) {
    if (k >= layout.k_stride) break;
    uint32_t a[C::kRowTiles][4];
#pragma unroll
    for (int i = 0; i < C::kRowTiles; ++i) {
      LoadMatrices(a[i], &shared.query[first_row + 16 * i + lane % 16][k + lane / 16 * 8]);
    }
#pragma unroll
    for (int j = 0; j < C::kWarpKeys / 8; j += 2) {
      uint32_t b[4];
      const int key = first_key + 8 * j;
      if constexpr (C::kNarrow) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const uint32_t codes = *reinterpret_cast<const uint32_t*>(
              &shared.keys[stage][key + 8 * n + lane / 4][k + lane % 4 * 4]);
          b[2 * n] = WidenCodes(layout.dtype, codes, CodePair::k01);
          b[2 * n + 1] = WidenCodes(layout.dtype, codes, CodePair::k23);
        }
      } else {
        LoadMatrices(b, &shared.keys[stage][key + lane / 16 * 8 + lane % 8]
                                    [(k + lane / 8 % 2 * 8) * C::kElement]);
      }
#pragma unroll
      for (int i = 0; i < C::kRowTiles; ++i) {
        MultiplyAdd(typename C::Operand{}, scores[i][j], a[i], b[0], b[1]);
        MultiplyAdd(typename C::Operand{}, scores[i][j + 1], a[i], b[2], b[3]);
      }
    }
  }
}

// The factor of slot `slot`'s scores or weights. Scales of slots that hold no key may be anything.
template <class C>
ANNULUS_DEVICE float ScaleOf(const PageLayout& layout, const KeyTile& tile, const uint16_t* scales,
                             int slot) {
  if (slot >= tile.count) return 0;
  return C::kNarrow && layout.dtype == DType::kI8 ? WidenBFloat16(scales[slot]) : 1;
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

// The query head of a lane's row in row tile i, half h.
ANNULUS_DEVICE int HeadOf(const AttentionArguments& a, const AttentionUnit& unit, int first_row,
                          int i, int h) {
  const int row = unit.row_begin + first_row + 16 * i + 8 * h + Lane() / 4;
  return unit.kv_head * a.group + row % a.group;
}

// Scores become weights 2^(score - maximum), in place; sums and output are rescaled.
template <class C>
ANNULUS_DEVICE void Softmax(const AttentionArguments& a, const AttentionUnit& unit,
                            const AttentionItemView& item, const AttentionShared<C>& shared,
                            int stage, const KeyTile& tile, bool masked, int first_row,
                            int first_key, float (&scores)[C::kRowTiles][C::kWarpKeys / 8][4],
                            RowSums<C>& rows) {
  constexpr float kLog2E = 1.4426950408889634f;
  const float infinity = FloatOf(0x7f800000u);
  const float factor = a.soft_cap > 0 ? a.scale / a.soft_cap : a.scale * kLog2E;
#pragma unroll
  for (int j = 0; j < C::kWarpKeys / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int slot = first_key + 8 * j + Lane() % 4 * 2 + e;
      const float column = factor * ScaleOf<C>(a.layout, tile, shared.key_scales[stage], slot);
#pragma unroll
      for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float& score = scores[i][j][2 * h + e];
          score *= column;
          if (a.soft_cap > 0) score = a.soft_cap * kLog2E * tanhf(score);
          if (!masked) continue;
          const int times =
              TimesSeen(a, item, tile, rows.position[i][h], HeadOf(a, unit, first_row, i, h), slot);
          if (times == 0) score = -infinity;
          if (times > 1) score += log2f(static_cast<float>(times));
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float maximum = rows.maximum[i][h];
#pragma unroll
      for (int j = 0; j < C::kWarpKeys / 8; ++j) {
        maximum = fmaxf(maximum, fmaxf(scores[i][j][2 * h], scores[i][j][2 * h + 1]));
      }
      maximum = fmaxf(maximum, ShuffleXor(maximum, 1));
      maximum = fmaxf(maximum, ShuffleXor(maximum, 2));
      // No score yet, or none but -infinity: all weights are 0.
      const float base = maximum == -infinity ? 0 : maximum;
      const float rescale = Exp2(rows.maximum[i][h] - base);
      rows.maximum[i][h] = maximum;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < C::kWarpKeys / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = scores[i][j][2 * h + e];
          score = Exp2(score - base);
          sum += score;
        }
      }
      rows.sum[i][h] = rows.sum[i][h] * rescale + sum;
#pragma unroll
      for (int n = 0; n < C::kDim / 8; ++n) {
        rows.o[i][n][2 * h] *= rescale;
        rows.o[i][n][2 * h + 1] *= rescale;
      }
    }
  }
}

// Marks the slots of a tile whose values are not all finite and makes them 0, for the whole block;
// whether there is one.
template <class C>
ANNULUS_DEVICE bool ClearBadValues(const PageLayout& layout, AttentionShared<C>& shared,
                                   int stage) {
  constexpr int kWords = C::kDim * C::kElement / 4;
  const uint32_t low = layout.dtype == DType::kBF16     ? 0x7f80u
                       : layout.dtype == DType::kF16    ? 0x7c00u
                       : layout.dtype == DType::kF8E4M3 ? 0x7fu
                                                        : 0x7cu;
  bool any = false;
  for (int slot = ThreadIndex(); slot < C::kKeys; slot += C::kThreads) {
    auto* const words = reinterpret_cast<uint32_t*>(shared.values[stage][slot]);
    bool bad = false;
    if (layout.dtype == DType::kI8) {
      uint16_t& scale = shared.value_scales[stage][slot];
      bad = (scale & 0x7f80u) == 0x7f80u;
      if (bad) scale = 0;
    } else {
      for (int i = 0; i < kWords; ++i) {
        for (int shift = 0; shift < 32; shift += 8 * C::kElement) {
          const uint32_t bits = words[i] >> shift & (C::kNarrow ? 0x7fu : 0x7fffu);
          bad |= bits >= low;
        }
      }
      for (int i = 0; bad && i < kWords; ++i) words[i] = 0;
    }
    shared.bad[slot] = bad;
    any |= bad;
  }
  return SyncThreadsOr(any);
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

// What the cleared values add to the rows that see them, one by one: in a product, 0 times infinity
// would reach rows that do not. A rare case, so small rather than fast.
template <class C>
ANNULUS_DEVICE void AddBadValues(const AttentionArguments& a, const AttentionUnit& unit,
                                 const AttentionItemView& item, const AttentionShared<C>& shared,
                                 const KeyTile& tile, int first_row, int first_key,
                                 const float (&weights)[C::kRowTiles][C::kWarpKeys / 8][4],
                                 RowSums<C>& rows) {
  for (int key = 0; key < C::kWarpKeys; ++key) {
    const int slot = first_key + key;
    if (shared.bad[slot] == 0) continue;
#pragma unroll
    for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float own = 0;  // by selection: registers have no run-time index
#pragma unroll
        for (int j = 0; j < C::kWarpKeys / 8; ++j) {
          if (j == key / 8) own = key % 2 == 0 ? weights[i][j][2 * h] : weights[i][j][2 * h + 1];
        }
        const float weight = ShuffleFrom(own, Lane() / 4 * 4 + key % 8 / 2);
        const int times =
            TimesSeen(a, item, tile, rows.position[i][h], HeadOf(a, unit, first_row, i, h), slot);
        if (times == 0) continue;
#pragma unroll
        for (int n = 0; n < C::kDim / 8; ++n) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int d = OutputColumn<C>(n, e);
            if (d < a.layout.v_dim) {
              rows.o[i][n][2 * h + e] += weight * ValueAt(a.layout, tile, unit.kv_head, slot, d);
            }
          }
        }
      }
    }
  }
}

// output += weights times values, of this warp's rows and keys.
template <class C>
ANNULUS_DEVICE void AddValues(const PageLayout& layout, const KeyTile& tile,
                              const AttentionShared<C>& shared, int stage, int first_key,
                              const float (&weights)[C::kRowTiles][C::kWarpKeys / 8][4],
                              RowSums<C>& rows) {
  using T = typename C::Operand;
  const int lane = Lane();
#pragma unroll
  for (int j = 0; j < C::kWarpKeys / 8; j += 2) {
    const int key = first_key + 8 * j;
    float scale[2][2];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        scale[n][e] =
            ScaleOf<C>(layout, tile, shared.value_scales[stage], key + 8 * n + lane % 4 * 2 + e);
      }
    }
    uint32_t a[C::kRowTiles][4];
#pragma unroll
    for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float(&w)[4] = weights[i][j + n];
        a[i][2 * n] = Pack(T{}, w[0] * scale[n][0], w[1] * scale[n][1]);
        a[i][2 * n + 1] = Pack(T{}, w[2] * scale[n][0], w[3] * scale[n][1]);
      }
    }
    const int row = key + lane % 16;
#pragma unroll
    for (int d = 0; d < C::kDim; d += C::kNarrow ? 32 : 16) {
      if (d >= layout.v_stride) break;
      uint32_t b[4];
      LoadTransposed(b, &shared.values[stage][row][d * C::kElement + lane / 16 * 16]);
#pragma unroll
      for (int i = 0; i < C::kRowTiles; ++i) {
        if constexpr (C::kNarrow) {
#pragma unroll
          for (int g = 0; g < 2; ++g) {
            MultiplyAdd(T{}, rows.o[i][d / 8 + 2 * g], a[i],
                        WidenCodes(layout.dtype, b[2 * g], CodePair::k02),
                        WidenCodes(layout.dtype, b[2 * g + 1], CodePair::k02));
            MultiplyAdd(T{}, rows.o[i][d / 8 + 2 * g + 1], a[i],
                        WidenCodes(layout.dtype, b[2 * g], CodePair::k13),
                        WidenCodes(layout.dtype, b[2 * g + 1], CodePair::k13));
          }
        } else {
          MultiplyAdd(T{}, rows.o[i][d / 8], a[i], b[0], b[1]);
          MultiplyAdd(T{}, rows.o[i][d / 8 + 1], a[i], b[2], b[3]);
        }
      }
    }
  }
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

template <class C>
ANNULUS_DEVICE void StoreRows(const AttentionArguments& a, const AttentionUnit& unit,
                              const AttentionItemView& item, int first_row,
                              const RowSums<C>& rows) {
#pragma unroll
  for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = first_row + 16 * i + 8 * h + Lane() / 4;
      if (r >= unit.row_count) continue;
      const RowTarget target = TargetOf(a, unit, item, r);
      const float sum = rows.sum[i][h];
      const float reciprocal = sum == 0 ? 0 : 1 / sum;
#pragma unroll
      for (int n = 0; n < C::kDim / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int d = OutputColumn<C>(n, e);
          if (d < a.layout.v_dim) target.o[d] = rows.o[i][n][2 * h + e] * reciprocal;
        }
      }
      if (Lane() % 4 == 0) *target.lse = NaturalLse(rows.maximum[i][h], sum);
    }
  }
}

// The warps that shared out the keys bring their sums together, then all threads store.
template <class C>
ANNULUS_DEVICE void ExchangeRows(const AttentionArguments& a, const AttentionUnit& unit,
                                 const AttentionItemView& item, int key_warp,
                                 const RowSums<C>& rows, AttentionExchange<C>& exchange) {
  static_assert(C::kRowWarps == 1 && C::kRowTiles == 1);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = 8 * h + Lane() / 4;
#pragma unroll
    for (int n = 0; n < C::kDim / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        exchange.o[key_warp][r][OutputColumn<C>(n, e)] = rows.o[0][n][2 * h + e];
      }
    }
    if (Lane() % 4 == 0) {
      exchange.maximum[key_warp][r] = rows.maximum[0][h];
      exchange.sum[key_warp][r] = rows.sum[0][h];
    }
  }
  SyncThreads();
  for (int r = WarpIndex(); r < unit.row_count; r += C::kKeyWarps) {
    const RowTarget target = TargetOf(a, unit, item, r);
    float maximum = exchange.maximum[0][r];
    for (int w = 1; w < C::kKeyWarps; ++w) maximum = fmaxf(maximum, exchange.maximum[w][r]);
    const float base = maximum == -FloatOf(0x7f800000u) ? 0 : maximum;
    float weight[C::kKeyWarps];
    float sum = 0;
#pragma unroll
    for (int w = 0; w < C::kKeyWarps; ++w) {
      weight[w] = Exp2(exchange.maximum[w][r] - base);
      sum += weight[w] * exchange.sum[w][r];
    }
    const float reciprocal = sum == 0 ? 0 : 1 / sum;
    for (int d = Lane(); d < a.layout.v_dim; d += kWarp) {
      float o = 0;
#pragma unroll
      for (int w = 0; w < C::kKeyWarps; ++w) o += weight[w] * exchange.o[w][r][d];
      target.o[d] = o * reciprocal;
    }
    if (Lane() == 0) *target.lse = NaturalLse(maximum, sum);
  }
}

template <class C>
ANNULUS_DEVICE void AttendTile(const AttentionArguments& a, const AttentionUnit& unit,
                               const AttentionItemView& item, const KeyTile& tile, int64_t lowest,
                               int64_t highest, int first_row, int first_key, int stage,
                               AttentionShared<C>& shared, RowSums<C>& rows) {
  const int64_t last = int64_t{tile.first} + tile.count - 1;
  const bool left_behind = a.window > 0 && last <= lowest - a.window;
  if (tile.count <= 0 || tile.first > highest || left_behind) return;
  const bool hidden =
      last > lowest || (a.window > 0 && tile.first <= highest - a.window) || item.branch_count > 0;
  const bool bad = hidden && ClearBadValues<C>(a.layout, shared, stage);
  float scores[C::kRowTiles][C::kWarpKeys / 8][4] = {};
  Scores<C>(a.layout, shared, stage, first_row, first_key, scores);
  Softmax<C>(a, unit, item, shared, stage, tile, hidden || tile.count < C::kKeys, first_row,
             first_key, scores, rows);
  if (bad) AddBadValues<C>(a, unit, item, shared, tile, first_row, first_key, scores, rows);
  AddValues<C>(a.layout, tile, shared, stage, first_key, scores, rows);
}

template <class C>
ANNULUS_KERNEL(C::kThreads, 1)
AttentionKernel(ANNULUS_ARGUMENT AttentionArguments a) {
  auto& shared = *reinterpret_cast<AttentionShared<C>*>(SharedMemory());
  const AttentionUnit unit = a.units[BlockX()];
  const AttentionItemView item = a.items[unit.item];
  const int first_row = WarpIndex() % C::kRowWarps * 16 * C::kRowTiles;
  const int key_warp = WarpIndex() / C::kRowWarps;
  const int per_page = (a.layout.page_tokens + C::kKeys - 1) / C::kKeys;
  const int tiles = (unit.page_end - unit.page_begin) * per_page;
  if (tiles > 0) {
    StartTile<C>(a.layout, unit.kv_head, TileAt<C>(a, unit, item, 0), shared, 0);
  }
  LoadQuery<C>(a, unit, item, shared);
  RowSums<C> rows;
#pragma unroll
  for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = first_row + 16 * i + 8 * h + Lane() / 4;
      rows.maximum[i][h] = -FloatOf(0x7f800000u);
      rows.position[i][h] =
          r < unit.row_count ? item.positions[(unit.row_begin + r) / a.group] : -1;
    }
  }
  const int64_t lowest = item.positions[unit.row_begin / a.group];
  const int64_t highest = item.positions[(unit.row_begin + unit.row_count - 1) / a.group];
  for (int t = 0; t < tiles; ++t) {
    const int stage = t % C::kStages;
    if (t + 1 < tiles) {
      StartTile<C>(a.layout, unit.kv_head, TileAt<C>(a, unit, item, t + 1), shared,
                   (t + 1) % C::kStages);
      AsyncWait<1>();
    } else {
      AsyncWait<0>();
    }
    SyncThreads();
    AttendTile<C>(a, unit, item, TileAt<C>(a, unit, item, t), lowest, highest, first_row,
                  key_warp * C::kWarpKeys, stage, shared, rows);
    SyncThreads();  // before the next copies overwrite the tile
  }
#pragma unroll
  for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      rows.sum[i][h] += ShuffleXor(rows.sum[i][h], 1);
      rows.sum[i][h] += ShuffleXor(rows.sum[i][h], 2);
    }
  }
  if constexpr (C::kKeyWarps == 1) {
    StoreRows<C>(a, unit, item, first_row, rows);
  } else {
    static_assert(sizeof(AttentionExchange<C>) <= sizeof(shared.keys) + sizeof(shared.values));
    ExchangeRows<C>(a, unit, item, key_warp, rows,
                    *reinterpret_cast<AttentionExchange<C>*>(&shared.keys));
  }
}

template <class C>
int LaunchAttention(StreamHandle stream, int64_t units, const AttentionArguments& arguments) {
  const Grid grid{.x = units, .threads = C::kThreads, .shared_bytes = sizeof(AttentionShared<C>)};
  return Launch<AttentionKernel<C>>(stream, grid, arguments);
}

// The reviewed list of instances: 3 head dimensions by 2 shapes for every class of storage.
template <class T, bool kNarrow>
int LaunchAttentionOf(StreamHandle stream, AttentionShape shape, int dim, int64_t units,
                      const AttentionArguments& a) {
  if (shape == AttentionShape::kPrefill) {
    if (dim <= 64)
      return LaunchAttention<AttentionConfig<T, kNarrow, 64, 2, 4, 1, 64>>(stream, units, a);
    if (dim <= 128)
      return LaunchAttention<AttentionConfig<T, kNarrow, 128, 2, 4, 1, 64>>(stream, units, a);
    return LaunchAttention<AttentionConfig<T, kNarrow, 256, 1, 4, 1, 32>>(stream, units, a);
  }
  if (dim <= 64)
    return LaunchAttention<AttentionConfig<T, kNarrow, 64, 1, 1, 4, 64>>(stream, units, a);
  if (dim <= 128)
    return LaunchAttention<AttentionConfig<T, kNarrow, 128, 1, 1, 4, 64>>(stream, units, a);
  return LaunchAttention<AttentionConfig<T, kNarrow, 256, 1, 1, 4, 64>>(stream, units, a);
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ATTENTION_KERNEL_H_
