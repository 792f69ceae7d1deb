#ifndef ANNULUS_KERNELS_CUDA_SM80_ATTENTION_TILE_H_
#define ANNULUS_KERNELS_CUDA_SM80_ATTENTION_TILE_H_

// Computes one tile of keys and values for the rows of a block: scores, weights, output. See
// attention_kernel.h.
#include "kernels/cuda/common/matrix.h"
#include "kernels/cuda/common/widen.h"
#include "kernels/cuda/sm80/attention.h"
#include "kernels/cuda/sm80/attention_rows.h"
#include "kernels/cuda/sm80/attention_shared.h"

namespace annulus::cuda {

// A lane's part of 16 * kRowTiles rows; half h of row tile i belongs to row 16 * i + 8 * h + lane /
// 4.
template <class C>
struct RowSums {
  float o[C::kRowTiles][C::kDim / 8][4] = {};
  float maximum[C::kRowTiles][2];  // of the scores, in units of log 2
  float sum[C::kRowTiles][2] = {};
  int32_t position[C::kRowTiles][2];  // -1: no row
};

// The output column of element e (0 or 1) of tile n.
template <class C>
ANNULUS_DEVICE int OutputColumn(int n, int e) {
  const int t = Lane() % 4;
  return C::kNarrow ? n / 2 * 16 + 4 * t + 2 * e + n % 2 : 8 * n + 2 * t + e;
}

// scores = query times key, for this warp's rows and keys.
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

// The factor for the scores or weights of slot `slot`. Slots without a key may have any scale.
template <class C>
ANNULUS_DEVICE float ScaleOf(const PageLayout& layout, const KeyTile& tile, const uint16_t* scales,
                             int slot) {
  if (slot >= tile.count) return 0;
  return C::kNarrow && layout.dtype == DType::kI8 ? WidenBFloat16(scales[slot]) : 1;
}

// The query head of a lane's row: row tile i, half h.
ANNULUS_DEVICE int HeadOf(const AttentionArguments& a, const AttentionUnit& unit, int first_row,
                          int i, int h) {
  const int row = unit.row_begin + first_row + 16 * i + 8 * h + Lane() / 4;
  return unit.kv_head * a.group + row % a.group;
}

// How often each of a lane's rows counts each of its keys: one byte per key, in the order of the
// scores.
template <class C>
struct SeenKeys {
  static constexpr int kKeys = C::kWarpKeys / 4;  // per lane
  uint32_t words[C::kRowTiles][2][kKeys / 4];

  ANNULUS_DEVICE int Times(int i, int h, int j, int e) const {
    const int key = 2 * j + e;
    return static_cast<int>(words[i][h][key / 4] >> key % 4 * 8 & 0xffu);
  }
};

// Not unrolled, because few tiles are masked and divisions take many instructions.
template <class C>
ANNULUS_DEVICE void FindSeen(const AttentionArguments& a, const AttentionUnit& unit,
                             const AttentionItemView& item, const KeyTile& tile, int first_row,
                             int first_key, const RowSums<C>& rows, SeenKeys<C>& seen) {
#pragma unroll
  for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint32_t(&words)[SeenKeys<C>::kKeys / 4] = seen.words[i][h];
#pragma unroll
      for (uint32_t& word : words) word = 0;
      const int head = HeadOf(a, unit, first_row, i, h);
#pragma unroll 1
      for (int key = 0; key < SeenKeys<C>::kKeys; ++key) {
        const int slot = first_key + key / 2 * 8 + Lane() % 4 * 2 + key % 2;
        const int times = TimesSeen(a, item, tile, rows.position[i][h], head, slot);
        const uint32_t byte = static_cast<uint32_t>(times) << key % 4 * 8;
#pragma unroll
        for (int w = 0; w < SeenKeys<C>::kKeys / 4; ++w) words[w] |= w == key / 4 ? byte : 0;
      }
    }
  }
}

// Turns scores into weights 2^(score - maximum), in place. Rescales sums and output.
template <class C>
ANNULUS_DEVICE void Softmax(const AttentionArguments& a, const AttentionUnit& unit,
                            const AttentionItemView& item, const AttentionShared<C>& shared,
                            int stage, const KeyTile& tile, bool masked, int first_row,
                            int first_key, float (&scores)[C::kRowTiles][C::kWarpKeys / 8][4],
                            RowSums<C>& rows) {
  constexpr float kLog2E = 1.4426950408889634f;
  const float infinity = FloatOf(0x7f800000u);
  const float factor = a.soft_cap > 0 ? a.scale / a.soft_cap : a.scale * kLog2E;
  SeenKeys<C> seen;
  if (masked) FindSeen<C>(a, unit, item, tile, first_row, first_key, rows, seen);
#pragma unroll
  for (int j = 0; j < C::kWarpKeys / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int slot = first_key + 8 * j + Lane() % 4 * 2 + e;
      const float column = factor * ScaleOf<C>(a.layout, tile, shared.OfKeys(stage), slot);
#pragma unroll
      for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float& score = scores[i][j][2 * h + e];
          score *= column;
          if (a.soft_cap > 0) score = a.soft_cap * kLog2E * Tanh(score);
          if (!masked) continue;
          const int times = seen.Times(i, h, j, e);
          if (times == 0) score = -infinity;
          if (times > 1) score += Log2(static_cast<float>(times));
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
      // No score yet, or only -infinity: all weights are 0.
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

// For the whole block: marks the slots of a tile whose values are not all finite, and sets those
// values to 0. Returns whether there is one.
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
      uint16_t& scale = shared.OfValues(stage)[slot];
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
    shared.Bad(stage, slot) = std::byte{bad};
    any |= bad;
  }
  return SyncThreadsOr(any);
}

// The weight of the warp's key `key`, for half h of a row tile. Registers cannot be indexed at run
// time, so a mask selects one of the thread's weights. With a comparison of indices, the compiler
// would generate indexing and keep all scores in local memory, even for tiles without such values.
template <class C>
ANNULUS_DEVICE float WeightOf(const float (&weights)[C::kWarpKeys / 8][4], int key, int h) {
  const uint32_t mask = 1u << (key / 8 * 2 + key % 2);
  float own = 0;
#pragma unroll
  for (int i = 0; i < C::kWarpKeys / 4; ++i) {
    if ((mask >> i & 1u) != 0) own = weights[i / 2][2 * h + i % 2];
  }
  return ShuffleFrom(own, Lane() / 4 * 4 + key % 8 / 2);
}

// For the whole block: adds the cleared values to the rows that see them, one by one. In a matrix
// product, 0 times infinity would reach rows that do not see them. This is rare, so the code is
// small rather than fast.
template <class C>
ANNULUS_DEVICE void AddBadValues(const AttentionArguments& a, const AttentionUnit& unit,
                                 const AttentionItemView& item, AttentionShared<C>& shared,
                                 const KeyTile& tile, int stage, int first_row, int first_key,
                                 const float (&weights)[C::kRowTiles][C::kWarpKeys / 8][4],
                                 RowSums<C>& rows) {
#pragma unroll 1
  for (int slot = 0; slot < C::kKeys; ++slot) {
    if (shared.Bad(stage, slot) == std::byte{0}) continue;
    SyncThreads();  // the previous value has been added, and the keys have been read
    for (int d = ThreadIndex(); d < a.layout.v_dim; d += C::kThreads) {
      shared.BadValue(stage)[d] = ValueAt(a.layout, tile, unit.kv_head, slot, d);
    }
    SyncThreads();
    const int key = slot - first_key;
    if (key < 0 || key >= C::kWarpKeys) continue;
#pragma unroll
    for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float weight = WeightOf<C>(weights[i], key, h);
        const int times =
            TimesSeen(a, item, tile, rows.position[i][h], HeadOf(a, unit, first_row, i, h), slot);
        if (times == 0) continue;
#pragma unroll
        for (int n = 0; n < C::kDim / 8; ++n) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int d = OutputColumn<C>(n, e);
            if (d < a.layout.v_dim) rows.o[i][n][2 * h + e] += weight * shared.BadValue(stage)[d];
          }
        }
      }
    }
  }
}

// output += weights times values, for this warp's rows and keys.
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
            ScaleOf<C>(layout, tile, shared.OfValues(stage), key + 8 * n + lane % 4 * 2 + e);
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
  if (bad) AddBadValues<C>(a, unit, item, shared, tile, stage, first_row, first_key, scores, rows);
  AddValues<C>(a.layout, tile, shared, stage, first_key, scores, rows);
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ATTENTION_TILE_H_
