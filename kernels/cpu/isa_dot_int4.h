#ifndef ANNULUS_KERNELS_CPU_ISA_DOT_INT4_H_
#define ANNULUS_KERNELS_CPU_ISA_DOT_INT4_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa_dot_int8.h"

// Inputs in fixed point by weights of 4 bits. An input of a group is x = s * (256 * high + low)
// with s = largest |x| of the group / 32512 and two signed bytes, so VPDPBUSD multiplies codes + 8,
// which are unsigned, by 4 bytes at a time. A group's sum is an exact integer; the sums of the
// groups, times both scales, form one chain. So an output's bits depend on neither the number of
// rows nor the tile. A packed row has for each group [group] high bytes, then [group] low ones, 8
// inputs in the order 0 4 1 5 2 6 3 7 in which codes lie (weight_layout.h); then for each group its
// scale (float32) and 8 times the sum of its integers (int32).

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd_kernels.h

inline constexpr float kFixedLargest = 127 * 256;

// 32 inputs from `input`, of which `count` are there, times `factor`, to 32 bytes each of `high`
// and `low`; gives their sum.
inline int32_t PackFixed32(const float* input, int64_t count, __m512 factor, char* high,
                           char* low) {
  const auto integers = [&](int64_t from) {
    const __mmask16 lanes = FirstLanes(count > from ? count - from : 0);
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, input + from), factor));
  };
  const __m512i first = integers(0);
  const __m512i second = integers(16);
  const __m512i words = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(first)),
                                           _mm512_cvtepi32_epi16(second), 1);
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
  return _mm512_reduce_add_epi32(_mm512_add_epi32(first, second));
}

inline void PackFixedRow(const float* input, int64_t count, int64_t depth, int64_t group,
                         void* packed) {
  char* const to = static_cast<char*>(packed);
  char* const scales = to + depth * 2;
  char* const sums = scales + depth / group * sizeof(float);
  for (int64_t g = 0; g * group < depth; ++g) {
    const int64_t begin = g * group;
    const int64_t inside = count - begin < group ? count - begin : group;
    const float largest = inside > 0 ? LargestMagnitude(input + begin, inside) : 0;
    const bool empty = largest < 0x1p-100f;
    const bool finite = largest < __builtin_inff();  // false for NaN too
    const float scale = empty ? 0 : finite ? largest / kFixedLargest : __builtin_nanf("");
    const __m512 factor = _mm512_set1_ps(empty || !finite ? 0 : kFixedLargest / largest);
    int32_t sum = 0;
    for (int64_t i = 0; i < group; i += 32) {
      char* const high = to + begin * 2 + i;
      sum += PackFixed32(input + begin + i, inside - i, factor, high, high + group);
    }
    sum *= 8;
    __builtin_memcpy(scales + g * sizeof(scale), &scale, sizeof(scale));
    __builtin_memcpy(sums + g * sizeof(sum), &sum, sizeof(sum));
  }
}

ANNULUS_DOT_INLINE __m512i FourBytes(const char* from) {
  int32_t bytes;
  __builtin_memcpy(&bytes, from, sizeof(bytes));
  return _mm512_set1_epi32(bytes);
}

// kRows rows by kPanels panels, over all inputs, to the output.
template <int kRows, int kPanels>
void MultiplyInt4Tile(const DotTask& task, int row, int panel) {
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
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const __m512i codes = _mm512_loadu_si512(weights + p * task.panel_bytes);
        if constexpr (kRows < 4) {  // weights that come from memory
          _mm_prefetch(weights + p * task.panel_bytes + 2048, _MM_HINT_T0);
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
      const char* const scales = input + r * task.input_stride + task.depth * 2 + g * 4;
      const __m512 of_row = _mm512_castsi512_ps(FourBytes(scales));
      const __m512i offset = FourBytes(scales + groups * 4);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const __m512i sum =
            _mm512_sub_epi32(_mm512_add_epi32(_mm512_slli_epi32(high[r][p], 8), low[r][p]), offset);
        total[r][p] =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale[p], of_row), total[r][p]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) StoreDotPanel(task, row + r, panel + p, total[r][p]);
  }
}

// All rows of a task by kPanels panels, which stay in a cache meanwhile.
template <int kPanels>
void MultiplyInt4Rows(const DotTask& task, int panel) {
  int row = 0;
  for (; row + 4 <= task.rows; row += 4) MultiplyInt4Tile<4, kPanels>(task, row, panel);
  if (task.rows - row >= 2) {
    MultiplyInt4Tile<2, kPanels>(task, row, panel);
    row += 2;
  }
  if (row < task.rows) MultiplyInt4Tile<1, kPanels>(task, row, panel);
}

inline void LinearInt4(const DotTask& task) {
  const int panels = (task.columns + kPanel - 1) / kPanel;
  int panel = 0;
  if (task.rows == 1) {  // bound by reading: more panels at a time hide more of it
    for (; panel + 4 <= panels; panel += 4) MultiplyInt4Tile<1, 4>(task, 0, panel);
  }
  for (; panel + 2 <= panels; panel += 2) MultiplyInt4Rows<2>(task, panel);
  if (panel < panels) MultiplyInt4Rows<1>(task, panel);
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_DOT_INT4_H_
