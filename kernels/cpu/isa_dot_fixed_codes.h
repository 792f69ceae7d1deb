#ifndef ANNULUS_KERNELS_CPU_ISA_DOT_FIXED_CODES_H_
#define ANNULUS_KERNELS_CPU_ISA_DOT_FIXED_CODES_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa_dot_fixed.h"

// The kinds of codes that fixed-point inputs are multiplied with: see isa_dot_fixed.h.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd_kernels.h

// 4-bit weights. Codes + 8 are the unsigned operand and both bytes of an input are signed, so the
// debt is 8 times the sum of the integers. 8 inputs are stored in the order 0 4 1 5 2 6 3 7.
struct FixedInt4 {
  static constexpr int kInputs = 8;
  static int64_t Group(const DotTask& task) { return task.group; }

  static int32_t Split(__m512i words, char* high, char* low) {
    const __m512i high_bytes = _mm512_and_si512(_mm512_add_epi16(words, _mm512_set1_epi16(128)),
                                                _mm512_set1_epi16(static_cast<int16_t>(0xff00)));
    const __m512i split =
        _mm512_or_si512(high_bytes, _mm512_and_si512(words, _mm512_set1_epi16(0x00ff)));
    const __m512i order =
        _mm512_broadcast_i32x4(_mm_set_epi8(14, 6, 12, 4, 10, 2, 8, 0, 15, 7, 13, 5, 11, 3, 9, 1));
    const __m512i apart = _mm512_permutexvar_epi64(_mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0),
                                                   _mm512_shuffle_epi8(split, order));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(high), _mm512_castsi512_si256(apart));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(low), _mm512_extracti64x4_epi64(apart, 1));
    return 8 * _mm512_reduce_add_epi32(_mm512_madd_epi16(words, _mm512_set1_epi16(1)));
  }

  struct Line {
    ANNULUS_DOT_INLINE explicit Line(__m512i codes)
        : first(_mm512_and_si512(codes, _mm512_set1_epi8(0x0f))),
          second(_mm512_and_si512(_mm512_srli_epi32(codes, 4), _mm512_set1_epi8(0x0f))) {}
    ANNULUS_DOT_INLINE void Add(const char* bytes, int64_t group, __m512i& high,
                                __m512i& low) const {
      AddFourBytes(high, first, bytes);
      AddFourBytes(low, first, bytes + group);
      AddFourBytes(high, second, bytes + 4);
      AddFourBytes(low, second, bytes + group + 4);
    }
    __m512i first;
    __m512i second;
  };

  static constexpr int64_t kScaleBytes = kPanel * 2;
  static constexpr bool kMinimum = false;
  static __m512 Factor(const char* scales, __m512 scale) {
    return _mm512_mul_ps(WidenScales(scales), scale);
  }
  static __m512 Result(const DotTask&, int, __m512 total) { return total; }
};

// FixedInt4 with f16 scales.
struct FixedQ4_0 : FixedInt4 {
  static __m512 Factor(const char* scales, __m512 scale) {
    return _mm512_mul_ps(WidenHalves(scales), scale);
  }
};

// The same codes, but unsigned, with a minimum stored after each scale.
struct FixedQ4_1 : FixedQ4_0 {
  static constexpr int64_t kScaleBytes = 2 * kPanel * 2;
  static constexpr bool kMinimum = true;

  // FixedInt4::Split returns the debt; this returns the sum of the integers instead.
  static int32_t Split(__m512i words, char* high, char* low) {
    return FixedInt4::Split(words, high, low) / -8;
  }
  static __m512 Minimum(const char* scales) { return WidenHalves(scales + kPanel * 2); }
};

// 8-bit weights with one scale per column. Codes + 128 are the unsigned operand, so the debt is 128
// times the sum of the integers. 4 inputs are stored in the order 0 2 1 3.
struct FixedInt8 {
  static constexpr int kInputs = 4;
  static int64_t Group(const DotTask&) { return kFixedGroup; }

  static int32_t Split(__m512i words, char* high, char* low) {
    const __m512i high_words =
        _mm512_srai_epi16(_mm512_add_epi16(words, _mm512_set1_epi16(128)), 8);
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_set_epi8(15, 13, 14, 12, 11, 9, 10, 8, 7, 5, 6, 4, 3, 1, 2, 0));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(high),
                        _mm256_shuffle_epi8(_mm512_cvtepi16_epi8(high_words), order));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(low),
                        _mm256_shuffle_epi8(_mm512_cvtepi16_epi8(words), order));
    return 128 * _mm512_reduce_add_epi32(_mm512_madd_epi16(words, _mm512_set1_epi16(1)));
  }

  struct Line {
    ANNULUS_DOT_INLINE explicit Line(__m512i signed_codes)
        : codes(_mm512_xor_si512(signed_codes, _mm512_set1_epi8(static_cast<char>(0x80)))) {}
    ANNULUS_DOT_INLINE void Add(const char* bytes, int64_t group, __m512i& high,
                                __m512i& low) const {
      AddFourBytes(high, codes, bytes);
      AddFourBytes(low, codes, bytes + group);
    }
    __m512i codes;
  };

  static constexpr int64_t kScaleBytes = 0;
  static constexpr bool kMinimum = false;
  static __m512 Factor(const char*, __m512 scale) { return scale; }
  static __m512 Result(const DotTask& task, int panel, __m512 total) {
    return _mm512_mul_ps(total, RowScales(task, panel));
  }
};

// FixedInt8 with f16 scales per group.
struct FixedQ8_0 : FixedInt8 {
  static int64_t Group(const DotTask& task) { return task.group; }
  static constexpr int64_t kScaleBytes = kPanel * 2;
  static __m512 Factor(const char* scales, __m512 scale) {
    return _mm512_mul_ps(WidenHalves(scales), scale);
  }
  static __m512 Result(const DotTask&, int, __m512 total) { return total; }
};

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_DOT_FIXED_CODES_H_
