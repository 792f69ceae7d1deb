#ifndef ANNULUS_KERNELS_CUDA_SM80_ATTENTION_MERGE_H_
#define ANNULUS_KERNELS_CUDA_SM80_ATTENTION_MERGE_H_

// The merge of the states of a unit's parts into the item's state.
#include <cmath>

#include "kernels/cuda/common/state.h"
#include "kernels/cuda/sm80/attention.h"

namespace annulus::cuda {

// The state of one row, and those of its parts.
struct PartsOfRow {
  float* o;  // [v_dim]
  float* lse;
  bool empty;            // the state, whatever stands there
  const float* parts_o;  // of the first part
  const float* parts_lse;
  int64_t step;  // from one part to the next, in rows
  int parts;
};

// Row r of its unit.
ANNULUS_DEVICE PartsOfRow RowOfParts(const AttentionMergeArguments& a, const AttentionMerge& merge,
                                     const AttentionItemView& item, int r) {
  const int row = merge.row_begin + r;
  const int64_t index = int64_t{row / a.group} * a.heads + merge.kv_head * a.group + row % a.group;
  const int64_t from = int64_t{merge.partial_begin} + r;
  return {item.o + index * a.v_dim, item.lse + index, !item.merges, a.partial_o + from * a.v_dim,
          a.partial_lse + from,     merge.row_count,  merge.parts};
}

// The maximum over the lanes of a warp; NaN does not count.
ANNULUS_DEVICE float WarpLargest(float value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = fmaxf(value, ShuffleXor(value, mask));
  return value;
}

// Columns of the row, kWidth neighbours at a time, by one warp. `own` is the weight of the state
// before, and `total` the lse that weights are relative to. Loads of kAtOnce parts overlap.
template <int kWidth>
ANNULUS_DEVICE void MergeColumns(const PartsOfRow& row, int v_dim, float own, float total) {
  constexpr int kAtOnce = 8;
  struct alignas(4 * kWidth) Columns {
    float values[kWidth];
  };
  for (int begin = 0; begin < v_dim; begin += kWarp * kWidth) {
    const int d = begin + Lane() * kWidth;
    const bool present = d < v_dim;
    Columns sum{};
    if (present && own != 0) {
      sum = *reinterpret_cast<const Columns*>(row.o + d);
      for (float& value : sum.values) value *= own;
    }
    for (int first = 0; first < row.parts; first += kAtOnce) {
      Columns parts[kAtOnce];
      float weights[kAtOnce];
#pragma unroll
      for (int p = 0; p < kAtOnce; ++p) {
        const int64_t from = Smaller(first + p, row.parts - 1) * row.step;
        weights[p] = row.parts_lse[from];
        parts[p] =
            present ? *reinterpret_cast<const Columns*>(row.parts_o + from * v_dim + d) : Columns{};
      }
#pragma unroll
      for (int p = 0; p < kAtOnce; ++p) {
        const float weight = first + p < row.parts ? expf(weights[p] - total) : 0;
#pragma unroll
        for (int e = 0; e < kWidth; ++e) {
          sum.values[e] += weight == 0 ? 0 : weight * parts[p].values[e];
        }
      }
    }
    if (present) *reinterpret_cast<Columns*>(row.o + d) = sum;
  }
}

// Merges the parts into the state, by one warp. A side of weight 0 is dropped, even if it is NaN.
ANNULUS_DEVICE void MergeParts(const PartsOfRow& row, int v_dim) {
  const float infinity = FloatOf(0x7f800000u);
  const float before = row.empty ? -infinity : *row.lse;
  float maximum = before;
  for (int p = Lane(); p < row.parts; p += kWarp) {
    maximum = fmaxf(maximum, row.parts_lse[p * row.step]);
  }
  maximum = WarpLargest(maximum);
  const float base = maximum == -infinity ? 0 : maximum;
  float sum = Lane() == 0 ? expf(before - base) : 0;
  for (int p = Lane(); p < row.parts; p += kWarp) sum += expf(row.parts_lse[p * row.step] - base);
  sum = WarpSum(sum);
  const float lse = sum == 0 ? -infinity : base + logf(sum);
  const float total = sum == 0 ? 0 : lse;
  const float own = expf(before - total);
  if (v_dim % 4 == 0) {
    MergeColumns<4>(row, v_dim, own, total);
  } else {
    MergeColumns<1>(row, v_dim, own, total);
  }
  SyncWarp();  // all lanes have read the old lse
  if (Lane() == 0) *row.lse = lse;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ATTENTION_MERGE_H_
