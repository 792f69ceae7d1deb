#ifndef ANNULUS_KERNELS_CUDA_SM80_ATTENTION_PREFILL_TILE_H_
#define ANNULUS_KERNELS_CUDA_SM80_ATTENTION_PREFILL_TILE_H_

// Computes one tile of keys and values for the rows of a block: scores, weights, output. See
// attention_prefill.h.
#include <limits>
#include <type_traits>

#include "kernels/cuda/common/matrix.h"
#include "kernels/cuda/sm80/attention.h"
#include "kernels/cuda/sm80/attention_prefill_shared.h"
#include "kernels/cuda/sm80/attention_rows.h"

namespace annulus::cuda {

// A lane's part of 16 * kRowTiles rows; half h of row tile i belongs to row 16 * i + 8 * h + lane /
// 4. Weights are 2^(score - base), where `base` is a maximum of the row's scores, but lags behind
// it by up to kLag: weights stay below 2^kLag, and output and sum need rescaling only where it
// moves.
template <class C>
struct PrefillRows {
  float o[C::kRowTiles][C::kDim / 8][4] = {};
  float base[C::kRowTiles][2];  // in units of log 2
  float sum[C::kRowTiles][2] = {};
};
inline constexpr float kLag = 8;
inline constexpr float kNoScore = -std::numeric_limits<float>::infinity();
inline constexpr float kLog2E = 1.4426950408889634f;

template <class C>
using PrefillScores = float[C::kRowTiles][C::kKeys / 8][4];

// The tile's place among the rows of a unit.
struct PrefillTile {
  KeyTile keys;
  bool hidden;  // some row may not see some key
  int parity;
};

// What a tile needs: the products and a scale; also the scales of int8; or, for few tiles,
// anything. Each has code of its own, because registers suffice for the first two only.
enum class TileWork : uint8_t { kPlain, kScaled, kAny };

template <class C, TileWork kWork>
ANNULUS_DEVICE bool HasScales(const PageLayout& layout) {
  return kWork == TileWork::kScaled ||
         (kWork == TileWork::kAny && C::kNarrow && layout.dtype == DType::kI8);
}

// The number of the lane's row within the unit: row tile i, half h.
template <class C>
ANNULUS_DEVICE int PrefillRow(int i, int h) {
  const int thread = static_cast<int>(Unhoisted(ThreadIndex()));
  return (thread / kWarp * C::kRowTiles + i) * 16 + 8 * h + thread % kWarp / 4;
}

// scores = query times key. Loads the operands of a step before the products of the previous one.
template <class C>
ANNULUS_DEVICE void PrefillProducts(const PageLayout& layout, const PrefillShared<C>& shared,
                                    PrefillScores<C>& scores) {
  constexpr int kSteps = C::kKeys / 16;  // of 16 keys, for each 16 of depth
  const int lane = static_cast<int>(Unhoisted(Lane()));
  const int first_row = static_cast<int>(Unhoisted(WarpIndex())) * C::kRowTiles * 16;
  const uint16_t* const query = &shared.query[first_row + lane % 16][lane / 16 * 8];
  const uint16_t* const keys = &shared.keys[lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8];
  uint32_t a[2][C::kRowTiles][4];
  uint32_t b[2][4];
  const auto load_rows = [&](int k) {
#pragma unroll
    for (int i = 0; i < C::kRowTiles; ++i) {
      LoadMatrices(a[k / 16 % 2][i], query + 16 * i * (C::kDim + 8) + k);
    }
  };
  load_rows(0);
  LoadMatrices(b[0], keys);
#pragma unroll
  for (int k = 0; k < C::kDim; k += 16) {
    if (C::kDim > 128 && k % 64 == 0 && k >= layout.k_stride) break;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int next = k / 16 * kSteps + step + 1;
      if (next < C::kDim / 16 * kSteps) {
        if (next % kSteps == 0) load_rows(k + 16);
        LoadMatrices(b[next % 2], keys + next % kSteps * 16 * (C::kDim + 8) + next / kSteps * 16);
      }
      const uint32_t(&now)[4] = b[(next - 1) % 2];
#pragma unroll
      for (int i = 0; i < C::kRowTiles; ++i) {
        const uint32_t(&rows)[4] = a[k / 16 % 2][i];
        MultiplyAdd(typename C::Operand{}, scores[i][2 * step], rows, now[0], now[1]);
        MultiplyAdd(typename C::Operand{}, scores[i][2 * step + 1], rows, now[2], now[3]);
      }
    }
  }
}

// Multiplies the columns of scores or weights by the keys' int8 scales.
template <class C>
ANNULUS_DEVICE void MultiplyByScales(const uint16_t* scales, int count, PrefillScores<C>& scores) {
#pragma unroll
  for (int j = 0; j < C::kKeys / 8; ++j) {
    const int slot = 8 * j + Lane() % 4 * 2;
    const uint32_t pair = *reinterpret_cast<const uint32_t*>(scales + slot);
    // Slots without a key may have any scale.
    const float low = slot < count ? WidenBFloat16(pair & 0xffffu) : 0;
    const float high = slot + 1 < count ? FloatOf(pair & 0xffff0000u) : 0;
#pragma unroll
    for (int i = 0; i < C::kRowTiles; ++i) {
      scores[i][j][0] *= low;
      scores[i][j][1] *= high;
      scores[i][j][2] *= low;
      scores[i][j][3] *= high;
    }
  }
}

// The times that a row counts each of a lane's keys, as a byte per key in the order of the scores.
// Not unrolled: for few tiles, it would be thousands of instructions.
template <class C>
struct KeyTimes {
  static constexpr int kLaneKeys = C::kKeys / 4;
  uint32_t words[kLaneKeys / 4] = {};

  ANNULUS_DEVICE KeyTimes(const AttentionArguments& a, const AttentionItemView& item,
                          const KeyTile& tile, int32_t position, int head) {
#pragma unroll 1
    for (int key = 0; key < kLaneKeys; ++key) {
      const int slot = key / 2 * 8 + Lane() % 4 * 2 + key % 2;
      const int times = TimesSeen(a, item, tile, position, head, slot);
      const uint32_t byte = static_cast<uint32_t>(times) << key % 4 * 8;
#pragma unroll
      for (int w = 0; w < kLaneKeys / 4; ++w) words[w] |= w == key / 4 ? byte : 0;
    }
  }
  ANNULUS_DEVICE int Of(int key) const {
    return static_cast<int>(words[key / 4] >> key % 4 * 8 & 0xffu);
  }
};

// Sets the scores of keys that a row does not see to -infinity, and adds log2(times) where it
// counts a key several times. Without branches, a row sees a range of slots.
template <class C>
ANNULUS_DEVICE void MaskScores(const AttentionArguments& a, const AttentionUnit& unit,
                               const AttentionItemView& item, const KeyTile& tile,
                               PrefillScores<C>& scores) {
#pragma unroll
  for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = PrefillRow<C>(i, h);
      const int row = unit.row_begin + r;
      const int32_t position = r < unit.row_count ? item.positions[row / a.group] : -1;
      if (item.branch_count > 0) {
        const KeyTimes<C> times(a, item, tile, position, unit.kv_head * a.group + row % a.group);
#pragma unroll
        for (int key = 0; key < C::kKeys / 4; ++key) {
          float& score = scores[i][key / 2][2 * h + key % 2];
          if (times.Of(key) == 0) score = kNoScore;
          if (times.Of(key) > 1) score += Log2(static_cast<float>(times.Of(key)));
        }
        continue;
      }
      const SlotRange seen = SlotsSeen(a, tile, position);
#pragma unroll
      for (int key = 0; key < C::kKeys / 4; ++key) {
        const int slot = key / 2 * 8 + Lane() % 4 * 2 + key % 2;
        float& score = scores[i][key / 2][2 * h + key % 2];
        if (slot < seen.begin || slot >= seen.end) score = kNoScore;
      }
    }
  }
}

// Brings scores to units of log 2, with soft cap and mask. Without them it rounds as the other
// tiles do, so a row has the same bits whether or not a tile hides a key from another row.
template <class C>
ANNULUS_DEVICE void BendScores(const AttentionArguments& a, const AttentionUnit& unit,
                               const AttentionItemView& item, const PrefillTile& tile,
                               PrefillScores<C>& scores) {
  const float factor = a.soft_cap > 0 ? a.scale / a.soft_cap : a.scale * kLog2E;
#pragma unroll
  for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < C::kKeys / 8; ++j) {
#pragma unroll
      for (float& score : scores[i][j]) {
        score = RoundedProduct(score, factor);
        if (a.soft_cap > 0) score = RoundedProduct(a.soft_cap * kLog2E, Tanh(score));
      }
    }
  }
  if (tile.hidden || tile.keys.count < C::kKeys) MaskScores<C>(a, unit, item, tile.keys, scores);
}

// Moves the bases that lag too far behind their rows' maxima, and rescales sums and output. Times
// `factor`, scores are in units of log 2.
template <class C>
ANNULUS_DEVICE void MoveBases(const PrefillScores<C>& scores, float factor, PrefillRows<C>& rows) {
  float top[C::kRowTiles][2];
  bool moves = false;
#pragma unroll
  for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float maximum = kNoScore;
#pragma unroll
      for (int j = 0; j < C::kKeys / 8; ++j) {
        maximum = fmaxf(maximum, fmaxf(scores[i][j][2 * h], scores[i][j][2 * h + 1]));
      }
      maximum = fmaxf(maximum, ShuffleXor(maximum, 1));
      maximum = fmaxf(maximum, ShuffleXor(maximum, 2));
      top[i][h] = RoundedProduct(maximum, factor);
      moves |= top[i][h] > rows.base[i][h] + kLag;
    }
  }
  if (Ballot(moves) == 0) return;
#pragma unroll
  for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (!(top[i][h] > rows.base[i][h] + kLag)) continue;
      const float rescale = Exp2(rows.base[i][h] - top[i][h]);
      rows.base[i][h] = top[i][h];
      rows.sum[i][h] *= rescale;
#pragma unroll
      for (int n = 0; n < C::kDim / 8; ++n) {
        rows.o[i][n][2 * h] *= rescale;
        rows.o[i][n][2 * h + 1] *= rescale;
      }
    }
  }
}

// Turns scores into weights, in place.
template <class C, TileWork kWork>
ANNULUS_DEVICE void PrefillSoftmax(const AttentionArguments& a, const AttentionUnit& unit,
                                   const AttentionItemView& item, PrefillShared<C>& shared,
                                   const PrefillTile& tile, PrefillScores<C>& scores,
                                   PrefillRows<C>& rows) {
  if (HasScales<C, kWork>(a.layout)) {
    MultiplyByScales<C>(shared.KeyScales(tile.parity), tile.keys.count, scores);
  }
  if constexpr (kWork == TileWork::kAny) BendScores<C>(a, unit, item, tile, scores);
  const float factor = kWork == TileWork::kAny ? 1 : a.scale * kLog2E;
  MoveBases<C>(scores, factor, rows);
#pragma unroll
  for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Until there is a score other than -infinity, all weights are 0.
      const float base = rows.base[i][h] == kNoScore ? 0 : rows.base[i][h];
      float sum = 0;
#pragma unroll
      for (int j = 0; j < C::kKeys / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = scores[i][j][2 * h + e];
          // Rounded like the maximum, so that the weight of a key alone is 1.
          score = Exp2(RoundedProduct(score, factor) - base);
          sum += score;
        }
      }
      rows.sum[i][h] += sum;
    }
  }
}

// For the whole block: marks the slots of a tile whose values are not all finite, and sets those
// values to 0. Returns whether there is one.
template <class C>
ANNULUS_DEVICE bool ClearValues(const PageLayout& layout, PrefillShared<C>& shared, int parity) {
  constexpr uint32_t kInfinity = std::is_same_v<typename C::Operand, Float16> ? 0x7c00u : 0x7f80u;
  bool any = false;
  for (int slot = ThreadIndex(); slot < C::kKeys; slot += C::kThreads) {
    auto* const chunks = reinterpret_cast<Bytes16*>(shared.values[slot]);
    bool bad = false;
    if (C::kNarrow && layout.dtype == DType::kI8) {
      uint16_t& scale = shared.ValueScales(parity)[slot];
      bad = (scale & 0x7f80u) == 0x7f80u;
      if (bad) scale = 0;
    } else {
      for (int i = 0; i < C::kDim / 8; ++i) {
        const Bytes16 chunk = chunks[i];
        for (const uint32_t word : chunk.words) {
          bad |= (word & kInfinity) == kInfinity || (word >> 16 & kInfinity) == kInfinity;
        }
      }
      for (int i = 0; bad && i < C::kDim / 8; ++i) chunks[i] = {};
    }
    shared.Bad(slot) = bad;
    any |= bad;
  }
  return SyncThreadsOr(any);
}

// The weight of key `key`, for half h of a row tile. Registers cannot be indexed at run time, so a
// mask selects one of the thread's weights. With a comparison of indices, the compiler would
// generate indexing and keep all scores in local memory, even for tiles without such values.
template <class C>
ANNULUS_DEVICE float PrefillWeightOf(const float (&weights)[C::kKeys / 8][4], int key, int h) {
  const uint32_t mask = 1u << (key / 8 * 2 + key % 2);
  float own = 0;
#pragma unroll
  for (int i = 0; i < C::kKeys / 4; ++i) {
    if ((mask >> i & 1u) != 0) own = weights[i / 2][2 * h + i % 2];
  }
  return ShuffleFrom(own, Lane() / 4 * 4 + key % 8 / 2);
}

// For the whole block: adds the cleared values to the rows that see them, one by one. In a matrix
// product, 0 times infinity would reach rows that do not see them. This is rare, so the code is
// small rather than fast.
template <class C>
ANNULUS_DEVICE void AddClearedValues(const AttentionArguments& a, const AttentionUnit& unit,
                                     const AttentionItemView& item, PrefillShared<C>& shared,
                                     const KeyTile& tile, const PrefillScores<C>& weights,
                                     PrefillRows<C>& rows) {
#pragma unroll 1
  for (int slot = 0; slot < C::kKeys; ++slot) {
    if (shared.Bad(slot) == 0) continue;
    SyncThreads();  // the previous value has been added
    for (int d = ThreadIndex(); d < a.layout.v_dim; d += C::kThreads) {
      shared.BadValue(d) = ValueAt(a.layout, tile, unit.kv_head, slot, d);
    }
    SyncThreads();
#pragma unroll
    for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float weight = PrefillWeightOf<C>(weights[i], slot, h);
        const int r = PrefillRow<C>(i, h);
        const int row = unit.row_begin + r;
        const int32_t position = r < unit.row_count ? item.positions[row / a.group] : -1;
        const int head = unit.kv_head * a.group + row % a.group;
        if (TimesSeen(a, item, tile, position, head, slot) == 0) continue;
        const int lane = static_cast<int>(Unhoisted(Lane()));
#pragma unroll
        for (int n = 0; n < C::kDim / 8; ++n) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int d = 8 * n + lane % 4 * 2 + e;
            if (d < a.layout.v_dim) rows.o[i][n][2 * h + e] += weight * shared.BadValue(d);
          }
        }
      }
    }
  }
}

// output += weights times values. Loads the operands of a step before the products of the previous
// one.
template <class C>
ANNULUS_DEVICE void PrefillOutput(const PageLayout& layout, const PrefillShared<C>& shared,
                                  const PrefillScores<C>& weights, PrefillRows<C>& rows) {
  using T = typename C::Operand;
  constexpr int kSteps = C::kDim / 16;    // of 16 columns, for each 16 keys
  constexpr bool kSkips = C::kDim > 128;  // columns that are absent
  const int lane = static_cast<int>(Unhoisted(Lane()));
  const uint16_t* const values = &shared.values[lane % 16][lane / 16 * 8];
  uint32_t b[2][4];
  LoadTransposed(b[0], values);
#pragma unroll
  for (int j = 0; j < C::kKeys / 16; ++j) {
    if (kSkips && j > 0) LoadTransposed(b[0], values + j * 16 * (C::kDim + 8));
    uint32_t a[C::kRowTiles][4];
#pragma unroll
    for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float(&w)[4] = weights[i][2 * j + n];
        a[i][2 * n] = Pack(T{}, w[0], w[1]);
        a[i][2 * n + 1] = Pack(T{}, w[2], w[3]);
      }
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (kSkips && step % 4 == 0 && step * 16 >= layout.v_stride) break;
      const int next = j * kSteps + step + 1;
      if (next < C::kKeys / 16 * kSteps && !(kSkips && next % kSteps == 0)) {
        LoadTransposed(b[next % 2],
                       values + next / kSteps * 16 * (C::kDim + 8) + next % kSteps * 16);
      }
      const uint32_t(&now)[4] = b[(next - 1) % 2];
#pragma unroll
      for (int i = 0; i < C::kRowTiles; ++i) {
        MultiplyAdd(T{}, rows.o[i][2 * step], a[i], now[0], now[1]);
        MultiplyAdd(T{}, rows.o[i][2 * step + 1], a[i], now[2], now[3]);
      }
    }
  }
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ATTENTION_PREFILL_TILE_H_
