#ifndef ANNULUS_KERNELS_CPU_ISA_DOT_FEW_ROWS_H_
#define ANNULUS_KERNELS_CPU_ISA_DOT_FEW_ROWS_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa/dot.h"

// The product of a few rows with quantised weights, computed by vectors but with the arithmetic of
// TDPBF16PS, so that it gives the same bits as tiles. Vectors widen codes in registers; tiles would
// need them in memory. A tile of 32 inputs sums the products of its even and its odd inputs
// separately, each from 0 by fused multiply-adds, adds the two, and adds that to the output (Intel
// SDM, volume 2D, TDPBF16PS). The caller must flush subnormal numbers (FlushSubnormals), as tiles
// do.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

inline constexpr int kFewRows = 3;
inline constexpr int64_t kTileInputs = 32;

// sum[r][p] += the products of inputs [k, k + 32) of the rows and panels.
template <class Codes, int kRows, int kPanels>
ANNULUS_DOT_INLINE void AddTile(const Codes& codes, const DotTask& task, int panel, int64_t k,
                                __m512 (&sum)[kRows][kPanels]) {
  constexpr int64_t kInputs = 2 * Codes::kPairs;
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  const char* weights = DotPanel(task, panel) + k / kInputs * 64;
  const char* input = static_cast<const char*>(task.input) + k * 2;
  __m512 even[kRows][kPanels];
  __m512 odd[kRows][kPanels];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) even[r][p] = odd[r][p] = _mm512_setzero_ps();
  }
  for (int64_t i = 0; i < kTileInputs; i += kInputs, weights += 64, input += kInputs * 2) {
    const int64_t ahead = DotAhead((k + i) / kInputs * 64, task.panel_bytes, kPanels);
    __m512i pairs[kPanels][Codes::kPairs];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      codes.Widen(weights + p * task.panel_bytes, pairs[p]);
      FetchFar(weights + p * task.panel_bytes + ahead);
    }
#pragma GCC unroll 4
    for (int j = 0; j < Codes::kPairs; ++j) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        int32_t bits;
        __builtin_memcpy(&bits, input + r * task.input_stride + j * 4, sizeof(bits));
        const __m512i pair = _mm512_set1_epi32(bits);
        const __m512 low_input = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
        const __m512 high_input = _mm512_castsi512_ps(_mm512_and_si512(pair, high));
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) {
          even[r][p] = _mm512_fmadd_ps(
              low_input, _mm512_castsi512_ps(_mm512_slli_epi32(pairs[p][j], 16)), even[r][p]);
          odd[r][p] = _mm512_fmadd_ps(
              high_input, _mm512_castsi512_ps(_mm512_and_si512(pairs[p][j], high)), odd[r][p]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      sum[r][p] = _mm512_add_ps(sum[r][p], _mm512_add_ps(even[r][p], odd[r][p]));
    }
  }
}

template <class Codes, int kRows, int kPanels, class Scales>
void MultiplyFewPanels(const Codes& codes, const DotTask& task, int panel, float* sums,
                       int64_t stride) {
  __m512 total[kRows][kPanels];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) total[r][p] = _mm512_setzero_ps();
  }
  if constexpr (!Scales::kGroups) {
    for (int64_t k = 0; k < task.depth; k += kTileInputs) {
      AddTile<Codes, kRows, kPanels>(codes, task, panel, k, total);
    }
  } else {
    for (int64_t k = 0; k < task.depth; k += task.group) {
      __m512 sum[kRows][kPanels];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) sum[r][p] = _mm512_setzero_ps();
      }
      for (int64_t i = 0; i < task.group; i += kTileInputs) {
        AddTile<Codes, kRows, kPanels>(codes, task, panel, k + i, sum);
      }
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const int64_t group = k / task.group;
        const __m512 scale = Scales::Scale(task, panel + p, group);
        __m512 minimum;
        if constexpr (Scales::kMinimum) minimum = Scales::Minimum(task, panel + p, group);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          total[r][p] = _mm512_fmadd_ps(sum[r][p], scale, total[r][p]);
          if constexpr (Scales::kMinimum) {
            total[r][p] = _mm512_fmadd_ps(minimum, Scales::InputSum(task, r, group), total[r][p]);
          }
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      _mm512_storeu_ps(sums + r * stride + (panel + p) * kPanel, total[r][p]);
    }
  }
}

template <class Codes, int kRows, int kPanels, class Scales>
void MultiplyFewRowsOf(const DotTask& task, float* sums, int64_t stride) {
  const Codes codes;
  const int panels = (task.columns + kPanel - 1) / kPanel;
  int panel = 0;
  for (; panel + kPanels <= panels; panel += kPanels) {
    MultiplyFewPanels<Codes, kRows, kPanels, Scales>(codes, task, panel, sums, stride);
  }
  for (; panel < panels; ++panel) {
    MultiplyFewPanels<Codes, kRows, 1, Scales>(codes, task, panel, sums, stride);
  }
}

// Multiplies all columns of a task of at most kFewRows rows; stores the sums of row r at sums + r *
// stride.
template <class Codes, class Scales>
void MultiplyFewRows(const DotTask& task, float* sums, int64_t stride) {
  switch (task.rows) {
    case 1:
      return MultiplyFewRowsOf<Codes, 1, 4, Scales>(task, sums, stride);
    case 2:
      return MultiplyFewRowsOf<Codes, 2, 2, Scales>(task, sums, stride);
    default:
      return MultiplyFewRowsOf<Codes, kFewRows, 2, Scales>(task, sums, stride);
  }
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_DOT_FEW_ROWS_H_
