#ifndef ANNULUS_KERNELS_CPU_ISA_DOT_FIXED_H_
#define ANNULUS_KERNELS_CPU_ISA_DOT_FIXED_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa/dot_int8.h"
#include "kernels/cpu/isa/dot_integer_weights.h"

// Inputs in fixed point. VPDPBUSD multiplies them by the codes of weights, 4 bytes at a time. An
// input is x = s * (256 * high + low) with byte-sized high and low and s = (largest |x| of the
// group) / 32512. The sum of a group is an exact integer; the sums of the groups, times their
// scales, are added in one chain. So an output's bits depend neither on the number of rows nor on
// the tile.
//
// A packed row holds for each group [group] high bytes, then [group] low ones, in the order of the
// weights' codes (weight_layout.h). Then come the groups' float32 scales, and one int32 per group:
// the debt of its integers or, with kMinimum, their sum. isa/dot_integer_weights.h explains debts
// and lists the kinds of `Weights` that the templates take.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

inline constexpr float kFixedLargest = 127 * 256;

// Multiplies 32 inputs from `input`, of which only `count` exist, by `factor` and rounds to
// integers.
inline __m512i FixedWords(const float* input, int64_t count, __m512 factor) {
  const auto integers = [&](int64_t from) {
    const __mmask16 lanes = FirstLanes(count > from ? count - from : 0);
    const __m512 x = _mm512_maskz_loadu_ps(lanes, input + from);
    return _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(_mm512_mul_ps(x, factor)));
  };
  return _mm512_inserti64x4(_mm512_castsi256_si512(integers(0)), integers(16), 1);
}

template <class Weights>
void PackFixedRow(const float* input, int64_t count, int64_t depth, int64_t group, void* packed) {
  char* const to = static_cast<char*>(packed);
  char* const scales = to + depth * 2;
  char* const debts = scales + depth / group * sizeof(float);
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
      sum += Weights::Split(FixedWords(input + begin + i, inside - i, factor), high, high + group);
    }
    const int32_t debt = Weights::kMinimum ? sum : -Weights::kOffset * sum;
    __builtin_memcpy(scales + g * sizeof(scale), &scale, sizeof(scale));
    __builtin_memcpy(debts + g * sizeof(debt), &debt, sizeof(debt));
  }
}

// Multiplies kRows rows by kPanels panels. Stores to the sums or, after the last groups, to the
// output.
template <class Weights, int kRows, int kPanels>
void MultiplyFixedTile(const DotTask& task, int row, int panel, const GroupRange& part) {
  const int64_t group = Weights::Group(task);
  const int64_t groups = task.depth / group;
  const int64_t stride = task.input_stride;
  const char* const first = DotPanel(task, panel);
  const char* weights = first + part.begin * group / Weights::kInputs * 64;
  const char* weight_scales = first + task.scales + part.begin * Weights::kScaleBytes;
  const char* const input = static_cast<const char*>(task.input) + row * stride;
  const char* bytes = input + part.begin * group * 2;
  const char* input_scales = input + task.depth * 2 + part.begin * 4;
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
    __m512i high[kRows][kPanels];
    __m512i low[kRows][kPanels];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      // Sums start from the debt of the integers.
      const __m512i owed = Weights::kMinimum ? _mm512_setzero_si512()
                                             : FourBytes(input_scales + r * stride + groups * 4);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        high[r][p] = _mm512_setzero_si512();
        low[r][p] = owed;
      }
    }
    for (int64_t i = 0; i < group; i += Weights::kInputs, bytes += Weights::kInputs) {
      const int64_t ahead = DotAhead(weights - first, task.panel_bytes, kPanels);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const typename Weights::Line line(_mm512_loadu_si512(weights + p * task.panel_bytes));
        if constexpr (kRows < 4) {  // the weights come from memory
          FetchFar(weights + p * task.panel_bytes + ahead);
        }
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const char* const four = bytes + r * stride;
#pragma GCC unroll 2
          for (int j = 0; j < Weights::kInputs / 4; ++j) {
            AddFourBytes(high[r][p], line.codes[j], four + j * 4);
            AddFourBytes(low[r][p], line.codes[j], four + group + j * 4);
          }
        }
      }
      weights += 64;
    }
    bytes += group;
    if constexpr (kRows < 4) {
      FetchScales<kPanels>(weight_scales, (groups - g) * Weights::kScaleBytes, task.panel_bytes);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m512 scale = _mm512_castsi512_ps(FourBytes(input_scales + r * stride));
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(high[r][p], 8), low[r][p]);
        const __m512 factor =
            _mm512_mul_ps(Weights::Scale(weight_scales + p * task.panel_bytes), scale);
        total[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), factor, total[r][p]);
      }
      if constexpr (Weights::kMinimum) {
        const __m512 inputs = _mm512_mul_ps(
            _mm512_cvtepi32_ps(FourBytes(input_scales + r * stride + groups * 4)), scale);
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) {
          total[r][p] = _mm512_fmadd_ps(Weights::Minimum(weight_scales + p * task.panel_bytes),
                                        inputs, total[r][p]);
        }
      }
    }
    input_scales += 4;
    weight_scales += Weights::kScaleBytes;
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      if (part.end < groups) {
        _mm512_store_ps(sums + (r * kPanels + p) * kPanel, total[r][p]);
      } else {
        StoreDotPanel(task, row + r, panel + p, Weights::Result(task, panel + p, total[r][p]));
      }
    }
  }
}

// Multiplies all rows of a task by kPanels panels.
template <class Weights, int kPanels>
void MultiplyFixedRows(const DotTask& task, int panel, const GroupRange& part) {
  int row = 0;
  for (; row + 4 <= task.rows; row += 4) {
    MultiplyFixedTile<Weights, 4, kPanels>(task, row, panel, part);
  }
  if (task.rows - row >= 2) {
    MultiplyFixedTile<Weights, 2, kPanels>(task, row, panel, part);
    row += 2;
  }
  if (row < task.rows) MultiplyFixedTile<Weights, 1, kPanels>(task, row, panel, part);
}

// The same in parts of the inputs: with many rows, the weights of a part stay in the first-level
// cache. Few rows wait for weights from memory, and read them in one stream.
template <class Weights, int kPanels>
void MultiplyFixedParts(const DotTask& task, int panel) {
  constexpr int64_t kPartInputs = 512;
  const int64_t groups = task.depth / Weights::Group(task);
  const int64_t step = task.rows <= 4 ? groups : kPartInputs / Weights::Group(task);
  for (int64_t begin = 0; begin < groups; begin += step) {
    const int64_t end = begin + step < groups ? begin + step : groups;
    MultiplyFixedRows<Weights, kPanels>(task, panel, {begin, end});
  }
}

template <class Weights>
void LinearFixed(const DotTask& task) {
  const int panels = (task.columns + kPanel - 1) / kPanel;
  int panel = 0;
  if (task.rows == 1) {  // bound by reads: more panels at a time hide more latency
    const int64_t groups = task.depth / Weights::Group(task);
    for (; panel + 4 <= panels; panel += 4) {
      MultiplyFixedTile<Weights, 1, 4>(task, 0, panel, {0, groups});
    }
  }
  for (; panel + 2 <= panels; panel += 2) MultiplyFixedParts<Weights, 2>(task, panel);
  if (panel < panels) MultiplyFixedParts<Weights, 1>(task, panel);
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_DOT_FIXED_H_
