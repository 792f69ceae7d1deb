#ifndef ANNULUS_KERNELS_CPU_ISA_LINEAR_H_
#define ANNULUS_KERNELS_CPU_ISA_LINEAR_H_

#include <cstdint>

#include "kernels/cpu/isa/product.h"
#include "kernels/cpu/isa/widen.h"
#include "kernels/cpu/simd/kernels.h"

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

// Depth of the weights that all row tiles of a task read before going on: 64 columns of 256 float32
// are 64 KiB and stay in the second-level cache. Blocking does not change the order of summation:
// sums are stored and continued.
inline constexpr int64_t kDepthBlock = 256;

template <class V>
void StoreLinearRow(const LinearTask& task, const float* sums, int row) {
  float* output = task.output + row * task.output_stride;
  for (int c = 0; c < task.columns; c += V::kLanes) {
    const int count = task.columns - c;
    const bool whole = count >= V::kLanes;
    const auto load = [&](const float* p) {
      return whole ? V::Load(p + c) : V::LoadPartial(p + c, count);
    };
    typename V::Float sum = V::Load(sums + c);
    if (task.bias != nullptr) sum = V::Add(sum, load(task.bias));
    if (task.accumulate) sum = V::Add(sum, load(output));
    if (whole) {
      V::Store(output + c, sum);
    } else {
      V::StorePartial(output + c, sum, count);
    }
  }
}

// Multiplies a task's rows by inputs [k, k + depth) of the panels at `b`, adding to `sums`.
template <class V, class T>
void MultiplyRowTiles(const LinearTask& task, int64_t k, int64_t depth, const T* b,
                      int64_t panel_stride, float* sums) {
  const int panels = (task.columns + kPanel - 1) / kPanel;
  Product<T> product;
  product.b = b;
  product.panel_stride = panel_stride;
  product.k_stride = kPanel;
  product.depth = depth;
  product.sums_stride = kLinearColumns;
  product.fresh = k == 0;
  for (int row = 0; row < task.rows; row += kTileRows) {
    const int rows = task.rows - row < kTileRows ? task.rows - row : kTileRows;
    for (int r = 0; r < rows; ++r) {
      product.a[r] = task.input + (row + r) * task.input_stride + k;
    }
    product.sums = sums + row * kLinearColumns;
    Multiply<V, T>(product, rows, panels);
  }
}

// Weights of float, Bf16 or F16, widened in registers.
template <class V, class T>
void Linear(const LinearTask& task) {
  alignas(64) float sums[kLinearRows * kLinearColumns];
  // A single tile of rows uses each weight only once, so blocking would just interrupt the stream
  // of reads.
  const int64_t block = task.rows <= kTileRows ? task.depth : kDepthBlock;
  for (int64_t k = 0; k < task.depth; k += block) {
    const int64_t depth = task.depth - k < block ? task.depth - k : block;
    MultiplyRowTiles<V, T>(task, k, depth, static_cast<const T*>(task.panels) + k * kPanel,
                           task.depth * kPanel, sums);
  }
  for (int row = 0; row < task.rows; ++row) {
    StoreLinearRow<V>(task, sums + row * kLinearColumns, row);
  }
}

// Quantised weights, code * scale (+ minimum), widened block by block into a buffer that stays in
// the first-level cache.
template <class V, class Code>
void LinearWidened(const LinearTask& task) {
  constexpr int kPanels = kLinearColumns / kPanel;
  alignas(64) float sums[kLinearRows * kLinearColumns];
  alignas(64) float widened[kPanels][kWidenDepth * kPanel];
  for (int64_t k = 0; k < task.depth; k += kWidenDepth) {
    const int64_t depth = task.depth - k < kWidenDepth ? task.depth - k : kWidenDepth;
    for (int panel = 0; panel * kPanel < task.columns; ++panel) {
      WidenPanel<V>(Code{}, task, panel, k, depth, widened[panel]);
    }
    MultiplyRowTiles<V, float>(task, k, depth, widened[0], kWidenDepth * kPanel, sums);
  }
  for (int row = 0; row < task.rows; ++row) {
    StoreLinearRow<V>(task, sums + row * kLinearColumns, row);
  }
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_LINEAR_H_
