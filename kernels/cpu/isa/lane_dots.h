#ifndef ANNULUS_KERNELS_CPU_ISA_LANE_DOTS_H_
#define ANNULUS_KERNELS_CPU_ISA_LANE_DOTS_H_

#include <cstdint>

#include "kernels/cpu/simd/kernels.h"

// Multiplies the 16 keys of a panel with 16 query vectors, lane by lane, over plain pages: the
// inner loop of block scores. Plain pages can hold any storage type, which is widened as it is
// loaded.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

inline constexpr int kLaneRows = 4;

template <class V, class T, int kRows, int kPanels>
void LaneTile(const LaneDots& x, int row, int panel) {
  constexpr int kPerPanel = kPanel / V::kLanes;
  const T* const keys = static_cast<const T*>(x.keys) + int64_t{panel} * x.depth * kPanel;
  const float* const query = static_cast<const float*>(x.query) + int64_t{row} * x.depth * kPanel;
  typename V::Float sum[kRows][kPanels * kPerPanel];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kPanels * kPerPanel; ++v) sum[r][v] = V::Zero();
  }
  for (int64_t i = 0; i < x.depth * kPanel; i += kPanel) {
    typename V::Float key[kPanels * kPerPanel];
#pragma GCC unroll 8
    for (int v = 0; v < kPanels * kPerPanel; ++v) {
      key[v] = V::Load(keys + v / kPerPanel * x.depth * kPanel + i + v % kPerPanel * V::kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int l = 0; l < kPerPanel; ++l) {
        const typename V::Float q = V::Load(query + r * x.depth * kPanel + i + l * V::kLanes);
#pragma GCC unroll 8
        for (int p = 0; p < kPanels; ++p) {
          sum[r][p * kPerPanel + l] =
              V::MulAdd(q, key[p * kPerPanel + l], sum[r][p * kPerPanel + l]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kPanels * kPerPanel; ++v) {
      V::Store(x.sums + (int64_t{row + r} * x.panels + panel) * kPanel + v * V::kLanes, sum[r][v]);
    }
  }
}

template <class V, class T, int kRows>
void LanePanels(const LaneDots& x, int row) {
  constexpr int kPanels = V::kLanes == kPanel ? 4 : 1;  // as many sums as there are registers
  int panel = 0;
  for (; panel + kPanels <= x.panels; panel += kPanels)
    LaneTile<V, T, kRows, kPanels>(x, row, panel);
  for (; panel < x.panels; ++panel) LaneTile<V, T, kRows, 1>(x, row, panel);
}

template <class V, class T>
void LaneProducts(const LaneDots& x) {
  int row = 0;
  for (; row + kLaneRows <= x.rows; row += kLaneRows) LanePanels<V, T, kLaneRows>(x, row);
  for (; row < x.rows; ++row) LanePanels<V, T, 1>(x, row);
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_LANE_DOTS_H_
