#ifndef ANNULUS_KERNELS_CPU_ISA_DOT_INT8_H_
#define ANNULUS_KERNELS_CPU_ISA_DOT_INT8_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa/dot.h"

// int8 inputs times int8 weights with one scale per column (Activations::kInt8; weights in groups:
// isa/dot_int8_groups.h). VPDPBUSD and TDPBUSD multiply unsigned by
// signed bytes, so inputs are stored as code + 128; at the end, 128 times the sum of the column's
// codes, which the panel stores, is subtracted. Intermediate int32 sums may wrap around; the final
// one fits.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

// Inputs per pass: 64 columns of weights are 32 KiB.
inline constexpr int64_t kInt8Depth = 512;

inline float Int8RowScale(const DotTask& task, int row) {
  float scale;
  __builtin_memcpy(&scale,
                   static_cast<const char*>(task.input) + row * task.input_stride + task.depth,
                   sizeof(scale));
  return scale;
}

// The largest absolute value, or NaN if there is one: compared as integers, NaN > infinity >
// numbers.
inline float LargestMagnitude(const float* input, int64_t count) {
  __m512i largest = _mm512_setzero_si512();
  for (int64_t i = 0; i < count; i += 16) {
    const __m512i x = _mm512_castps_si512(_mm512_maskz_loadu_ps(FirstLanes(count - i), input + i));
    largest = _mm512_max_epi32(largest, _mm512_and_si512(x, _mm512_set1_epi32(0x7fffffff)));
  }
  const int32_t bits = _mm512_reduce_max_epi32(largest);
  float result;
  __builtin_memcpy(&result, &bits, sizeof(result));
  return result;
}

// Stores the codes of one row, padded with zeros to `depth`: each with its highest bit flipped if
// kUnsigned (code + 128), and each 16 neighbours in `order`. Returns the row's scale.
template <bool kUnsigned>
float QuantizeCodes(const float* input, int64_t count, int64_t depth, __m128i order, char* to) {
  const float largest = LargestMagnitude(input, count);
  const bool empty = largest < 0x1p-100f;
  const bool finite = largest < __builtin_inff();  // false for NaN too
  const __m512 factor = _mm512_set1_ps(empty || !finite ? 0 : 127 / largest);
  const __m128i flipped = _mm_set1_epi8(static_cast<char>(kUnsigned ? 0x80 : 0));
  for (int64_t i = 0; i < depth; i += 16) {
    const __m512 x = _mm512_maskz_loadu_ps(FirstLanes(count > i ? count - i : 0), input + i);
    const __m128i codes = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(x, factor)));
    _mm_store_si128(reinterpret_cast<__m128i*>(to + i),
                    _mm_shuffle_epi8(_mm_xor_si128(codes, flipped), order));
  }
  return empty ? 0 : finite ? largest / 127 : __builtin_nanf("");
}

// DotKernels::pack_int8_row for weights with one scale per column: codes + 128, then their scale.
inline void QuantizeDotRow(const float* input, int64_t count, int64_t depth, int64_t,
                           void* packed) {
  char* const to = static_cast<char*>(packed);
  const __m128i order = _mm_set_epi8(15, 13, 14, 12, 11, 9, 10, 8, 7, 5, 6, 4, 3, 1, 2, 0);
  const float scale = QuantizeCodes<true>(input, count, depth, order, to);
  __builtin_memcpy(to + depth, &scale, sizeof(scale));
}

// Adds the products of inputs [k, k + depth) to the sums [row][panel]; starts from 0 if k is 0.
template <int kRows, int kPanels>
void MultiplyInt8Tile(const DotTask& task, int row, int panel, int64_t k, int64_t depth,
                      int32_t* sums, int64_t stride) {
  __m512i sum[kRows][kPanels];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
      sum[r][p] = k == 0 ? _mm512_setzero_si512()
                         : _mm512_load_si512(sums + (row + r) * stride + (panel + p) * kPanel);
    }
  }
  const char* input = static_cast<const char*>(task.input) + row * task.input_stride + k;
  const char* weights = DotPanel(task, panel) + k * kPanel;
  for (int64_t i = 0; i < depth; i += 4, input += 4, weights += 64) {
    const int64_t ahead = DotAhead((k + i) * kPanel, task.panel_bytes, kPanels);
    __m512i codes[kPanels];
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
      codes[p] = _mm512_loadu_si512(weights + p * task.panel_bytes);
      if constexpr (kRows < 4) {  // the weights come from memory
        FetchFar(weights + p * task.panel_bytes + ahead);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      int32_t bytes;
      __builtin_memcpy(&bytes, input + r * task.input_stride, sizeof(bytes));
      const __m512i four = _mm512_set1_epi32(bytes);
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) sum[r][p] = _mm512_dpbusd_epi32(sum[r][p], four, codes[p]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
      _mm512_store_si512(sums + (row + r) * stride + (panel + p) * kPanel, sum[r][p]);
    }
  }
}

template <int kRows>
void MultiplyInt8Panels(const DotTask& task, int row, int64_t k, int64_t depth, int32_t* sums,
                        int64_t stride) {
  const int panels = (task.columns + kPanel - 1) / kPanel;
  int panel = 0;
  for (; panel + 4 <= panels; panel += 4) {
    MultiplyInt8Tile<kRows, 4>(task, row, panel, k, depth, sums, stride);
  }
  for (; panel < panels; ++panel) {
    MultiplyInt8Tile<kRows, 1>(task, row, panel, k, depth, sums, stride);
  }
}

// Computes all sums of a task, with vectors.
inline void MultiplyInt8Rows(const DotTask& task, int32_t* sums, int64_t stride) {
  // Few rows use each weight only once, so blocking would just interrupt the stream of reads.
  const int64_t block = task.rows < 4 ? task.depth : kInt8Depth;
  for (int64_t k = 0; k < task.depth; k += block) {
    const int64_t depth = task.depth - k < block ? task.depth - k : block;
    int row = 0;
    for (; row + 6 <= task.rows; row += 6) {
      MultiplyInt8Panels<6>(task, row, k, depth, sums, stride);
    }
    if (task.rows - row >= 3) {
      MultiplyInt8Panels<3>(task, row, k, depth, sums, stride);
      row += 3;
    }
    for (; row < task.rows; ++row) MultiplyInt8Panels<1>(task, row, k, depth, sums, stride);
  }
}

// Turns sums of codes into outputs.
inline void StoreInt8Rows(const DotTask& task, const int32_t* sums, int64_t stride) {
  for (int row = 0; row < task.rows; ++row) {
    const __m512 scale = _mm512_set1_ps(Int8RowScale(task, row));
    for (int panel = 0; panel * kPanel < task.columns; ++panel) {
      const __m512i of_codes =
          _mm512_loadu_si512(DotPanel(task, panel) + task.scales + kPanel * sizeof(float));
      const __m512i sum = _mm512_sub_epi32(_mm512_load_si512(sums + row * stride + panel * kPanel),
                                           _mm512_slli_epi32(of_codes, 7));
      const __m512 value =
          _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale), RowScales(task, panel));
      StoreDotPanel(task, row, panel, value);
    }
  }
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_DOT_INT8_H_
