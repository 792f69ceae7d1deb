// Rows of keys and values into pages and back, and the merge of attention states. Bound by memory.
#include <cmath>

#include "kernels/cuda/common/convert.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/state.h"
#include "kernels/cuda/sm80/attention.h"
#include "kernels/cuda/sm80/pages.h"

namespace annulus::cuda {
namespace {

// The bf16 scale of a row of int8, as QuantizeInt8 of kernels/base/dtype.h gives it, for the whole
// warp; 0 and NaN where all codes are 0.
ANNULUS_DEVICE uint32_t Int8Scale(const float* row, int dim) {
  uint32_t largest = 0;
  for (int d = Lane(); d < dim; d += kWarp) largest = Larger(largest, BitsOf(row[d]) & 0x7fffffffu);
  largest = WarpMax(largest);
  if (largest < 27u << 23) return 0;  // below 2^-100
  if (largest >= 0x7f800000u) return 0x7fc0u;
  return NarrowBFloat16(FloatOf(largest) / 127);
}

// One row of one head, by one warp: the values, zeros up to `stride`, and the scale.
ANNULUS_DEVICE void WriteRow(DType dtype, const float* row, int dim, int stride, std::byte* values,
                             std::byte* scale_at) {
  if (dtype != DType::kI8) {
    for (int d = Lane(); d < stride; d += kWarp) {
      StoreElement(dtype, values, d, d < dim ? row[d] : 0);
    }
    return;
  }
  const uint32_t scale = Int8Scale(row, dim);
  const float wide = WidenBFloat16(scale);
  const bool zeros = scale == 0 || scale == 0x7fc0u;
  for (int d = Lane(); d < stride; d += kWarp) {
    // Adding 1.5 * 2^23 rounds to a whole number.
    const float code = zeros || d >= dim ? 0 : (row[d] / wide + 0x1.8p23f) - 0x1.8p23f;
    reinterpret_cast<int8_t*>(values)[d] = static_cast<int8_t>(code);
  }
  if (Lane() == 0) *reinterpret_cast<uint16_t*>(scale_at) = static_cast<uint16_t>(scale);
}

ANNULUS_DEVICE void ReadRow(DType dtype, const std::byte* values, const std::byte* scale_at,
                            float* row, int dim) {
  const float scale =
      dtype == DType::kI8 ? WidenBFloat16(*reinterpret_cast<const uint16_t*>(scale_at)) : 1;
  for (int d = Lane(); d < dim; d += kWarp) row[d] = LoadElement(dtype, values, d) * scale;
}

// Block (row, head) of one warp.
ANNULUS_KERNEL(kWarp, 16) KvAppendKernel(ANNULUS_ARGUMENT KvAppendArguments a) {
  const PageLayout& layout = a.layout;
  const int64_t row = BlockX();
  const int head = static_cast<int>(BlockY());
  const int32_t slot = a.slots[row];
  std::byte* const page = a.pages[row];
  WriteRow(layout.dtype, a.k.row(row) + int64_t{head} * layout.k_dim, layout.k_dim, layout.k_stride,
           page + layout.Key(head, slot), page + layout.KeyScale(head, slot));
  WriteRow(layout.dtype, a.v.row(row) + int64_t{head} * layout.v_dim, layout.v_dim, layout.v_stride,
           page + layout.Value(head, slot), page + layout.ValueScale(head, slot));
}

ANNULUS_KERNEL(kWarp, 16) KvReadKernel(ANNULUS_ARGUMENT KvReadArguments a) {
  const PageLayout& layout = a.layout;
  const int64_t slot = BlockX();
  const int head = static_cast<int>(BlockY());
  ReadRow(layout.dtype, a.page + layout.Key(head, slot), a.page + layout.KeyScale(head, slot),
          a.k.row(slot) + int64_t{head} * layout.k_dim, layout.k_dim);
  ReadRow(layout.dtype, a.page + layout.Value(head, slot), a.page + layout.ValueScale(head, slot),
          a.v.row(slot) + int64_t{head} * layout.v_dim, layout.v_dim);
}

// One warp per row and head.
ANNULUS_KERNEL(kWarp, 16) MergeKernel(ANNULUS_ARGUMENT MergeArguments a) {
  const int64_t i = BlockX();
  const int v_dim = a.into.v_dim;
  const bool sink = a.from_o == nullptr;
  const float from_lse = sink ? a.sink[i % a.into.heads] : a.from_lse[i];
  const MergeWeights weights = WeightsOfMerge(a.into.lse[i], from_lse);
  float* const o = a.into.o + i * v_dim;
  for (int d = Lane(); d < v_dim; d += kWarp) {
    o[d] = Merged(weights, o[d], sink ? 0 : a.from_o[i * v_dim + d]);
  }
  SyncWarp();  // all lanes have read the old lse
  if (Lane() == 0) a.into.lse[i] = weights.lse;
}

// Block (merge, row of its unit) of one warp: merges the row's parts into the item's state.
ANNULUS_KERNEL(kWarp, 16) AttentionMergeKernel(ANNULUS_ARGUMENT AttentionMergeArguments a) {
  const AttentionMerge merge = a.merges[BlockX()];
  const int r = static_cast<int>(BlockY());
  if (r >= merge.row_count) return;
  const AttentionItemView item = a.items[merge.item];
  const int row = merge.row_begin + r;
  const int64_t index = int64_t{row / a.group} * a.heads + merge.kv_head * a.group + row % a.group;
  float* const o = item.o + index * a.v_dim;
  for (int d = Lane(); d < a.v_dim; d += kWarp) o[d] = 0;
  float lse = -FloatOf(0x7f800000u);
  for (int part = 0; part < merge.parts; ++part) {
    const int64_t from = int64_t{merge.partial_begin} + int64_t{part} * merge.row_count + r;
    const MergeWeights weights = WeightsOfMerge(lse, a.partial_lse[from]);
    for (int d = Lane(); d < a.v_dim; d += kWarp) {
      o[d] = Merged(weights, o[d], a.partial_o[from * a.v_dim + d]);
    }
    lse = weights.lse;
  }
  if (Lane() == 0) item.lse[index] = lse;
}

}  // namespace

int LaunchKvAppend(StreamHandle stream, const KvAppendArguments& arguments) {
  const Grid grid{.x = arguments.k.rows, .y = arguments.layout.kv_heads, .threads = kWarp};
  return Launch<KvAppendKernel>(stream, grid, arguments);
}
int LaunchKvRead(StreamHandle stream, const KvReadArguments& arguments) {
  const Grid grid{.x = arguments.k.rows, .y = arguments.layout.kv_heads, .threads = kWarp};
  return Launch<KvReadKernel>(stream, grid, arguments);
}
int LaunchMerge(StreamHandle stream, const MergeArguments& arguments) {
  const Grid grid{.x = arguments.into.rows * arguments.into.heads, .threads = kWarp};
  return Launch<MergeKernel>(stream, grid, arguments);
}

int LaunchAttentionMerge(StreamHandle stream, int64_t merges, int largest_rows,
                         const AttentionMergeArguments& arguments) {
  const Grid grid{.x = merges, .y = largest_rows, .threads = kWarp};
  return Launch<AttentionMergeKernel>(stream, grid, arguments);
}

}  // namespace annulus::cuda
