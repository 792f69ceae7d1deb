#ifndef ANNULUS_KERNELS_CPU_ISA_VEC_AVX512_H_
#define ANNULUS_KERNELS_CPU_ISA_VEC_AVX512_H_

#include <immintrin.h>

#include "kernels/cpu/simd/kernels.h"

// The vector of isa/avx512.cc: 16 floats, AVX512F/BW/DQ/VL. isa/vec_avx2.h describes the
// operations.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

#define ANNULUS_ISA_INLINE static inline __attribute__((always_inline))

struct VecAvx512 {
  static constexpr int kLanes = 16;
  static constexpr int kDoubles = 8;
  using Float = __m512;
  using Mask = __mmask16;
  using Double = __m512d;
  using DoubleMask = __mmask8;

  // Uses 6 x 4 or 8 x 2 accumulators of the 32 registers.
  static constexpr int kTallTileRows = 8;
  static constexpr int TilePanels(int rows) { return rows > kTileRows ? 2 : 4; }

  ANNULUS_ISA_INLINE Float Zero() { return _mm512_setzero_ps(); }
  ANNULUS_ISA_INLINE Float Set(float x) { return _mm512_set1_ps(x); }

  ANNULUS_ISA_INLINE Float Load(const float* p) { return _mm512_loadu_ps(p); }
  ANNULUS_ISA_INLINE Float Load(const Bf16* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  ANNULUS_ISA_INLINE Float Load(const F16* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  ANNULUS_ISA_INLINE Float Load(const E4M3* p) {
    const __m256i bits = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7f));
    const __m256i sign = _mm256_slli_epi16(_mm256_sub_epi16(bits, magnitude), 8);
    const __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7f));
    const __m256i half =
        _mm256_mask_mov_epi16(_mm256_slli_epi16(magnitude, 7), nan, _mm256_set1_epi16(0x7e00));
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(half, sign)), _mm512_set1_ps(256));
  }
  ANNULUS_ISA_INLINE Float Load(const E5M2* p) {
    const __m256i bits = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm512_cvtph_ps(_mm256_slli_epi16(bits, 8));
  }
  ANNULUS_ISA_INLINE Float Load(const int8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  }
  ANNULUS_ISA_INLINE Float LoadPartial(const float* p, int64_t count) {
    return _mm512_maskz_loadu_ps(First(count), p);
  }
  ANNULUS_ISA_INLINE void Store(float* p, Float x) { _mm512_storeu_ps(p, x); }
  ANNULUS_ISA_INLINE void StorePartial(float* p, Float x, int64_t count) {
    _mm512_mask_storeu_ps(p, First(count), x);
  }
  ANNULUS_ISA_INLINE void Store(Bf16* p, Float x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const Mask nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i high = _mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(high));
  }
  ANNULUS_ISA_INLINE void Store(F16* p, Float x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  ANNULUS_ISA_INLINE Float Add(Float a, Float b) { return _mm512_add_ps(a, b); }
  ANNULUS_ISA_INLINE Float Sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
  ANNULUS_ISA_INLINE Float Mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  ANNULUS_ISA_INLINE Float Div(Float a, Float b) { return _mm512_div_ps(a, b); }
  ANNULUS_ISA_INLINE Float MulAdd(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  ANNULUS_ISA_INLINE Float MulSub(Float a, Float b, Float c) { return _mm512_fmsub_ps(a, b, c); }
  ANNULUS_ISA_INLINE Float Max(Float a, Float b) { return _mm512_max_ps(a, b); }
  ANNULUS_ISA_INLINE Float Min(Float a, Float b) { return _mm512_min_ps(a, b); }
  ANNULUS_ISA_INLINE Float Round(Float x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  ANNULUS_ISA_INLINE Float TimesPowerOfTwo(Float x, Float n) {
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_castps_si512(x), _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23)));
  }
  ANNULUS_ISA_INLINE float Sum(Float x) { return _mm512_reduce_add_ps(x); }
  ANNULUS_ISA_INLINE float Largest(Float x) { return _mm512_reduce_max_ps(x); }

  ANNULUS_ISA_INLINE Mask Lanes(int begin, int end) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(begin)) &
           _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32(end));
  }
  ANNULUS_ISA_INLINE Mask Less(Float a, Float b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  ANNULUS_ISA_INLINE Float Select(Mask mask, Float yes, Float no) {
    return _mm512_mask_mov_ps(no, mask, yes);
  }

  ANNULUS_ISA_INLINE Double DoubleSet(double x) { return _mm512_set1_pd(x); }
  ANNULUS_ISA_INLINE Double DoubleLoad(const float* p) {
    return _mm512_cvtps_pd(_mm256_loadu_ps(p));
  }
  ANNULUS_ISA_INLINE void DoubleStore(float* p, Double x) {
    _mm256_storeu_ps(p, _mm512_cvtpd_ps(x));
  }
  ANNULUS_ISA_INLINE Double DoubleMul(Double a, Double b) { return _mm512_mul_pd(a, b); }
  ANNULUS_ISA_INLINE Double DoubleMulAdd(Double a, Double b, Double c) {
    return _mm512_fmadd_pd(a, b, c);
  }
  ANNULUS_ISA_INLINE Double DoubleNegMulAdd(Double a, Double b, Double c) {
    return _mm512_fnmadd_pd(a, b, c);
  }
  ANNULUS_ISA_INLINE Double DoubleRound(Double x) {
    return _mm512_roundscale_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  ANNULUS_ISA_INLINE Double DoubleFloor(Double x) {
    return _mm512_roundscale_pd(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  }
  ANNULUS_ISA_INLINE DoubleMask DoubleEqual(Double a, Double b) {
    return _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ);
  }
  ANNULUS_ISA_INLINE DoubleMask Or(DoubleMask a, DoubleMask b) { return a | b; }
  ANNULUS_ISA_INLINE Double DoubleSelect(DoubleMask mask, Double yes, Double no) {
    return _mm512_mask_mov_pd(no, mask, yes);
  }

 private:
  ANNULUS_ISA_INLINE Mask First(int64_t count) {
    return static_cast<Mask>((uint32_t{1} << count) - 1);
  }
};

#undef ANNULUS_ISA_INLINE

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_VEC_AVX512_H_
