#ifndef ANNULUS_KERNELS_CPU_ISA_DOT_FIXED_INT8_H_
#define ANNULUS_KERNELS_CPU_ISA_DOT_FIXED_INT8_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa_dot_fixed.h"

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd_kernels.h

// Inputs in fixed point, in groups of kFixedGroup, by weights of 8 bits with one scale per column.
// Low bytes are unsigned and meet the codes as they are; high bytes are signed and meet codes +
// 128; so 128 times the sum of the high bytes is owed, 256 times. 4 inputs lie in the order 0 2
// 1 3.
struct FixedInt8 {
  static inline int32_t Split(__m512i words, char* high, char* low);
  template <int kRows, int kPanels>
  static void Tile(const DotTask& task, int row, int panel);
};

inline int32_t FixedInt8::Split(__m512i words, char* high, char* low) {
  const __m512i high_words = _mm512_srai_epi16(words, 8);
  const __m256i order = _mm256_broadcastsi128_si256(
      _mm_set_epi8(15, 13, 14, 12, 11, 9, 10, 8, 7, 5, 6, 4, 3, 1, 2, 0));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(high),
                      _mm256_shuffle_epi8(_mm512_cvtepi16_epi8(high_words), order));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(low),
                      _mm256_shuffle_epi8(_mm512_cvtepi16_epi8(words), order));
  return 256 * 128 * _mm512_reduce_add_epi32(_mm512_madd_epi16(high_words, _mm512_set1_epi16(1)));
}

template <int kRows, int kPanels>
void FixedInt8::Tile(const DotTask& task, int row, int panel) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
  const char* const input = static_cast<const char*>(task.input) + row * task.input_stride;
  const char* weights = DotPanel(task, panel);
  const int64_t groups = task.depth / kFixedGroup;
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
    const char* bytes = input + g * kFixedGroup * 2;
    for (int64_t i = 0; i < kFixedGroup; i += 4, bytes += 4, weights += 64) {
      const int64_t ahead = DotAhead((g * kFixedGroup + i) * kPanel, task.panel_bytes, kPanels);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const __m512i codes = _mm512_loadu_si512(weights + p * task.panel_bytes);
        if constexpr (kRows < 4) {  // weights that come from memory
          _mm_prefetch(weights + p * task.panel_bytes + ahead, _MM_HINT_T0);
        }
        const __m512i flipped = _mm512_xor_si512(codes, flip);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const char* const of_row = bytes + r * task.input_stride;
          high[r][p] = _mm512_dpbusd_epi32(high[r][p], flipped, FourBytes(of_row));
          low[r][p] = _mm512_dpbusd_epi32(low[r][p], FourBytes(of_row + kFixedGroup), codes);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const FixedGroup of_row = FixedGroupOf(input + r * task.input_stride, task.depth, groups, g);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const __m512i sum = _mm512_sub_epi32(
            _mm512_add_epi32(_mm512_slli_epi32(high[r][p], 8), low[r][p]), of_row.owed);
        total[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), of_row.scale, total[r][p]);
      }
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
    const __m512 scale = RowScales(task, panel + p);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      StoreDotPanel(task, row + r, panel + p, _mm512_mul_ps(total[r][p], scale));
    }
  }
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_DOT_FIXED_INT8_H_
