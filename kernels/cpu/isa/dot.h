#ifndef ANNULUS_KERNELS_CPU_ISA_DOT_H_
#define ANNULUS_KERNELS_CPU_ISA_DOT_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa/dot_codes.h"
#include "kernels/cpu/simd/dot_kernels.h"

// What the AVX512_BF16 and AMX kernels share: packing input rows, widening weights, and storing
// sums to the output.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

// Depth of weights that are widened together: 64 columns of it are 32 KiB of bf16.
inline constexpr int64_t kDotDepth = 256;
// Bytes of two bf16 inputs for 16 columns.
inline constexpr int64_t kPairBytes = 64;

inline __mmask16 FirstLanes(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : (1u << count) - 1);
}

inline void PackDotRow(const float* input, int64_t count, int64_t depth, void* packed) {
  char* const to = static_cast<char*>(packed);
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m512bh pair =
        _mm512_cvtne2ps_pbh(_mm512_loadu_ps(input + i + 16), _mm512_loadu_ps(input + i));
    _mm512_store_si512(to + i * 2, (__m512i)pair);
  }
  for (; i < depth; i += 32) {
    const __m512 low = _mm512_maskz_loadu_ps(FirstLanes(count > i ? count - i : 0), input + i);
    const __m512 high =
        _mm512_maskz_loadu_ps(FirstLanes(count > i + 16 ? count - i - 16 : 0), input + i + 16);
    _mm512_store_si512(to + i * 2, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
}

inline const char* DotPanel(const DotTask& task, int panel) {
  return static_cast<const char*>(task.panels) + panel * task.panel_bytes;
}

// Distance to prefetch ahead of byte `at` of a panel, for products of few rows that read `panels`
// panels side by side. Past a panel's end it skips to the start of the panel read next.
ANNULUS_DOT_INLINE int64_t DotAhead(int64_t at, int64_t panel_bytes, int panels) {
  constexpr int64_t kAhead = 2048;
  return at + kAhead < panel_bytes ? kAhead : kAhead + (panels - 1) * panel_bytes;
}

// Prefetches into the second-level cache, not the first: the buffers for first-level misses are few
// (24 on Zen 4), and far prefetches in them would delay the loads needed now.
ANNULUS_DOT_INLINE void FetchFar(const char* line) { _mm_prefetch(line, _MM_HINT_T2); }

// Float32 scales of a panel's columns.
inline __m512 RowScales(const DotTask& task, int panel) {
  return _mm512_loadu_ps(DotPanel(task, panel) + task.scales);
}
// One group's bf16 scales, widened.
inline __m512 WidenScales(const char* scales) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
// One group's f16 scales, widened.
inline __m512 WidenHalves(const char* scales) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales)));
}

// The kinds of group scales, for kernels that scale the sum of each group's products.
struct NoGroups {
  static constexpr bool kGroups = false;
};
struct Bf16Scales {
  static constexpr bool kGroups = true;
  static constexpr bool kMinimum = false;
  static __m512 Scale(const DotTask& task, int panel, int64_t group) {
    return WidenScales(DotPanel(task, panel) + task.scales + group * kPanel * 2);
  }
};
struct HalfScales {
  static constexpr bool kGroups = true;
  static constexpr bool kMinimum = false;
  static __m512 Scale(const DotTask& task, int panel, int64_t group) {
    return WidenHalves(DotPanel(task, panel) + task.scales + group * kPanel * 2);
  }
};
// Scales with minimums. A minimum multiplies the sum of its group's inputs; those sums follow a
// packed row (PackSummedRow).
struct HalfScalesAndMinimums {
  static constexpr bool kGroups = true;
  static constexpr bool kMinimum = true;
  static const char* Numbers(const DotTask& task, int panel, int64_t group) {
    return DotPanel(task, panel) + task.scales + group * kPanel * 4;
  }
  static __m512 Scale(const DotTask& task, int panel, int64_t group) {
    return WidenHalves(Numbers(task, panel, group));
  }
  static __m512 Minimum(const DotTask& task, int panel, int64_t group) {
    return WidenHalves(Numbers(task, panel, group) + kPanel * 2);
  }
  static __m512 InputSum(const DotTask& task, int row, int64_t group) {
    float sum;
    __builtin_memcpy(&sum,
                     static_cast<const char*>(task.input) + row * task.input_stride +
                         task.depth * 2 + group * sizeof(sum),
                     sizeof(sum));
    return _mm512_set1_ps(sum);
  }
};

// Does PackDotRow, then appends the float32 sum of each `group` of the rounded inputs.
inline void PackSummedRow(const float* input, int64_t count, int64_t depth, int64_t group,
                          void* packed) {
  PackDotRow(input, count, depth, packed);
  const char* from = static_cast<const char*>(packed);
  char* to = static_cast<char*>(packed) + depth * 2;
  for (int64_t begin = 0; begin < depth; begin += group, to += sizeof(float)) {
    __m512 sums = _mm512_setzero_ps();
    for (int64_t i = 0; i < group; i += 16, from += 32) {
      sums = _mm512_add_ps(sums, WidenScales(from));
    }
    const float sum = _mm512_reduce_add_ps(sums);
    __builtin_memcpy(to, &sum, sizeof(sum));
  }
}

// Widens inputs [k, k + depth) of a panel to pairs of bf16: [depth / 2][16].
template <class Codes>
void WidenDotPanel(const Codes& codes, const DotTask& task, int panel, int64_t k, int64_t depth,
                   char* to) {
  constexpr int64_t kInputs = 2 * Codes::kPairs;
  const char* from = DotPanel(task, panel) + k / kInputs * 64;
  for (int64_t i = 0; i < depth; i += kInputs, from += 64) {
    __m512i pairs[Codes::kPairs];
    codes.Widen(from, pairs);
    // Prefetch what the next call for this panel reads; other panels come in between.
    _mm_prefetch(from + kDotDepth / kInputs * 64, _MM_HINT_T0);
#pragma GCC unroll 4
    for (int j = 0; j < Codes::kPairs; ++j, to += kPairBytes) _mm512_store_si512(to, pairs[j]);
  }
}

// Stores one row's sums of one panel to the output.
inline void StoreDotPanel(const DotTask& task, int row, int panel, __m512 sum) {
  const int column = panel * kPanel;
  float* const output = task.output + row * task.output_stride + column;
  const __mmask16 lanes = FirstLanes(task.columns - column);
  if (task.bias != nullptr) {
    sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(lanes, task.bias + column));
  }
  if (task.accumulate) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(lanes, output));
  _mm512_mask_storeu_ps(output, lanes, sum);
}

// Stores one row's sums, one per column (plus padding), to the output. kScaled: multiplies them by
// the scale of each column.
template <bool kScaled>
void StoreDotRow(const DotTask& task, const float* sums, int row) {
  for (int panel = 0; panel * kPanel < task.columns; ++panel) {
    __m512 sum = _mm512_loadu_ps(sums + panel * kPanel);
    if constexpr (kScaled) sum = _mm512_mul_ps(sum, RowScales(task, panel));
    StoreDotPanel(task, row, panel, sum);
  }
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_DOT_H_
