#ifndef ANNULUS_KERNELS_CPU_ISA_DOT_INT4_H_
#define ANNULUS_KERNELS_CPU_ISA_DOT_INT4_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa_dot_fixed.h"

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd_kernels.h

// Inputs in fixed point by weights of 4 bits. Codes + 8 are the unsigned operand, and both bytes of
// an input are signed; so 8 times the sum of the integers is owed. 8 inputs lie in the order
// 0 4 1 5 2 6 3 7.
struct FixedInt4 {
  static inline int32_t Split(__m512i words, char* high, char* low);
  template <int kRows, int kPanels>
  static void Tile(const DotTask& task, int row, int panel);
};

inline int32_t FixedInt4::Split(__m512i words, char* high, char* low) {
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

template <int kRows, int kPanels>
void FixedInt4::Tile(const DotTask& task, int row, int panel) {
  const __m512i low_half = _mm512_set1_epi8(0x0f);
  const char* const input = static_cast<const char*>(task.input) + row * task.input_stride;
  const char* weights = DotPanel(task, panel);
  const int64_t groups = task.depth / task.group;
  __m512 total[kRows][kPanels];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) total[r][p] = _mm512_setzero_ps();
  }
  for (int64_t g = 0; g < groups; ++g) {
    __m512i high[kRows][kPanels];
    __m512i low[kRows][kPanels];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) high[r][p] = low[r][p] = _mm512_setzero_si512();
    }
    const char* bytes = input + g * task.group * 2;
    for (int64_t i = 0; i < task.group; i += 8, bytes += 8, weights += 64) {
      const int64_t ahead = DotAhead((g * task.group + i) * 8, task.panel_bytes, kPanels);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const __m512i codes = _mm512_loadu_si512(weights + p * task.panel_bytes);
        if constexpr (kRows < 4) {  // weights that come from memory
          _mm_prefetch(weights + p * task.panel_bytes + ahead, _MM_HINT_T0);
        }
        const __m512i first = _mm512_and_si512(codes, low_half);
        const __m512i second = _mm512_and_si512(_mm512_srli_epi32(codes, 4), low_half);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const char* const of_row = bytes + r * task.input_stride;
          high[r][p] = _mm512_dpbusd_epi32(high[r][p], first, FourBytes(of_row));
          low[r][p] = _mm512_dpbusd_epi32(low[r][p], first, FourBytes(of_row + task.group));
          high[r][p] = _mm512_dpbusd_epi32(high[r][p], second, FourBytes(of_row + 4));
          low[r][p] = _mm512_dpbusd_epi32(low[r][p], second, FourBytes(of_row + task.group + 4));
        }
      }
    }
    __m512 scale[kPanels];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) scale[p] = GroupScales(task, panel + p, g);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const FixedGroup of_row = FixedGroupOf(input + r * task.input_stride, task.depth, groups, g);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const __m512i sum = _mm512_sub_epi32(
            _mm512_add_epi32(_mm512_slli_epi32(high[r][p], 8), low[r][p]), of_row.owed);
        total[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum),
                                      _mm512_mul_ps(scale[p], of_row.scale), total[r][p]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) StoreDotPanel(task, row + r, panel + p, total[r][p]);
  }
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_DOT_INT4_H_
