#ifndef ANNULUS_KERNELS_CPU_ISA_PAIRED_SOFTMAX_H_
#define ANNULUS_KERNELS_CPU_ISA_PAIRED_SOFTMAX_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa/attention.h"
#include "kernels/cpu/isa/fetch.h"
#include "kernels/cpu/isa/narrow_keys.h"
#include "kernels/cpu/isa/vec_avx512.h"
#include "kernels/cpu/simd/kernels.h"

// The softmax of the kernels over paired bf16 pages. Queries and softmax weights are rounded to
// bf16; sums are float32. Online over chunks of 64 keys with a lazy maximum: weights are 2^(score -
// m), where m is a whole number that is raised only when a score exceeds it by kSlack. So rescaling
// is rare and multiplies by a power of two. Whether m is raised depends only on the row's own
// scores, so a row's bits do not depend on its neighbours.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

#define ANNULUS_ISA_INLINE inline __attribute__((always_inline))

inline constexpr int kTilePanels = kKeyChunk / kPanel;
inline constexpr int kTilePairs = kKeyChunk / 2;
// Weights can reach 2^16 before the maximum is raised: far from the limits of float32 and bf16.
inline constexpr float kSlack = 16;
// The maximum of a row that has seen no score above -infinity. It is finite, so that a score of
// -infinity gets weight 0 and not NaN, and so low that any other score exceeds it.
inline constexpr float kNoMaximum = -0x1p100f;

ANNULUS_ISA_INLINE __m512 Dot(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
ANNULUS_ISA_INLINE __m512i LoadPairs(const uint32_t* p) { return _mm512_loadu_si512(p); }
ANNULUS_ISA_INLINE __m512i RoundPairs(__m512 low, __m512 high) {
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// The first `count` lanes; count may be below 0 or above 16.
ANNULUS_ISA_INLINE __mmask16 FirstLanes(int count) {
  return static_cast<__mmask16>(count >= kPanel ? 0xffff : count <= 0 ? 0 : (1 << count) - 1);
}

// A score before the maximum is subtracted: score * factor, through the soft cap if there is one.
template <bool kCap>
ANNULUS_ISA_INLINE __m512 Capped(__m512 score, const float* factors, float soft_cap) {
  if (!kCap) return score;
  return CapScore<VecAvx512>(_mm512_mul_ps(score, _mm512_load_ps(factors)), soft_cap);
}

// Weights are 2^t. t is rounded to sixteenths, for which a table gives the power; the remainder f,
// |f| <= 1/32, contributes the factor 1 + ln(2) f. So most of the work is additions, permutations
// and integer operations, on units that the dot products leave idle. The relative error is 1.2e-4,
// less than that of rounding to bf16 (2e-3), and a weight of 1 is rounded to exactly 1.
//
// The weight of t is other than 0 if t, rounded to sixteenths, lies in [-kDepth, kSlack): 2^11
// values, given by the low bits of t + kShift.
inline constexpr float kDepth = 112;
inline constexpr float kSixteenths = 0x1.8p19f;  // floats from here on are spaced 1/16 apart
inline constexpr float kShift = kSixteenths + kDepth;
static_assert(kDepth + kSlack == 128);

// 2^(k / 16 - kDepth) * factor, so that the number to add to a weight's exponent is never negative.
struct alignas(64) Exp2Table {
  float of[16];
};
constexpr Exp2Table MakeExp2Table(double factor) {
  Exp2Table table = {};
  double power = 0x1p-112 * factor;
  for (float& entry : table.of) {
    entry = static_cast<float>(power);
    power *= 1.0442737824274138403;  // 2^(1 / 16)
  }
  return table;
}
// The error of the line 1 + ln(2) f ranges from 0 to -2.35e-4; adding half of that centres it.
inline constexpr Exp2Table kPowers = MakeExp2Table(1 + 1.17e-4);
inline constexpr Exp2Table kSlopes = MakeExp2Table((1 + 1.17e-4) * 0.69314718055994530942);

ANNULUS_ISA_INLINE __m512 InSixteenths(__m512 t) {
  return _mm512_add_ps(t, _mm512_set1_ps(kShift));
}

// The weight of each t, all of which are in the range with weights other than 0.
ANNULUS_ISA_INLINE __m512 Exp2InRange(__m512 t) {
  const __m512i sixteenths = _mm512_castps_si512(InSixteenths(t));
  const __m512 f = _mm512_reduce_ps(t, 4 << 4 | _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // Both permutations use the low four bits of an index.
  const __m512 power = _mm512_permutexvar_ps(sixteenths, _mm512_load_ps(kPowers.of));
  const __m512 slope = _mm512_permutexvar_ps(sixteenths, _mm512_load_ps(kSlopes.of));
  const __m512i mantissa = _mm512_castps_si512(_mm512_fmadd_ps(slope, f, power));
  const __m512i whole = _mm512_and_si512(sixteenths, _mm512_set1_epi32(~15));
  return _mm512_castsi512_ps(_mm512_add_epi32(mantissa, _mm512_slli_epi32(whole, 19)));
}

// Like Exp2InRange, but gives 0 for t below the range. No t may exceed kSlack. NaN stays NaN (its
// low 16 bits, if it came from bf16, are 0).
ANNULUS_ISA_INLINE __m512 Exp2Weight(__m512 t) {
  const __mmask16 has_weight =
      _mm512_cmp_ps_mask(InSixteenths(t), _mm512_set1_ps(kSixteenths), _CMP_NLT_UQ);
  return _mm512_maskz_mov_ps(has_weight, Exp2InRange(t));
}

// Finds out whether many t are all in the range with weights other than 0.
class RangeCheck {
 public:
  ANNULUS_ISA_INLINE void Add(__m512 t) {
    bits_ = _mm512_or_si512(bits_, _mm512_castps_si512(InSixteenths(t)));
  }
  ANNULUS_ISA_INLINE bool AllInRange() const {
    const __m512i above = _mm512_and_si512(bits_, _mm512_set1_epi32(~0x7ff));
    return _mm512_cmpneq_epi32_mask(above, _mm512_castps_si512(_mm512_set1_ps(kSixteenths))) == 0;
  }

 private:
  __m512i bits_ = _mm512_setzero_si512();
};

// Lanes that exceed kSlack.
ANNULUS_ISA_INLINE __mmask16 PassSlack(__m512 t) {
  return _mm512_cmp_ps_mask(InSixteenths(t), _mm512_set1_ps(kShift + kSlack), _CMP_GE_OQ);
}

// A chunk of up to 64 keys of one head, in the form that tiles use.
struct PairedChunk {
  const uint32_t* k;  // [panels][k_pairs][16]
  const uint32_t* v;  // [slots / 2][v_stride]
  FetchAhead* ahead;  // this and the next two as in AttentionKeys
  const NarrowKeys* narrow;
  void (*widen_values)(const NarrowKeys&);
  int asked = 0;          // lines to prefetch per step of a low tile's product
  int asked_of_tile = 0;  // lines to prefetch per full tile
  int panels;             // of the page
  int64_t first;          // position of slot 0
  int begin;              // slots that may be attended
  int end;
  bool scaled;  // weights are multiplied by the scales of the values, which are int8 codes
  // score * factor, as an exponent of 2 (with a soft cap: of e).
  alignas(64) float factors[kKeyChunk];
  alignas(64) float value_scales[kKeyChunk];  // used if scaled
};

// Adds a row's rounded weights to its sums.
ANNULUS_ISA_INLINE void AddWeights(__m512i low, __m512i high, float* sums) {
  const __m512i ones = _mm512_set1_epi32(0x3f803f80);
  _mm512_storeu_ps(sums, Dot(Dot(_mm512_loadu_ps(sums), low, ones), high, ones));
}

// Rounds a row's weights of the slots in `visible`, adds them to the row's sums, and stores the
// weights that multiply the values. All other weights are 0, but their scales may be anything.
ANNULUS_ISA_INLINE void KeepWeights(const PairedChunk& chunk, const __m512 (&p)[kTilePanels],
                                    uint64_t visible, uint32_t* pairs, float* sums) {
  __m512i low = RoundPairs(p[0], p[1]);
  __m512i high = RoundPairs(p[2], p[3]);
  AddWeights(low, high, sums);
  if (chunk.scaled) {
    __m512 scaled[kTilePanels];
#pragma GCC unroll 8
    for (int i = 0; i < kTilePanels; ++i) {
      const __mmask16 mask = static_cast<__mmask16>(visible >> (i * kPanel));
      const __m512 scales = _mm512_load_ps(chunk.value_scales + i * kPanel);
      scaled[i] = _mm512_maskz_mul_ps(mask, p[i], scales);
    }
    low = RoundPairs(scaled[0], scaled[1]);
    high = RoundPairs(scaled[2], scaled[3]);
  }
  _mm512_store_si512(pairs, low);
  _mm512_store_si512(pairs + kPanel, high);
}

// Raises a row's maximum to `maximum`, which must be greater than the present one.
inline void RaiseMaximum(const AttentionBlock& block, int row, float maximum) {
  const float old = block.maximum[row];
  block.maximum[row] = maximum;
  // 2^(old - maximum), built from its exponent bits; 0 if it is too small.
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

// Slots [begin, end) of a chunk; empty if begin >= end.
struct Slots {
  int begin;
  int end;
};

// Turns a row's dot products into weights of `slots` (at least one slot); all other weights are 0.
template <bool kCap>
inline void WeighPairedRow(const AttentionBlock& block, int row, const PairedChunk& chunk,
                           const float* scores, Slots slots, uint32_t* pairs) {
  const uint64_t visible = (~uint64_t{0} >> (kKeyChunk - (slots.end - slots.begin))) << slots.begin;
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
  if (PassSlack(excess) != 0) {
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
  KeepWeights(chunk, weights, visible, pairs, block.sums + int64_t{row} * kPanel);
}

// The same for a row that sees all 64 keys and has no maximum yet: its sums and o are 0 or NaN, so
// there is nothing to shrink.
template <bool kCap>
ANNULUS_ISA_INLINE void WeighFirstRow(const AttentionBlock& block, int row,
                                      const PairedChunk& chunk, const float* scores,
                                      uint32_t* pairs) {
  __m512 score[kTilePanels];
  __m512 factor[kTilePanels];
  __m512 largest = _mm512_set1_ps(-kInfinity);
#pragma GCC unroll 8
  for (int p = 0; p < kTilePanels; ++p) {
    const float* const factors = chunk.factors + p * kPanel;
    score[p] = Capped<kCap>(_mm512_load_ps(scores + p * kPanel), factors, block.soft_cap);
    factor[p] = kCap ? _mm512_set1_ps(1.44269504f) : _mm512_load_ps(factors);
    largest = _mm512_max_ps(_mm512_mul_ps(score[p], factor[p]), largest);
  }
  const float maximum = _mm512_reduce_max_ps(largest);
  if (maximum > kNoMaximum) block.maximum[row] = __builtin_ceilf(maximum);
  const __m512 offset = _mm512_set1_ps(-block.maximum[row]);
  __m512 weights[kTilePanels];
#pragma GCC unroll 8
  for (int p = 0; p < kTilePanels; ++p) {
    weights[p] = Exp2Weight(_mm512_fmadd_ps(score[p], factor[p], offset));
  }
  KeepWeights(chunk, weights, ~uint64_t{0}, pairs, block.sums + int64_t{row} * kPanel);
}

// Multiplies 16 bf16 scales, of which only the first `count` exist, by `factor`.
ANNULUS_ISA_INLINE __m512 WidenScales(const Bf16* scales, int count, float factor) {
  const __m256i bits = _mm256_maskz_loadu_epi16(FirstLanes(count), scales);
  const __m512 wide = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  return _mm512_mul_ps(wide, _mm512_set1_ps(factor));
}

inline void MakeChunk(const AttentionBlock& block, const AttentionKeys& keys, PairedChunk* chunk) {
  chunk->k = static_cast<const uint32_t*>(keys.k);
  chunk->v = static_cast<const uint32_t*>(keys.v);
  chunk->ahead = keys.ahead;
  chunk->narrow = keys.narrow;
  chunk->widen_values = keys.widen_values;
  chunk->panels = keys.slots / kPanel;
  chunk->first = keys.first_position;
  chunk->begin = keys.begin;
  chunk->end = keys.end;
  chunk->scaled = keys.k_scales != nullptr;
  const float factor = block.soft_cap > 0 ? block.scale : block.scale * 1.44269504f;
  for (int i = 0; i < kKeyChunk; i += kPanel) {
    __m512 factors = _mm512_set1_ps(factor);
    if (chunk->scaled) {
      factors = WidenScales(keys.k_scales + i, keys.end - i, factor);
      _mm512_store_ps(chunk->value_scales + i, WidenScales(keys.v_scales + i, keys.end - i, 1));
    }
    _mm512_store_ps(chunk->factors + i, factors);
  }
}

// What rows [row, row + rows) of the block see of a chunk. Positions must ascend.
struct Sight {
  bool none;
  bool whole;  // every row sees all 64 keys
};
ANNULUS_ISA_INLINE Sight FindSight(const AttentionBlock& block, int row, int rows,
                                   const PairedChunk& chunk) {
  const int64_t first = block.row_positions[row];
  const int64_t last = block.row_positions[row + rows - 1];
  const int64_t oldest = block.window > 0 ? chunk.first + block.window : INT64_MAX;
  Sight sight;
  sight.none = last < chunk.first + chunk.begin;
  sight.whole =
      chunk.end - chunk.begin == kKeyChunk && first >= chunk.first + kKeyChunk - 1 && last < oldest;
  return sight;
}

// The slots of a chunk that the row at `position` sees.
ANNULUS_ISA_INLINE Slots FindSlots(const AttentionBlock& block, int64_t position,
                                   const PairedChunk& chunk) {
  const int64_t oldest = block.window > 0 ? position - block.window + 1 : 0;
  Slots slots;
  slots.begin = static_cast<int>(Smaller(chunk.end, Larger(chunk.begin, oldest - chunk.first)));
  slots.end = static_cast<int>(Larger(slots.begin, Smaller(chunk.end, position + 1 - chunk.first)));
  return slots;
}

// Resets the running softmax and rounds the block's queries to bf16.
inline void BeginPairedSpan(const AttentionBlock& block) {
  BeginSpan<VecAvx512>(block);
  const int rows = block.position_count * block.group;
  for (int r = 0; r < rows; ++r) block.maximum[r] = kNoMaximum;
  if (block.queries_ready) return;
  int row = 0;
  for (int p = 0; p < block.position_count; ++p) {
    for (int g = 0; g < block.group; ++g, ++row) {
      block.row_positions[row] = block.positions[p];
      const float* const query = block.query + p * block.query_stride + int64_t{g} * block.k_dim;
      uint16_t* const to = reinterpret_cast<uint16_t*>(block.query_pairs + row * block.k_pairs);
      const int padded = 2 * block.k_pairs;
      for (int d = 0; d < padded; d += kPanel) {
        __builtin_prefetch(query + kPositionsAhead * block.query_stride + d);
        const __m512 wide = _mm512_maskz_loadu_ps(FirstLanes(block.k_dim - d), query + d);
        _mm256_mask_storeu_epi16(to + d, FirstLanes(padded - d), (__m256i)_mm512_cvtneps_pbh(wide));
      }
    }
  }
}

// log(x) of positive x, within 2 ulp. Infinity and NaN stay what they are.
ANNULUS_ISA_INLINE __m512 Log(__m512 x) {
  const __m512 one = _mm512_set1_ps(1);
  __m512 exponent = _mm512_getexp_ps(x);
  __m512 mantissa = _mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src);
  const __mmask16 high = _mm512_cmp_ps_mask(mantissa, _mm512_set1_ps(1.41421356f), _CMP_GT_OQ);
  exponent = _mm512_mask_add_ps(exponent, high, exponent, one);
  mantissa = _mm512_mask_mul_ps(mantissa, high, mantissa, _mm512_set1_ps(0.5f));
  const __m512 log = LogNear1<VecAvx512>(_mm512_sub_ps(mantissa, one));
  return _mm512_fmadd_ps(exponent, _mm512_set1_ps(0.693147181f), log);
}

// a / b, given inverse = 1 / b rounded. The remainder of the product corrects it, so the result is
// the rounded quotient (Markstein, Computation of elementary functions on the IBM RISC System/6000
// processor, 1990), unless the remainder is so small, |a| below about 2^-102, that it is flushed to
// 0. Takes a fifth of a division's time.
ANNULUS_ISA_INLINE __m512 Quotient(__m512 a, __m512 b, __m512 inverse) {
  const __m512 product = _mm512_mul_ps(a, inverse);
  const __m512 remainder = _mm512_fnmadd_ps(product, b, a);
  // Where the product is infinite, NaN or 0, it stays.
  constexpr int kZeroInfinityNan = 0x9f;
  const __mmask16 exact = _mm512_fpclass_ps_mask(remainder, kZeroInfinityNan);
  return _mm512_mask3_fmadd_ps(remainder, inverse, product, _knot_mask16(exact));
}

// The denominator is the sum of the rounded weights, and the quotient is rounded once, so that the
// value of a single key is copied exactly (see Quotient).
inline void FinishPairedSpan(const AttentionBlock& block) {
  const int rows = block.position_count * block.group;
  for (int first = 0; first < rows; first += kPanel) {
    const int count = static_cast<int>(Smaller(kPanel, rows - first));
    alignas(64) float sums[kPanel] = {};
    alignas(64) float inverses[kPanel];
    for (int r = 0; r < count; ++r) {
      sums[r] = _mm512_reduce_add_ps(_mm512_loadu_ps(block.sums + (first + r) * kPanel));
    }
    const __m512 sum = _mm512_load_ps(sums);
    const __mmask16 some = _mm512_cmp_ps_mask(sum, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    _mm512_store_ps(inverses, _mm512_maskz_div_ps(some, _mm512_set1_ps(1), sum));
    const __m512 maximum = _mm512_maskz_loadu_ps(FirstLanes(count), block.maximum + first);
    const __m512 lse = _mm512_fmadd_ps(maximum, _mm512_set1_ps(0.693147181f), Log(sum));
    _mm512_mask_storeu_ps(block.lse + first, FirstLanes(count),
                          _mm512_mask_mov_ps(_mm512_set1_ps(-kInfinity), some, lse));
    for (int r = 0; r < count; ++r) {
      float* const o = block.o + int64_t{first + r} * block.v_stride;
      const __m512 divisor = _mm512_set1_ps(sums[r]);
      const __m512 inverse = _mm512_set1_ps(inverses[r]);
      for (int c = 0; c < block.v_stride; c += kPanel) {
        _mm512_storeu_ps(o + c, Quotient(_mm512_loadu_ps(o + c), divisor, inverse));
      }
    }
  }
}

#undef ANNULUS_ISA_INLINE

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_PAIRED_SOFTMAX_H_
