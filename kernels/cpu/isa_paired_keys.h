#ifndef ANNULUS_KERNELS_CPU_ISA_PAIRED_KEYS_H_
#define ANNULUS_KERNELS_CPU_ISA_PAIRED_KEYS_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa_narrow_keys.h"
#include "kernels/cpu/isa_vec_avx512.h"
#include "kernels/cpu/simd_kernels.h"

// Paired pages of the 8-bit types as bf16, 32 elements at a time. Exact for fp8 and for the keys of
// int8, whose scales are applied to the scores; the values of int8 are multiplied by their scale
// and rounded to bf16.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd_kernels.h

#define ANNULUS_ISA_INLINE inline __attribute__((always_inline))

ANNULUS_ISA_INLINE __m512i RoundToPairs(__m512 low, __m512 high) {
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

ANNULUS_ISA_INLINE __m512i WidenToPairs(const int8_t* p) {
  return RoundToPairs(VecAvx512::Load(p), VecAvx512::Load(p + kPanel));
}

// fp8 looks its magnitude up: the bf16 of all 128 lie in 4 vectors.
struct alignas(64) MagnitudeTable {
  uint16_t bits[128];
};
// The bf16 of a magnitude of `mantissa_bits` whose exponent has the given bias; `special`: the
// first pattern that is none (infinity or NaN).
constexpr uint16_t MagnitudeBits(int magnitude, int mantissa_bits, int bias, int special) {
  if (magnitude >= special) {
    const bool infinity = magnitude == special && mantissa_bits == 2;
    return infinity ? 0x7f80 : 0x7fc0;
  }
  int mantissa = magnitude & ((1 << mantissa_bits) - 1);
  int exponent = magnitude >> mantissa_bits;
  if (exponent == 0) {
    if (mantissa == 0) return 0;
    for (exponent = 1; mantissa < 1 << mantissa_bits; --exponent) mantissa <<= 1;
    mantissa -= 1 << mantissa_bits;
  }
  return static_cast<uint16_t>((exponent - bias + 127) << 7 | mantissa << (7 - mantissa_bits));
}
constexpr MagnitudeTable MakeMagnitudes(int mantissa_bits, int bias, int special) {
  MagnitudeTable table = {};
  for (int m = 0; m < 128; ++m) table.bits[m] = MagnitudeBits(m, mantissa_bits, bias, special);
  return table;
}
inline constexpr MagnitudeTable kE4M3Magnitudes = MakeMagnitudes(3, 7, 0x7f);
inline constexpr MagnitudeTable kE5M2Magnitudes = MakeMagnitudes(2, 15, 0x7c);

ANNULUS_ISA_INLINE __m512i LookUp(const void* p, const MagnitudeTable& table) {
  const __m512i bits = _mm512_cvtepu8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  const auto part = [&](int i) { return _mm512_load_si512(table.bits + 32 * i); };
  // The index is the low 6 bits.
  const __m512i low = _mm512_permutex2var_epi16(part(0), bits, part(1));
  const __m512i high = _mm512_permutex2var_epi16(part(2), bits, part(3));
  const __mmask32 upper = _mm512_test_epi16_mask(bits, _mm512_set1_epi16(0x40));
  const __m512i sign = _mm512_slli_epi16(_mm512_and_si512(bits, _mm512_set1_epi16(0x80)), 8);
  return _mm512_or_si512(_mm512_mask_mov_epi16(low, upper, high), sign);
}
ANNULUS_ISA_INLINE __m512i WidenToPairs(const E4M3* p) { return LookUp(p, kE4M3Magnitudes); }
ANNULUS_ISA_INLINE __m512i WidenToPairs(const E5M2* p) { return LookUp(p, kE5M2Magnitudes); }

template <class T>
void WidenPairs(const NarrowKeys& keys) {
  const int slots = keys.end - keys.begin;
  const int64_t k_count = int64_t{slots} * keys.k_dim;
  const T* const k = static_cast<const T*>(keys.k) + int64_t{keys.begin} * keys.k_dim;
  uint16_t* const wide_k = static_cast<uint16_t*>(keys.wide_k);
  for (int64_t i = 0; i < k_count; i += 2 * kPanel) {
    _mm_prefetch(reinterpret_cast<const char*>(reinterpret_cast<intptr_t>(k + i) + keys.next),
                 _MM_HINT_T0);
    _mm512_storeu_si512(wide_k + i, WidenToPairs(k + i));
  }
  const T* v = static_cast<const T*>(keys.v) + int64_t{keys.begin} * keys.v_stride;
  uint16_t* wide_v = static_cast<uint16_t*>(keys.wide_v);
  for (int slot = keys.begin; slot < keys.end; slot += 2) {
    if constexpr (__is_same(T, int8_t)) {
      const __m512 scales =
          _mm512_mask_mov_ps(_mm512_set1_ps(WidenScale(keys.v_scales[slot])), 0xaaaa,
                             _mm512_set1_ps(WidenScale(keys.v_scales[slot + 1])));
      for (int c = 0; c < 2 * keys.v_stride; c += 2 * kPanel) {
        const __m512 low = _mm512_mul_ps(VecAvx512::Load(v + c), scales);
        const __m512 high = _mm512_mul_ps(VecAvx512::Load(v + c + kPanel), scales);
        _mm512_storeu_si512(wide_v + c, RoundToPairs(low, high));
      }
    } else {
      for (int c = 0; c < 2 * keys.v_stride; c += 2 * kPanel) {
        _mm512_storeu_si512(wide_v + c, WidenToPairs(v + c));
      }
    }
    for (int c = 0; c < 2 * keys.v_stride; c += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(reinterpret_cast<intptr_t>(v + c) + keys.next),
                   _MM_HINT_T0);
    }
    v += 2 * keys.v_stride;
    wide_v += 2 * keys.v_stride;
  }
}

#undef ANNULUS_ISA_INLINE

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_PAIRED_KEYS_H_
