#ifndef ANNULUS_KERNELS_CPU_ISA_PRODUCT_H_
#define ANNULUS_KERNELS_CPU_ISA_PRODUCT_H_

#include <cstdint>

#include "kernels/cpu/isa/fetch.h"
#include "kernels/cpu/simd/kernels.h"

// The only matrix product of the SIMD path: for linear layers, for queries times keys, and for
// weights times values. A register tile has up to kTileRows rows by V::TilePanels panels; each
// element is one chain of fused multiply-adds in ascending k. So its bits depend neither on the
// tile's shape nor on its place in the tile.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

// Prefetches are issued every kFetchSteps steps of depth; see isa/fetch.h.
inline constexpr int kFetchSteps = 4;
struct Fetching {
  FetchAhead* ahead = nullptr;
  int lines = 0;
};

// Rows of the tallest tile: a whole block of few rows (decode), which would otherwise take two
// tiles, each loading and widening all of b.
inline constexpr int kMostTileRows = 8;

// sums[r][p * 16 + c] (+)= sum_k a[r][k] * b(p, k)[c], where b(p, k) = b + p * panel_stride +
// k * k_stride is 16 elements of T.
template <class T>
struct Product {
  const float* a[kMostTileRows];
  const T* b;
  int64_t panel_stride;
  int64_t k_stride;
  int64_t depth;
  float* sums;  // row r at sums + r * sums_stride
  int64_t sums_stride;
  bool fresh;  // start from 0 instead of from what `sums` holds
  Fetching fetching;
};

template <class V, class T, int kRows, int kPanels>
void MultiplyTile(const Product<T>& x, int panel) {
  constexpr int kVectors = kPanels * kPanel / V::kLanes;
  constexpr int kPerPanel = kPanel / V::kLanes;
  float* const sums = x.sums + int64_t{panel} * kPanel;
  const T* b = x.b + panel * x.panel_stride;
  typename V::Float sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = x.fresh ? V::Zero() : V::Load(sums + r * x.sums_stride + v * V::kLanes);
    }
  }
  const float* a[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) a[r] = x.a[r];
  const int64_t panel_stride = x.panel_stride;
  const int64_t k_stride = x.k_stride;
  const int64_t depth = x.depth;
  const int64_t part = x.fetching.ahead != nullptr ? kFetchSteps : depth;
  for (int64_t k = 0; k < depth;) {
    Ask(x.fetching.ahead, x.fetching.lines);
    const int64_t part_end = k + part < depth ? k + part : depth;
    for (; k < part_end; ++k, b += k_stride) {
      typename V::Float column[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        column[v] = V::Load(b + v / kPerPanel * panel_stride + v % kPerPanel * V::kLanes);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const typename V::Float row = V::Set(a[r][k]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sum[r][v] = V::MulAdd(row, column[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      V::Store(sums + r * x.sums_stride + v * V::kLanes, sum[r][v]);
    }
  }
}

template <class V, class T, int kRows>
void MultiplyRows(const Product<T>& x, int panels) {
  constexpr int kTilePanels = V::TilePanels(kRows);
  int panel = 0;
  for (; panel + kTilePanels <= panels; panel += kTilePanels) {
    MultiplyTile<V, T, kRows, kTilePanels>(x, panel);
  }
  for (; panel < panels; ++panel) MultiplyTile<V, T, kRows, 1>(x, panel);
}

// Height of the next tile when `left` rows are left: two tiles of similar height are faster than a
// full one and a flat one.
template <class V>
int TileHeight(int left) {
  if (left <= V::kTallTileRows) return left;
  return left >= 2 * kTileRows ? kTileRows : (left + 1) / 2;
}

// How often tiles of all rows over `panels` panels issue prefetches.
template <class V>
int ProductAsks(int rows, int depth, int panels) {
  int tiles = 0;
  for (int row = 0; row < rows; ++tiles) {
    const int height = TileHeight<V>(rows - row);
    tiles += panels / V::TilePanels(height) + panels % V::TilePanels(height) - 1;
    row += height;
  }
  return tiles * ((depth + kFetchSteps - 1) / kFetchSteps);
}

// Multiplies 1..V::kTallTileRows rows by any number of panels.
template <class V, class T>
void Multiply(const Product<T>& x, int rows, int panels) {
  switch (rows) {
    case 1:
      return MultiplyRows<V, T, 1>(x, panels);
    case 2:
      return MultiplyRows<V, T, 2>(x, panels);
    case 3:
      return MultiplyRows<V, T, 3>(x, panels);
    case 4:
      return MultiplyRows<V, T, 4>(x, panels);
    case 5:
      return MultiplyRows<V, T, 5>(x, panels);
    case 6:
      return MultiplyRows<V, T, 6>(x, panels);
  }
  if constexpr (V::kTallTileRows == kMostTileRows) {
    if (rows == 7) return MultiplyRows<V, T, 7>(x, panels);
    return MultiplyRows<V, T, 8>(x, panels);
  }
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_PRODUCT_H_
