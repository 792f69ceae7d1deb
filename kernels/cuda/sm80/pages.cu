// Rows of keys and values into pages and back, and the merge of attention states. Bound by memory.
#include <cmath>

#include "kernels/cuda/common/convert.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/overlap.h"
#include "kernels/cuda/common/state.h"
#include "kernels/cuda/sm80/attention.h"
#include "kernels/cuda/sm80/attention_merge.h"
#include "kernels/cuda/sm80/merge_tree.h"
#include "kernels/cuda/sm80/pages.h"
#include "kernels/cuda/sm80/shard_merge.h"

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

ANNULUS_DEVICE void AppendRow(const KvAppendArguments& a, int64_t row, int head) {
  const PageLayout& layout = a.layout;
  const int32_t slot = a.slots[row];
  std::byte* const page = a.pages[row];
  WriteRow(layout.dtype, a.k.row(row) + int64_t{head} * layout.k_dim, layout.k_dim, layout.k_stride,
           page + layout.Key(head, slot), page + layout.KeyScale(head, slot));
  WriteRow(layout.dtype, a.v.row(row) + int64_t{head} * layout.v_dim, layout.v_dim, layout.v_stride,
           page + layout.Value(head, slot), page + layout.ValueScale(head, slot));
}

ANNULUS_DEVICE void ReadSlot(const KvReadArguments& a, int64_t slot, int head) {
  const PageLayout& layout = a.layout;
  ReadRow(layout.dtype, a.page + layout.Key(head, slot), a.page + layout.KeyScale(head, slot),
          a.k.row(slot) + int64_t{head} * layout.k_dim, layout.k_dim);
  ReadRow(layout.dtype, a.page + layout.Value(head, slot), a.page + layout.ValueScale(head, slot),
          a.v.row(slot) + int64_t{head} * layout.v_dim, layout.v_dim);
}

// Reads where `read` has a page, and else appends.
struct PageRowsArguments {
  KvAppendArguments append;
  KvReadArguments read;
};

// Block (row or slot, head) of one warp.
ANNULUS_KERNEL(kWarp, 16) PageRowsKernel(ANNULUS_ARGUMENT PageRowsArguments a) {
  LetNextBegin();
  WaitForEarlier();
  const int head = static_cast<int>(BlockY());
  if (a.read.page == nullptr) {
    AppendRow(a.append, BlockX(), head);
  } else {
    ReadSlot(a.read, BlockX(), head);
  }
}

// Merges the states of row i, by one warp.
ANNULUS_DEVICE void MergeStates(const MergeArguments& a, int64_t i) {
  const int v_dim = a.into.v_dim;
  float* const o = a.into.o + i * v_dim;
  const float* const from = a.from_o == nullptr ? nullptr : a.from_o + i * v_dim;
  const float from_lse = a.from_o == nullptr ? a.sink[i % a.into.heads] : a.from_lse[i];
  const MergeWeights weights = WeightsOfMerge(a.into.lse[i], from_lse);
  for (int d = Lane(); d < v_dim; d += kWarp) {
    o[d] = Merged(weights, o[d], from == nullptr ? 0 : from[d]);
  }
  SyncWarp();  // all lanes have read the old lse
  if (Lane() == 0) a.into.lse[i] = weights.lse;
}

// The parts of row r of a unit in the tree of shards, then into the row's state if that has one.
ANNULUS_DEVICE void MergeShards(const ShardMergeArguments& shards, const ShardMerge& merge, int r) {
  const AttentionMergeArguments& a = shards.attention;
  const PartsOfRow row = RowOfParts(a, merge.unit, a.items[merge.unit.item], r);
  const RowParts parts{row.parts_o, row.parts_lse, row.step, shards.leaves + merge.first_leaf,
                       row.parts};
  float lse = 0;
#pragma unroll 1
  for (int first = Lane(); first - Lane() < a.v_dim; first += StateColumns::kColumns * kWarp) {
    StateColumns merged = MergedParts(parts, first, a.v_dim);
    if (!row.empty) {
      StateColumns into = LoadColumns(row.o, *row.lse, first, a.v_dim);
      into.Merge(merged);
      merged = into;
    }
#pragma unroll
    for (int n = 0; n < StateColumns::kColumns; ++n) {
      const int d = first + n * kWarp;
      if (d < a.v_dim) row.o[d] = merged.o[n];
    }
    lse = merged.lse;
  }
  SyncWarp();  // all lanes have read the old lse
  if (Lane() == 0) *row.lse = lse;
}

// Merges attention's parts where `parts` or `shards` has any, and else states.
struct AllMergesArguments {
  MergeArguments states;
  AttentionMergeArguments parts;
  ShardMergeArguments shards;
};

// Block (row) or (merge, row of its unit) of one warp.
ANNULUS_KERNEL(kWarp, 16) MergeKernel(ANNULUS_ARGUMENT AllMergesArguments a) {
  LetNextBegin();
  WaitForEarlier();
  const int r = static_cast<int>(BlockY());
  if (a.parts.merges != nullptr) {
    const AttentionMerge merge = a.parts.merges[BlockX()];
    if (r >= merge.row_count) return;
    MergeParts(RowOfParts(a.parts, merge, a.parts.items[merge.item], r), a.parts.v_dim);
  } else if (a.shards.merges != nullptr) {
    const ShardMerge merge = a.shards.merges[BlockX()];
    if (r < merge.unit.row_count) MergeShards(a.shards, merge, r);
  } else {
    MergeStates(a.states, BlockX());
  }
}

}  // namespace

int LaunchKvAppend(StreamHandle stream, const KvAppendArguments& arguments) {
  const Grid grid{.x = arguments.k.rows, .y = arguments.layout.kv_heads, .threads = kWarp};
  return Launch<PageRowsKernel>(stream, Overlapping(stream, grid),
                                PageRowsArguments{arguments, {}});
}
int LaunchKvRead(StreamHandle stream, const KvReadArguments& arguments) {
  const Grid grid{.x = arguments.k.rows, .y = arguments.layout.kv_heads, .threads = kWarp};
  return Launch<PageRowsKernel>(stream, Overlapping(stream, grid),
                                PageRowsArguments{{}, arguments});
}
int LaunchMerge(StreamHandle stream, const MergeArguments& arguments) {
  const Grid grid{.x = arguments.into.rows * arguments.into.heads, .threads = kWarp};
  return Launch<MergeKernel>(stream, Overlapping(stream, grid),
                             AllMergesArguments{arguments, {}, {}});
}

const void* AnyKernel() { return AddressOf<PageRowsKernel, PageRowsArguments>(); }

int LaunchAttentionMerge(StreamHandle stream, int64_t merges, int largest_rows,
                         const AttentionMergeArguments& arguments) {
  const Grid grid{.x = merges, .y = largest_rows, .threads = kWarp};
  return Launch<MergeKernel>(stream, Overlapping(stream, grid),
                             AllMergesArguments{{}, arguments, {}});
}

int LaunchShardMerge(StreamHandle stream, int64_t merges, int largest_rows,
                     const ShardMergeArguments& arguments) {
  const Grid grid{.x = merges, .y = largest_rows, .threads = kWarp};
  return Launch<MergeKernel>(stream, Overlapping(stream, grid),
                             AllMergesArguments{{}, {}, arguments});
}

}  // namespace annulus::cuda
