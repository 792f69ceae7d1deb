#ifndef ANNULUS_KERNELS_CPU_ISA_ATTENTION_BF16_H_
#define ANNULUS_KERNELS_CPU_ISA_ATTENTION_BF16_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa_attention.h"
#include "kernels/cpu/isa_narrow_keys.h"
#include "kernels/cpu/isa_vec_avx512.h"
#include "kernels/cpu/simd_kernels.h"

// Attention over paired bf16 pages (PageLayout) with the AVX-512 dot product of bf16 pairs: queries
// and softmax weights are rounded to bf16, sums are float32. Online softmax over chunks of 64 keys
// with a lazy maximum: weights are 2^(score - m), where m is a whole number that is raised only
// when a score passes it by kSlack. So a rescale multiplies by a power of two, and is rare.
//
// A tile is up to 6 rows by 64 keys. Where all of its rows see all of its keys the scores stay in
// registers until they are weights (AttendWhole); else they pass through memory and masks
// (AttendPart). Both compute a row's numbers by the same operations in the same order, and whether
// m is raised depends on the row's own scores: a row's bits do not depend on its neighbours.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd_kernels.h

#define ANNULUS_ISA_INLINE inline __attribute__((always_inline))

inline constexpr int kTilePanels = kKeyChunk / kPanel;
inline constexpr int kTilePairs = kKeyChunk / 2;
// Weights reach 2^16 before the maximum follows: far from the ends of float32 and of bf16.
inline constexpr float kSlack = 16;
// The maximum of a row that has seen no score above -infinity: finite, so that the weight of a
// score of -infinity is 0 and not NaN, and any other score passes it.
inline constexpr float kNoMaximum = -0x1p100f;

// The weights of a tile, rounded: row r, slots 2 j and 2 j + 1 at pairs[r][j].
struct alignas(64) TileWeights {
  uint32_t pairs[kTileRows][kTilePairs];
};

ANNULUS_ISA_INLINE __m512 Dot(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
ANNULUS_ISA_INLINE __m512i LoadPairs(const uint32_t* p) { return _mm512_loadu_si512(p); }
ANNULUS_ISA_INLINE __m512i RoundPairs(__m512 low, __m512 high) {
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// s[r][p] = query row r . keys of panel p, one chain over the pairs of the head dimension.
template <int kRows, int kPanels>
ANNULUS_ISA_INLINE void DotTile(const uint32_t* query, const uint32_t* k, int64_t pairs,
                                __m512 (&s)[kRows][kPanels]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) s[r][p] = _mm512_setzero_ps();
  }
  for (int64_t i = 0; i < pairs; ++i) {
    __m512i keys[kPanels];
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) keys[p] = LoadPairs(k + (p * pairs + i) * kPanel);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i q = _mm512_set1_epi32(static_cast<int>(query[r * pairs + i]));
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) s[r][p] = Dot(s[r][p], q, keys[p]);
    }
  }
}

// Scores before the maximum, in powers of two: score * factor, through the soft cap if any.
template <bool kCap>
ANNULUS_ISA_INLINE __m512 Capped(__m512 score, const float* factors, float soft_cap) {
  if (!kCap) return score;
  return CapScore<VecAvx512>(_mm512_mul_ps(score, _mm512_load_ps(factors)), soft_cap);
}

// 2^t for t <= kSlack; exactly 0 from -127 down. Magic rounding splits t into n + f with
// |f| <= 1/2; the polynomial's relative error is 1.1e-4, below the rounding to bf16 (2e-3), and
// it is exactly 1 at f = 0. NaN stays NaN (its low 16 bits, if it came from bf16, are 0).
ANNULUS_ISA_INLINE __m512 Exp2Weight(__m512 t) {
  const __m512 magic = _mm512_set1_ps(0x1.8p23f);
  t = _mm512_max_ps(_mm512_set1_ps(-127.0f), t);
  const __m512 n = _mm512_add_ps(t, magic);
  const __m512 f = _mm512_sub_ps(t, _mm512_sub_ps(n, magic));
  __m512 p = _mm512_set1_ps(5.500892922e-2f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.422109544e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.932829022e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(n), 23)));
}

// Rounds a row's weights, keeps them, and adds them to the row's sums.
ANNULUS_ISA_INLINE void KeepWeights(const __m512 (&p)[kTilePanels], uint32_t* pairs, float* sums) {
  const __m512i ones = _mm512_set1_epi32(0x3f803f80);
  const __m512i low = RoundPairs(p[0], p[1]);
  const __m512i high = RoundPairs(p[2], p[3]);
  _mm512_store_si512(pairs, low);
  _mm512_store_si512(pairs + kPanel, high);
  _mm512_storeu_ps(sums, Dot(Dot(_mm512_loadu_ps(sums), low, ones), high, ones));
}

// o[r][c] += sum over pairs [begin, end) of weights * values, for kVectors * 16 columns.
template <int kRows, int kVectors>
ANNULUS_ISA_INLINE void ValueTile(float* o, int64_t stride, const uint32_t (*weights)[kTilePairs],
                                  const uint32_t* v, int begin, int end) {
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) sum[r][c] = _mm512_loadu_ps(o + r * stride + c * kPanel);
  }
  for (int j = begin; j < end; ++j) {
    __m512i values[kVectors];
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) values[c] = LoadPairs(v + j * stride + c * kPanel);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i weight = _mm512_set1_epi32(static_cast<int>(weights[r][j]));
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) sum[r][c] = Dot(sum[r][c], weight, values[c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) _mm512_storeu_ps(o + r * stride + c * kPanel, sum[r][c]);
  }
}

// All columns: four vectors at a time, and what is left in parts that keep many chains in flight.
template <int kRows>
ANNULUS_ISA_INLINE void ValueTiles(float* o, int64_t stride, const uint32_t (*weights)[kTilePairs],
                                   const uint32_t* v, int begin, int end) {
  int64_t c = 0;
  for (; stride - c >= 6 * kPanel || stride - c == 4 * kPanel; c += 4 * kPanel) {
    ValueTile<kRows, 4>(o + c, stride, weights, v + c, begin, end);
  }
  for (; stride - c >= 3 * kPanel; c += 3 * kPanel) {
    ValueTile<kRows, 3>(o + c, stride, weights, v + c, begin, end);
  }
  if (stride - c == 2 * kPanel) {
    ValueTile<kRows, 2>(o + c, stride, weights, v + c, begin, end);
  } else if (stride - c == kPanel) {
    ValueTile<kRows, 1>(o + c, stride, weights, v + c, begin, end);
  }
}

// One pair of slots for one row, of which only those in `keep` (0xffff low, 0xffff0000 high) are
// seen: the other's value is not used, whatever it is.
inline void AddPair(float* o, int64_t stride, uint32_t weight, const uint32_t* v, uint32_t keep) {
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(keep));
  const __m512i wide = _mm512_set1_epi32(static_cast<int>(weight));
  for (int64_t c = 0; c < stride; c += kPanel) {
    const __m512i values = _mm512_and_si512(LoadPairs(v + c), mask);
    _mm512_storeu_ps(o + c, Dot(_mm512_loadu_ps(o + c), wide, values));
  }
}

// A chunk of up to 64 keys of one head as the tiles use it.
struct PairedChunk {
  const uint32_t* k;  // [panels][k_pairs][16]
  const uint32_t* v;  // [slots / 2][v_stride]
  int panels;         // in the page
  int64_t first;      // position of slot 0
  int begin;          // slots that may be attended
  int end;
  alignas(64) float factors[kKeyChunk];  // score * factor is in powers of two (with a soft cap: e)
};

// Raises a row's maximum to `maximum`, above the one it has.
inline void RaiseMaximum(const AttentionBlock& block, int row, float maximum) {
  const float old = block.maximum[row];
  block.maximum[row] = maximum;
  // 2^(old - maximum), by its exponent's bits; what is smaller is 0.
  const float shift = old - maximum;
  const uint32_t bits =
      shift > -127 ? static_cast<uint32_t>(127 + static_cast<int>(shift)) << 23 : 0;
  const __m512 shrink = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(bits)));
  float* const o = block.o + int64_t{row} * block.v_stride;
  float* const sums = block.sums + int64_t{row} * kPanel;
  for (int c = 0; c < block.v_stride; c += kPanel) {
    _mm512_storeu_ps(o + c, _mm512_mul_ps(_mm512_loadu_ps(o + c), shrink));
  }
  _mm512_storeu_ps(sums, _mm512_mul_ps(_mm512_loadu_ps(sums), shrink));
}

// A row's dot products as weights of slots [begin, end); the other weights are 0.
template <bool kCap>
inline void WeighPairedRow(const AttentionBlock& block, int row, const PairedChunk& chunk,
                           const float* scores, int begin, int end, uint32_t* pairs) {
  const uint64_t visible = (~uint64_t{0} >> (kKeyChunk - (end - begin))) << begin;
  const __m512 none = _mm512_set1_ps(-kInfinity);
  __m512 score[kTilePanels];
  __m512 factor[kTilePanels];
  __m512 largest = none;
  __m512 excess = none;
  const __m512 old = _mm512_set1_ps(-block.maximum[row]);
  for (int p = 0; p < kTilePanels; ++p) {
    const __mmask16 mask = static_cast<__mmask16>(visible >> (p * kPanel));
    const float* const factors = chunk.factors + p * kPanel;
    score[p] = Capped<kCap>(_mm512_load_ps(scores + p * kPanel), factors, block.soft_cap);
    factor[p] = kCap ? _mm512_set1_ps(1.44269504f) : _mm512_load_ps(factors);
    const __m512 scaled = _mm512_mul_ps(score[p], factor[p]);
    largest = _mm512_mask_max_ps(largest, mask, scaled, largest);
    const __m512 t = _mm512_fmadd_ps(score[p], factor[p], old);
    excess = _mm512_mask_max_ps(excess, mask, t, excess);
  }
  if (_mm512_reduce_max_ps(excess) > kSlack) {
    const float maximum = _mm512_reduce_max_ps(largest);
    if (maximum > block.maximum[row]) RaiseMaximum(block, row, __builtin_ceilf(maximum));
  }
  __m512 weights[kTilePanels];
  const __m512 offset = _mm512_set1_ps(-block.maximum[row]);
  for (int p = 0; p < kTilePanels; ++p) {
    const __mmask16 mask = static_cast<__mmask16>(visible >> (p * kPanel));
    weights[p] =
        _mm512_maskz_mov_ps(mask, Exp2Weight(_mm512_fmadd_ps(score[p], factor[p], offset)));
  }
  KeepWeights(weights, pairs, block.sums + int64_t{row} * kPanel);
}

// A tile with masks, or one whose maximum may have to be raised.
template <int kRows, bool kCap>
__attribute__((noinline)) void AttendPart(const AttentionBlock& block, int row,
                                          const PairedChunk& chunk, const TileKeys& keys) {
  const int64_t pairs = block.k_pairs;
  const uint32_t* const query = block.query_pairs + row * pairs;
  alignas(64) float scores[kRows][kKeyChunk];
  for (int panel = 0; panel < kTilePanels;) {
    if (chunk.panels == kTilePanels) {
      __m512 s[kRows][kTilePanels];
      DotTile<kRows, kTilePanels>(query, chunk.k, pairs, s);
      for (int r = 0; r < kRows; ++r) {
        for (int p = 0; p < kTilePanels; ++p) _mm512_store_ps(scores[r] + p * kPanel, s[r][p]);
      }
      break;
    }
    __m512 s[kRows][1] = {};
    if (panel < chunk.panels) DotTile<kRows, 1>(query, chunk.k + panel * pairs * kPanel, pairs, s);
    for (int r = 0; r < kRows; ++r) _mm512_store_ps(scores[r] + panel * kPanel, s[r][0]);
    ++panel;
  }
  TileWeights weights;
  for (int r = 0; r < kRows; ++r) {
    if (keys.begin[r] < keys.end[r]) {
      WeighPairedRow<kCap>(block, row + r, chunk, scores[r], keys.begin[r], keys.end[r],
                           weights.pairs[r]);
    }
  }
  // Whole pairs that all rows see are added together, what lies before and after row by row: each
  // row's order over its own keys stays ascending.
  const int64_t stride = block.v_stride;
  float* const o = block.o + row * stride;
  const int shared_begin = (keys.all_begin + 1) / 2;
  const int shared_end = keys.all_end / 2;
  const bool shared = shared_begin < shared_end;
  const auto add_row = [&](int r, int begin, int end) {
    float* const row_o = o + r * stride;
    const uint32_t(*row_weights)[kTilePairs] = weights.pairs + r;
    if (begin >= end) return;
    if (begin % 2 != 0) {
      AddPair(row_o, stride, weights.pairs[r][begin / 2], chunk.v + begin / 2 * stride,
              0xffff0000u);
    }
    ValueTiles<1>(row_o, stride, row_weights, chunk.v, (begin + 1) / 2, end / 2);
    if (end % 2 != 0) {
      AddPair(row_o, stride, weights.pairs[r][end / 2], chunk.v + end / 2 * stride, 0xffffu);
    }
  };
  for (int r = 0; r < kRows; ++r) {
    add_row(r, keys.begin[r], shared ? 2 * shared_begin : keys.end[r]);
  }
  if (!shared) return;
  ValueTiles<kRows>(o, stride, weights.pairs, chunk.v, shared_begin, shared_end);
  for (int r = 0; r < kRows; ++r) add_row(r, 2 * shared_end, keys.end[r]);
}

// A tile whose rows see all 64 keys.
template <int kRows, bool kCap>
__attribute__((noinline)) void AttendWhole(const AttentionBlock& block, int row,
                                           const PairedChunk& chunk, const TileKeys& keys) {
  const int64_t pairs = block.k_pairs;
  __m512 s[kRows][kTilePanels];
  DotTile<kRows, kTilePanels>(block.query_pairs + row * pairs, chunk.k, pairs, s);
  __m512 excess = _mm512_set1_ps(-kInfinity);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const __m512 offset = _mm512_set1_ps(-block.maximum[row + r]);
#pragma GCC unroll 8
    for (int p = 0; p < kTilePanels; ++p) {
      const float* const factors = chunk.factors + p * kPanel;
      const __m512 score = Capped<kCap>(s[r][p], factors, block.soft_cap);
      const __m512 factor = kCap ? _mm512_set1_ps(1.44269504f) : _mm512_load_ps(factors);
      s[r][p] = _mm512_fmadd_ps(score, factor, offset);
      excess = _mm512_max_ps(s[r][p], excess);  // where s is NaN, the old one
    }
  }
  if (__builtin_expect(_mm512_cmp_ps_mask(excess, _mm512_set1_ps(kSlack), _CMP_GT_OQ) != 0, 0)) {
    return AttendPart<kRows, kCap>(block, row, chunk, keys);
  }
  TileWeights weights;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kTilePanels; ++p) s[r][p] = Exp2Weight(s[r][p]);
    KeepWeights(s[r], weights.pairs[r], block.sums + int64_t{row + r} * kPanel);
  }
  ValueTiles<kRows>(block.o + int64_t{row} * block.v_stride, block.v_stride, weights.pairs, chunk.v,
                    0, kTilePairs);
}

template <int kRows, bool kCap>
ANNULUS_ISA_INLINE void AttendRows(const AttentionBlock& block, int row, const PairedChunk& chunk) {
  const TileKeys keys = FindTileKeys(block, row, kRows, chunk.first, chunk.begin, chunk.end);
  if (keys.any_begin >= keys.any_end) return;
  if (keys.all_begin == 0 && keys.all_end == kKeyChunk) {
    AttendWhole<kRows, kCap>(block, row, chunk, keys);
  } else {
    AttendPart<kRows, kCap>(block, row, chunk, keys);
  }
}

template <bool kCap>
void AttendChunk(const AttentionBlock& block, const PairedChunk& chunk) {
  const int rows = block.position_count * block.group;
  for (int row = 0; row < rows;) {
    const int left = rows - row;
    // Two tiles of like height are faster than a full one and a flat one.
    const int height = left >= 2 * kTileRows ? kTileRows : left > kTileRows ? (left + 1) / 2 : left;
    switch (height) {
      case 1:
        AttendRows<1, kCap>(block, row, chunk);
        break;
      case 2:
        AttendRows<2, kCap>(block, row, chunk);
        break;
      case 3:
        AttendRows<3, kCap>(block, row, chunk);
        break;
      case 4:
        AttendRows<4, kCap>(block, row, chunk);
        break;
      case 5:
        AttendRows<5, kCap>(block, row, chunk);
        break;
      default:
        AttendRows<kTileRows, kCap>(block, row, chunk);
    }
    row += height;
  }
}

void AttendPairedKeys(const AttentionBlock& block, const AttentionKeys& keys) {
  PairedChunk chunk;
  const bool cap = block.soft_cap > 0;
  const float factor = cap ? block.scale : block.scale * 1.44269504f;
  for (int i = 0; i < kKeyChunk; ++i) chunk.factors[i] = factor;
  for (int slot = keys.begin / kKeyChunk * kKeyChunk; slot < keys.end; slot += kKeyChunk) {
    chunk.k = static_cast<const uint32_t*>(keys.k) + int64_t{slot} * block.k_pairs;
    chunk.v = static_cast<const uint32_t*>(keys.v) + int64_t{slot / 2} * block.v_stride;
    chunk.panels = static_cast<int>(Smaller(kTilePanels, (keys.slots - slot) / kPanel));
    chunk.first = keys.first_position + slot;
    chunk.begin = static_cast<int>(Larger(keys.begin - slot, 0));
    chunk.end = static_cast<int>(Smaller(keys.end - slot, kKeyChunk));
    if (keys.k_scales != nullptr) {
      for (int i = 0; i < chunk.end; ++i) {
        chunk.factors[i] = factor * WidenScale(keys.k_scales[slot + i]);
      }
    }
    if (cap) {
      AttendChunk<true>(block, chunk);
    } else {
      AttendChunk<false>(block, chunk);
    }
  }
}

// Also rounds the block's queries to bf16.
void BeginPairedSpan(const AttentionBlock& block) {
  BeginSpan<VecAvx512>(block);
  const int rows = block.position_count * block.group;
  for (int row = 0; row < rows; ++row) block.maximum[row] = kNoMaximum;
  for (int row = 0; row < rows; ++row) {
    const float* const query = block.query + row / block.group * block.query_stride +
                               int64_t{row % block.group} * block.k_dim;
    uint16_t* const to = reinterpret_cast<uint16_t*>(block.query_pairs + row * block.k_pairs);
    for (int d = 0; d < block.k_dim; d += kPanel) {
      const int left = block.k_dim - d;
      const __mmask16 mask = static_cast<__mmask16>(left >= kPanel ? 0xffff : (1 << left) - 1);
      const __m256i narrow = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, query + d));
      // An odd dimension's last pair ends with the zero that lies in the next lane.
      const __mmask16 padded =
          static_cast<__mmask16>(left >= kPanel ? 0xffff : (1 << (left + left % 2)) - 1);
      _mm256_mask_storeu_epi16(to + d, padded, narrow);
    }
  }
}

// The sum is of the rounded weights, and the quotient is rounded once: one key alone is copied
// exactly.
void FinishPairedSpan(const AttentionBlock& block) {
  const int rows = block.position_count * block.group;
  for (int row = 0; row < rows; ++row) {
    const float sum = _mm512_reduce_add_ps(_mm512_loadu_ps(block.sums + row * kPanel));
    if (sum == 0) {
      block.lse[row] = -kInfinity;
      continue;
    }
    float* const o = block.o + int64_t{row} * block.v_stride;
    for (int c = 0; c < block.v_stride; c += kPanel) {
      _mm512_storeu_ps(o + c, _mm512_div_ps(_mm512_loadu_ps(o + c), _mm512_set1_ps(sum)));
    }
    block.lse[row] = block.maximum[row] * 0.693147181f + __builtin_logf(sum);
  }
}

#undef ANNULUS_ISA_INLINE

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_ATTENTION_BF16_H_
