#ifndef ANNULUS_KERNELS_CPU_ISA_DOT_INT8_GROUPS_H_
#define ANNULUS_KERNELS_CPU_ISA_DOT_INT8_GROUPS_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa/dot_int8.h"
#include "kernels/cpu/isa/dot_integer_weights.h"

// int8 inputs times integer weights in groups (Activations::kInt8). VPDPBUSD sums the products of a
// group exactly, in int32. The groups' sums, times their scales, are added in one chain of
// fused multiply-adds, and the row's scale multiplies the result. So an output's bits depend
// neither on the number of rows nor on the tile.
//
// A packed row holds `depth` codes in the order of the weights' codes (weight_layout.h), the row's
// float32 scale, and 4 bytes per group: an int32, the debt of its codes, or with kMinimum a
// float32, their sum. isa/dot_integer_weights.h explains debts and lists the kinds of `Weights`,
// of which the templates take those with groups.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

// Register tiles: 3 rows by 4 panels have 12 integer sums and 12 totals.
inline constexpr int kGroupTileRows = 3;
inline constexpr int kGroupTilePanels = 4;

// Sum of `group` codes, a multiple of 32.
inline int32_t SumOfCodes(const char* codes, int64_t group) {
  __m256i sums = _mm256_setzero_si256();
  for (int64_t i = 0; i < group; i += 32) {
    sums = _mm256_dpbusd_epi32(sums, _mm256_set1_epi8(1),
                               _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i)));
  }
  return _mm512_reduce_add_epi32(_mm512_zextsi256_si512(sums));
}

// DotKernels::pack_int8_row.
template <class Weights>
void QuantizeGroupedRow(const float* input, int64_t count, int64_t depth, int64_t group,
                        void* packed) {
  char* const codes = static_cast<char*>(packed);
  const float scale = QuantizeCodes<false>(input, count, depth, Weights::ByteOrder(), codes);
  char* to = codes + depth;
  __builtin_memcpy(to, &scale, sizeof(scale));
  for (int64_t begin = 0; begin < depth; begin += group) {
    const int32_t sum = SumOfCodes(codes + begin, group);
    const int32_t debt = -Weights::kOffset * sum;
    const float factor = static_cast<float>(sum);  // of the minimum
    to += 4;
    __builtin_memcpy(to, Weights::kMinimum ? static_cast<const void*>(&factor) : &debt, 4);
  }
}

// Adds up the products of one group: kRows rows from `bytes` by kPanels panels from `weights`.
// `ahead`: how far to prefetch weights; 0: not at all.
template <class Weights, int kRows, int kPanels>
ANNULUS_DOT_INLINE void AddGroupProducts(const DotTask& task, const char* bytes,
                                         const char* weights, int64_t ahead,
                                         __m512i (&sum)[kRows][kPanels]) {
  for (int64_t i = 0; i < task.group; i += Weights::kInputs, weights += 64) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const typename Weights::Line line(_mm512_loadu_si512(weights + p * task.panel_bytes));
      if (ahead > 0) FetchFar(weights + p * task.panel_bytes + ahead);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int j = 0; j < Weights::kInputs / 4; ++j) {
          AddFourBytes(sum[r][p], line.codes[j], bytes + r * task.input_stride + i + j * 4);
        }
      }
    }
  }
}

// total += sums of group g, times its scales (+ its minimums times the sums of the inputs).
template <class Weights, int kRows, int kPanels>
ANNULUS_DOT_INLINE void AddScaledGroup(const char* scales, int64_t panel_bytes, const char* debts,
                                       int64_t stride, const __m512i (&sum)[kRows][kPanels],
                                       __m512 (&total)[kRows][kPanels]) {
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p, scales += panel_bytes) {
    const __m512 scale = Weights::Scale(scales);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      total[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][p]), scale, total[r][p]);
      if constexpr (Weights::kMinimum) {
        const __m512 inputs = _mm512_castsi512_ps(FourBytes(debts + r * stride));
        total[r][p] = _mm512_fmadd_ps(Weights::Minimum(scales), inputs, total[r][p]);
      }
    }
  }
}

// Multiplies kRows rows by kPanels panels. Stores to the sums or, after the last groups, to the
// output.
template <class Weights, int kRows, int kPanels>
void MultiplyInt8GroupTile(const DotTask& task, int row, int panel, const GroupRange& part) {
  const int64_t groups = task.depth / task.group;
  const int64_t stride = task.input_stride;
  const int64_t group_bytes = task.group / Weights::kInputs * 64;
  const char* const first = DotPanel(task, panel);
  const char* const input = static_cast<const char*>(task.input) + row * stride;
  float* const sums = static_cast<float*>(task.workspace) + row * kPanels * kPanel;
  __m512 total[kRows][kPanels];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      total[r][p] =
          part.begin == 0 ? _mm512_setzero_ps() : _mm512_load_ps(sums + (r * kPanels + p) * kPanel);
    }
  }
  for (int64_t g = part.begin; g < part.end; ++g) {
    const char* const debts = input + task.depth + sizeof(float) + g * 4;
    const char* const scales = first + task.scales + g * Weights::kScaleBytes;
    __m512i sum[kRows][kPanels];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m512i owed =
          Weights::kMinimum ? _mm512_setzero_si512() : FourBytes(debts + r * stride);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) sum[r][p] = owed;
    }
    int64_t ahead = 0;
    if (row == 0) {  // a task's first rows meet weights that come from memory
      ahead = DotAhead(g * group_bytes, task.panel_bytes, kPanels);
      FetchScales<kPanels>(scales, (groups - g) * Weights::kScaleBytes, task.panel_bytes);
    }
    AddGroupProducts<Weights>(task, input + g * task.group, first + g * group_bytes, ahead, sum);
    AddScaledGroup<Weights>(scales, task.panel_bytes, debts, stride, sum, total);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const __m512 scale = _mm512_set1_ps(Int8RowScale(task, row + r));
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      if (part.end < groups) {
        _mm512_store_ps(sums + (r * kPanels + p) * kPanel, total[r][p]);
      } else {
        StoreDotPanel(task, row + r, panel + p, _mm512_mul_ps(total[r][p], scale));
      }
    }
  }
}

// Multiplies all rows of a task by kPanels panels, in parts of the inputs: with many rows, the
// weights of a part stay in the first-level cache and the inputs in the second. Few rows wait for
// weights from memory, and read them in one stream.
template <class Weights, int kPanels>
void MultiplyInt8GroupParts(const DotTask& task, int panel) {
  constexpr int64_t kPartInputs = 1024;
  const int64_t groups = task.depth / task.group;
  const int64_t step = task.rows <= kGroupTileRows ? groups : kPartInputs / task.group;
  for (int64_t begin = 0; begin < groups; begin += step) {
    const GroupRange part = {begin, begin + step < groups ? begin + step : groups};
    int row = 0;
    for (; row + kGroupTileRows <= task.rows; row += kGroupTileRows) {
      MultiplyInt8GroupTile<Weights, kGroupTileRows, kPanels>(task, row, panel, part);
    }
    if (task.rows - row == 2) MultiplyInt8GroupTile<Weights, 2, kPanels>(task, row, panel, part);
    if (task.rows - row == 1) MultiplyInt8GroupTile<Weights, 1, kPanels>(task, row, panel, part);
  }
}

// DotKernels::linear_int8.
template <class Weights>
void LinearInt8Groups(const DotTask& task) {
  const int panels = (task.columns + kPanel - 1) / kPanel;
  int panel = 0;
  for (; panel + kGroupTilePanels <= panels; panel += kGroupTilePanels) {
    MultiplyInt8GroupParts<Weights, kGroupTilePanels>(task, panel);
  }
  for (; panel < panels; ++panel) MultiplyInt8GroupParts<Weights, 1>(task, panel);
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_DOT_INT8_GROUPS_H_
