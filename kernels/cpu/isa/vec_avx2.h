#ifndef ANNULUS_KERNELS_CPU_ISA_VEC_AVX2_H_
#define ANNULUS_KERNELS_CPU_ISA_VEC_AVX2_H_

#include <immintrin.h>

#include "kernels/cpu/simd/kernels.h"

// The vector of isa/avx2.cc: 8 floats, AVX2, FMA and F16C.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

#define ANNULUS_ISA_INLINE static inline __attribute__((always_inline))

struct VecAvx2 {
  static constexpr int kLanes = 8;    // lanes of a Float
  static constexpr int kDoubles = 4;  // lanes of a Double
  using Float = __m256;
  using Mask = __m256;
  using Double = __m256d;
  using DoubleMask = __m256d;

  static constexpr int kTallTileRows = kTileRows;
  // Panels (two vectors each) of a register tile of `rows` rows: at most 12 accumulators of the 16
  // registers, and enough independent chains to hide the latency of one.
  static constexpr int TilePanels(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }

  ANNULUS_ISA_INLINE Float Zero() { return _mm256_setzero_ps(); }
  ANNULUS_ISA_INLINE Float Set(float x) { return _mm256_set1_ps(x); }

  // Loads widen and stores narrow, kLanes elements each, as kernels/base/dtype.h specifies.
  ANNULUS_ISA_INLINE Float Load(const float* p) { return _mm256_loadu_ps(p); }
  ANNULUS_ISA_INLINE Float Load(const Bf16* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  ANNULUS_ISA_INLINE Float Load(const F16* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  // An E4M3 read as F16 bits is too small by 2^8, because F16's exponent bias is 8 larger. An E5M2
  // is the upper half of an F16.
  ANNULUS_ISA_INLINE Float Load(const E4M3* p) {
    const __m128i bits = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m128i magnitude = _mm_and_si128(bits, _mm_set1_epi16(0x7f));
    const __m128i sign = _mm_slli_epi16(_mm_sub_epi16(bits, magnitude), 8);
    const __m128i nan = _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f));
    const __m128i half = _mm_blendv_epi8(_mm_slli_epi16(magnitude, 7), _mm_set1_epi16(0x7e00), nan);
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(half, sign)), _mm256_set1_ps(256));
  }
  ANNULUS_ISA_INLINE Float Load(const E5M2* p) {
    const __m128i bits = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    return _mm256_cvtph_ps(_mm_slli_epi16(bits, 8));
  }
  ANNULUS_ISA_INLINE Float Load(const int8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }
  // Loads the first `count` < kLanes elements; other lanes are 0 and their memory is not touched.
  ANNULUS_ISA_INLINE Float LoadPartial(const float* p, int64_t count) {
    return _mm256_maskload_ps(p, First(count));
  }
  ANNULUS_ISA_INLINE void Store(float* p, Float x) { _mm256_storeu_ps(p, x); }
  ANNULUS_ISA_INLINE void StorePartial(float* p, Float x, int64_t count) {
    _mm256_maskstore_ps(p, First(count), x);
  }
  ANNULUS_ISA_INLINE void Store(Bf16* p, Float x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    const __m128i packed =
        _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
  }
  ANNULUS_ISA_INLINE void Store(F16* p, Float x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  ANNULUS_ISA_INLINE Float Add(Float a, Float b) { return _mm256_add_ps(a, b); }
  ANNULUS_ISA_INLINE Float Sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
  ANNULUS_ISA_INLINE Float Mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  ANNULUS_ISA_INLINE Float Div(Float a, Float b) { return _mm256_div_ps(a, b); }
  // a * b + c and a * b - c, rounded once.
  ANNULUS_ISA_INLINE Float MulAdd(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  ANNULUS_ISA_INLINE Float MulSub(Float a, Float b, Float c) { return _mm256_fmsub_ps(a, b, c); }
  // Returns b if either operand is NaN.
  ANNULUS_ISA_INLINE Float Max(Float a, Float b) { return _mm256_max_ps(a, b); }
  ANNULUS_ISA_INLINE Float Min(Float a, Float b) { return _mm256_min_ps(a, b); }
  ANNULUS_ISA_INLINE Float Round(Float x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // x * 2^n for a whole n, by adding n to the exponent; x and the result must be normal numbers.
  ANNULUS_ISA_INLINE Float TimesPowerOfTwo(Float x, Float n) {
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
  }
  ANNULUS_ISA_INLINE float Sum(Float x) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
  }
  ANNULUS_ISA_INLINE float Largest(Float x) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
  }

  // Lanes with begin <= lane < end; the bounds may lie outside the vector.
  ANNULUS_ISA_INLINE Mask Lanes(int begin, int end) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane);
    const __m256i inside = _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane);
    return _mm256_castsi256_ps(_mm256_andnot_si256(below, inside));
  }
  ANNULUS_ISA_INLINE Mask Less(Float a, Float b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  ANNULUS_ISA_INLINE Float Select(Mask mask, Float yes, Float no) {
    return _mm256_blendv_ps(no, yes, mask);
  }

  // Float64 operations, kDoubles at a time, on float32 arrays.
  ANNULUS_ISA_INLINE Double DoubleSet(double x) { return _mm256_set1_pd(x); }
  ANNULUS_ISA_INLINE Double DoubleLoad(const float* p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
  ANNULUS_ISA_INLINE void DoubleStore(float* p, Double x) { _mm_storeu_ps(p, _mm256_cvtpd_ps(x)); }
  ANNULUS_ISA_INLINE Double DoubleMul(Double a, Double b) { return _mm256_mul_pd(a, b); }
  ANNULUS_ISA_INLINE Double DoubleMulAdd(Double a, Double b, Double c) {
    return _mm256_fmadd_pd(a, b, c);
  }
  ANNULUS_ISA_INLINE Double DoubleNegMulAdd(Double a, Double b, Double c) {  // c - a * b
    return _mm256_fnmadd_pd(a, b, c);
  }
  ANNULUS_ISA_INLINE Double DoubleRound(Double x) {
    return _mm256_round_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  ANNULUS_ISA_INLINE Double DoubleFloor(Double x) {
    return _mm256_round_pd(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  }
  ANNULUS_ISA_INLINE DoubleMask DoubleEqual(Double a, Double b) {
    return _mm256_cmp_pd(a, b, _CMP_EQ_OQ);
  }
  ANNULUS_ISA_INLINE DoubleMask Or(DoubleMask a, DoubleMask b) { return _mm256_or_pd(a, b); }
  ANNULUS_ISA_INLINE Double DoubleSelect(DoubleMask mask, Double yes, Double no) {
    return _mm256_blendv_pd(no, yes, mask);
  }

 private:
  ANNULUS_ISA_INLINE __m256i First(int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

#undef ANNULUS_ISA_INLINE

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_VEC_AVX2_H_
