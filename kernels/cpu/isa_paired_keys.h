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

template <class T>
ANNULUS_ISA_INLINE __m512i WidenToPairs(const T* p) {
  return RoundToPairs(VecAvx512::Load(p), VecAvx512::Load(p + kPanel));
}

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
