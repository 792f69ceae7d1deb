#ifndef ANNULUS_KERNELS_CPU_ISA_PAIRED_LANE_DOTS_H_
#define ANNULUS_KERNELS_CPU_ISA_PAIRED_LANE_DOTS_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa_paired_keys.h"
#include "kernels/cpu/isa_paired_softmax.h"
#include "kernels/cpu/simd_kernels.h"

// isa_lane_dots.h over paired pages, by dot products of bf16 pairs.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd_kernels.h

// The next 16 pairs of keys as bf16.
inline __attribute__((always_inline)) __m512i LanePairs(const Bf16* p) {
  return LoadPairs(reinterpret_cast<const uint32_t*>(p));
}
template <class T>
inline __attribute__((always_inline)) __m512i LanePairs(const T* p) {
  return WidenToPairs(p);
}

template <class T, int kRows, int kPanels>
void PairedLaneTile(const LaneDots& x, int row, int panel) {
  const int64_t panel_pairs = x.depth * kPanel;
  const T* const keys = static_cast<const T*>(x.keys) + panel * panel_pairs * 2;
  const uint32_t* const query = static_cast<const uint32_t*>(x.query) + row * panel_pairs;
  __m512 sum[kRows][kPanels];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) sum[r][p] = _mm512_setzero_ps();
  }
  for (int64_t i = 0; i < panel_pairs; i += kPanel) {
    __m512i key[kPanels];
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) key[p] = LanePairs(keys + (p * panel_pairs + i) * 2);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i q = LoadPairs(query + r * panel_pairs + i);
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) sum[r][p] = Dot(sum[r][p], q, key[p]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
      _mm512_storeu_ps(x.sums + (int64_t{row + r} * x.panels + panel + p) * kPanel, sum[r][p]);
    }
  }
}

template <class T, int kRows>
void PairedLanePanels(const LaneDots& x, int row) {
  int panel = 0;
  for (; panel + 4 <= x.panels; panel += 4) PairedLaneTile<T, kRows, 4>(x, row, panel);
  for (; panel < x.panels; ++panel) PairedLaneTile<T, kRows, 1>(x, row, panel);
}

template <class T>
void PairedLaneProducts(const LaneDots& x) {
  int row = 0;
  for (; row + 4 <= x.rows; row += 4) PairedLanePanels<T, 4>(x, row);
  for (; row < x.rows; ++row) PairedLanePanels<T, 1>(x, row);
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_PAIRED_LANE_DOTS_H_
