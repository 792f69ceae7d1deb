#ifndef ANNULUS_KERNELS_CPU_ISA_DOT_INTEGER_WEIGHTS_H_
#define ANNULUS_KERNELS_CPU_ISA_DOT_INTEGER_WEIGHTS_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa/dot.h"

// Integer weights as the unsigned operand of VPDPBUSD, which multiplies them by signed bytes of
// inputs: those of isa/dot_fixed.h (two bytes an input) and isa/dot_int8_groups.h (one byte).
//
// Signed codes get an offset to become unsigned. A sum of products is then too large by offset *
// (sum of the row's inputs). A packed row stores the negative of that, its debt, and sums of
// products start from the debt instead of from 0.
//
// `Weights` in the templates of those headers is one of the kinds below:
//   kInputs: inputs in 64 bytes of a panel
//   Group(task): inputs per scale
//   kOffset: added to codes to make them unsigned
//   ByteOrder(): how a shuffle orders 16 neighbouring inputs to match the codes
//   Split(words, high, low): stores the bytes of 32 integers and returns their sum
//   Line(bytes).codes: the unsigned codes of 64 bytes of a panel, 4 inputs in each vector
//   kScaleBytes: bytes of a panel's scales for one group
//   Scale(scales): a panel's scales of one group; kI8 has none
//   kMinimum: whether a group also adds its minimum times the sum of its inputs. Such codes are
//     unsigned, so the packed row holds that sum of inputs in place of the debt
//   Minimum(scales): the panel's minimums
//   Result(task, panel, total): the value to store

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

ANNULUS_DOT_INLINE __m512i FourBytes(const char* from) {
  int32_t bytes;
  __builtin_memcpy(&bytes, from, sizeof(bytes));
  return _mm512_set1_epi32(bytes);
}

// sum += codes * the same four bytes of memory in every lane. Written in assembly, as one
// instruction: otherwise the compiler loads the bytes once for all panels and spills sums out of
// registers.
ANNULUS_DOT_INLINE void AddFourBytes(__m512i& sum, __m512i codes, const char* bytes) {
  struct __attribute__((packed, may_alias)) Four {
    int32_t value;
  };
  asm("vpdpbusd %2%{1to16%}, %1, %0"
      : "+v"(sum)
      : "v"(codes), "m"(*reinterpret_cast<const Four*>(bytes)));
}

// Prefetches the scales kAhead bytes ahead, at a panel's end those of the next panels. Scales are
// stored apart from the codes, so prefetching codes does not fetch them. `left` is the number of
// bytes from `scales` to the end of the panel's scales; 0 if there are none.
template <int kPanels>
ANNULUS_DOT_INLINE void FetchScales(const char* scales, int64_t left, int64_t panel_bytes) {
  constexpr int64_t kAhead = 256;
  if (left == 0) return;
  const int64_t ahead = kAhead < left ? kAhead : kAhead - left + kPanels * panel_bytes;
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) FetchFar(scales + p * panel_bytes + ahead);
}

// A range of a task's groups of inputs. The sums of the groups before `begin` are in the task's
// workspace, [rows][panels of a tile][16].
struct GroupRange {
  int64_t begin;
  int64_t end;
};

inline int32_t SumOfWords(__m512i words) {
  return _mm512_reduce_add_epi32(_mm512_madd_epi16(words, _mm512_set1_epi16(1)));
}

// 4-bit weights. 8 inputs are stored in the order 0 4 1 5 2 6 3 7.
struct Int4Weights {
  static constexpr int kInputs = 8;
  static constexpr int kOffset = 8;
  static int64_t Group(const DotTask& task) { return task.group; }
  static __m128i ByteOrder() {
    return _mm_set_epi8(15, 11, 14, 10, 13, 9, 12, 8, 7, 3, 6, 2, 5, 1, 4, 0);
  }

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
    return SumOfWords(words);
  }

  struct Line {
    ANNULUS_DOT_INLINE explicit Line(__m512i bytes)
        : codes{_mm512_and_si512(bytes, _mm512_set1_epi8(0x0f)),
                _mm512_and_si512(_mm512_srli_epi32(bytes, 4), _mm512_set1_epi8(0x0f))} {}
    __m512i codes[2];
  };

  static constexpr int64_t kScaleBytes = kPanel * 2;
  static constexpr bool kMinimum = false;
  static __m512 Scale(const char* scales) { return WidenScales(scales); }
  static __m512 Result(const DotTask&, int, __m512 total) { return total; }
};

// Int4Weights with f16 scales.
struct Q4_0Weights : Int4Weights {
  static __m512 Scale(const char* scales) { return WidenHalves(scales); }
};

// The same codes, but unsigned, with a minimum stored after each scale.
struct Q4_1Weights : Q4_0Weights {
  static constexpr int kOffset = 0;
  static constexpr int64_t kScaleBytes = 2 * kPanel * 2;
  static constexpr bool kMinimum = true;
  static __m512 Minimum(const char* scales) { return WidenHalves(scales + kPanel * 2); }
};

// 8-bit weights with one scale per column. 4 inputs are stored in the order 0 2 1 3.
struct Int8Weights {
  static constexpr int kInputs = 4;
  static constexpr int kOffset = 128;
  static int64_t Group(const DotTask&) { return kFixedGroup; }
  static __m128i ByteOrder() {
    return _mm_set_epi8(15, 13, 14, 12, 11, 9, 10, 8, 7, 5, 6, 4, 3, 1, 2, 0);
  }

  static int32_t Split(__m512i words, char* high, char* low) {
    const __m512i high_words =
        _mm512_srai_epi16(_mm512_add_epi16(words, _mm512_set1_epi16(128)), 8);
    const __m256i order = _mm256_broadcastsi128_si256(ByteOrder());
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(high),
                        _mm256_shuffle_epi8(_mm512_cvtepi16_epi8(high_words), order));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(low),
                        _mm256_shuffle_epi8(_mm512_cvtepi16_epi8(words), order));
    return SumOfWords(words);
  }

  struct Line {
    ANNULUS_DOT_INLINE explicit Line(__m512i bytes)
        : codes{_mm512_xor_si512(bytes, _mm512_set1_epi8(static_cast<char>(0x80)))} {}
    __m512i codes[1];
  };

  static constexpr int64_t kScaleBytes = 0;
  static constexpr bool kMinimum = false;
  static __m512 Scale(const char*) { return _mm512_set1_ps(1); }
  static __m512 Result(const DotTask& task, int panel, __m512 total) {
    return _mm512_mul_ps(total, RowScales(task, panel));
  }
};

// Int8Weights with f16 scales per group.
struct Q8_0Weights : Int8Weights {
  static int64_t Group(const DotTask& task) { return task.group; }
  static constexpr int64_t kScaleBytes = kPanel * 2;
  static __m512 Scale(const char* scales) { return WidenHalves(scales); }
  static __m512 Result(const DotTask&, int, __m512 total) { return total; }
};

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_DOT_INTEGER_WEIGHTS_H_
