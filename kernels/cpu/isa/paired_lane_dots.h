#ifndef ANNULUS_KERNELS_CPU_ISA_PAIRED_LANE_DOTS_H_
#define ANNULUS_KERNELS_CPU_ISA_PAIRED_LANE_DOTS_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa/dot_codes.h"
#include "kernels/cpu/isa/paired_softmax.h"
#include "kernels/cpu/simd/kernels.h"

// The products of isa/lane_dots.h over paired pages, by dot products of bf16 pairs.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

#define ANNULUS_ISA_INLINE inline __attribute__((always_inline))

// Vectors of 16 pairs that are read together: 64 8-bit codes make two.
template <class T>
inline constexpr int kLaneSteps = 2;
template <>
inline constexpr int kLaneSteps<Bf16> = 1;

ANNULUS_ISA_INLINE void LanePairs(const Bf16* p, __m512i (&pairs)[1]) {
  pairs[0] = LoadPairs(reinterpret_cast<const uint32_t*>(p));
}
template <class T>
ANNULUS_ISA_INLINE void LanePairs(const T* p, __m512i (&pairs)[2]) {
  ByteCodes<T>().Widen(reinterpret_cast<const char*>(p), pairs);
}

template <class T, int kRows, int kPanels>
void PairedLaneTile(const LaneDots& x, int row, int panel) {
  constexpr int kSteps = kLaneSteps<T>;
  const int64_t panel_pairs = x.depth * kPanel;
  const T* const keys = static_cast<const T*>(x.keys) + panel * panel_pairs * 2;
  const uint32_t* const query = static_cast<const uint32_t*>(x.query) + row * panel_pairs;
  __m512 sum[kRows][kPanels];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) sum[r][p] = _mm512_setzero_ps();
  }
  for (int64_t i = 0; i < panel_pairs; i += kSteps * kPanel) {
    __m512i key[kPanels][kSteps];
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) LanePairs(keys + (p * panel_pairs + i) * 2, key[p]);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int step = 0; step < kSteps; ++step) {
        const __m512i q = LoadPairs(query + r * panel_pairs + i + step * kPanel);
#pragma GCC unroll 8
        for (int p = 0; p < kPanels; ++p) sum[r][p] = Dot(sum[r][p], q, key[p][step]);
      }
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

#undef ANNULUS_ISA_INLINE

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_PAIRED_LANE_DOTS_H_
