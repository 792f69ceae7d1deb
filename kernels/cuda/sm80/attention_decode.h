#ifndef ANNULUS_KERNELS_CUDA_SM80_ATTENTION_DECODE_H_
#define ANNULUS_KERNELS_CUDA_SM80_ATTENTION_DECODE_H_

// Attention of few rows (AttentionShape::kDecode), bound by reading keys and values. Needs compute
// capability 8.0.
//
// A block computes one AttentionUnit. Its warps share nothing until they add up their sums at the
// end: each takes every kWarps-th group of 16 keys, which never crosses a page, and has a ring of
// such groups in shared memory. A lane copies just those 16 bytes that it reads itself, in the
// order of the products' operands, so there are no barriers and no bank conflicts, and every
// sector is asked for once. That order comes from permuting depth and columns:
//   scores [rows][keys] = queries times keys. A lane's depth of a chunk of 16 bytes is contiguous
//   (DepthOf), for queries too.
//   output [columns][rows] = values times weights. A lane's columns are contiguous (ColumnOf); the
//   weights of a lane are where the scores left them.
//
// Scores, weights and sums are float32; queries and weights are rounded to the operand type. Codes
// of 8 bits become f16, in which they are exact, and queries are first divided by a power of 2, so
// that they neither overflow nor get lost. Values of int8 become bf16, as their weights carry
// scales of any size.
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/overlap.h"
#include "kernels/cuda/sm80/attention_decode_group.h"
#include "kernels/cuda/sm80/attention_decode_ring.h"
#include "kernels/cuda/sm80/attention_merge.h"

namespace annulus::cuda {

template <class C, int kHalves>
ANNULUS_DEVICE void AttendGroups(const AttentionArguments& a, const AttentionUnit& unit,
                                 const AttentionItemView& item, DecodeShared<C>& shared,
                                 DecodeRows<C, kHalves>& rows) {
  const PageLayout& layout = a.layout;
  const int all = (unit.page_end - unit.page_begin) * (layout.page_tokens / C::kKeys);
  const int groups = (all - WarpIndex() + C::kWarps - 1) / C::kWarps;
  const int64_t keys = layout.Key(unit.kv_head, 0);
  const int64_t values = layout.Value(unit.kv_head, 0);
  const bool scaled = C::kNarrow && layout.dtype == DType::kI8;
  GroupCursor<C> cursor(a, unit, item);
  // Two groups ahead of the copies, as the addresses of their pages have to arrive first.
  auto next = cursor.Next();
  auto after = cursor.Next();
  const auto start_keys = [&](int stage) {
    auto& ring = shared.slots[WarpIndex()][stage];
    const DecodeGroup group{next.page.data + item.page_offset, next.page.first_position + next.slot,
                            Smaller(next.page.tokens - next.slot, C::kKeys)};
    if (Lane() == 0) shared.groups[WarpIndex()][stage] = group;
    if (group.count > 0) [[likely]] {
      const int row = layout.k_stride * C::kElement;
      StartCopies<C>(group.page + keys + next.slot * row, row, group.count, ring[0],
                     [](int key) { return KeyTurn<C>(key); });
      if (scaled) {
        StartScales(group.page + layout.KeyScale(unit.kv_head, next.slot), group.count,
                    shared.Scales(stage, 0));
      }
    }
    AsyncCommit();
  };
  const auto start_values = [&](int stage) {
    auto& ring = shared.slots[WarpIndex()][stage];
    const std::byte* const page = next.page.data + item.page_offset;
    const int count = Smaller(next.page.tokens - next.slot, C::kKeys);
    if (count > 0) [[likely]] {
      const int row = layout.v_stride * C::kElement;
      StartCopies<C>(page + values + next.slot * row, row, count, ring[1],
                     [](int key) { return ValueTurn(key); });
      if (scaled) {
        StartScales(page + layout.ValueScale(unit.kv_head, next.slot), count,
                    shared.Scales(stage, 1));
      }
    }
    AsyncCommit();
    next = after;
    after = cursor.Next();
  };
#pragma unroll 1
  for (int stage = 0; stage < C::kStages; ++stage) {
    start_keys(stage);
    start_values(stage);
  }
  LoadRows<C, kHalves>(a, unit, item, rows);
  const int64_t lowest = item.positions[unit.row_begin / a.group];
  const int64_t highest = item.positions[(unit.row_begin + unit.row_count - 1) / a.group];
  // A group that begins between these is seen by every row.
  const auto plain_begin =
      static_cast<int32_t>(a.window > 0 ? Larger<int64_t>(highest - a.window + 1, 0) : 0);
  const auto plain_end =
      static_cast<int32_t>(item.branch_count > 0 || a.soft_cap > 0 ? -1 : lowest - C::kKeys + 1);
  int stage = 0;
#pragma unroll 1
  for (int n = 0; n < groups; ++n) {
    AsyncWait<2 * C::kStages - 1>();
    SyncWarp();
    const DecodeGroup group = shared.groups[WarpIndex()][stage];
    const auto between = [&](const auto& weigh) {
      SyncWarp();  // all lanes have read the keys
      start_keys(stage);
      weigh();
      AsyncWait<2 * C::kStages - 1>();
      SyncWarp();
    };
    if (group.count == C::kKeys && group.first >= plain_begin && group.first <= plain_end)
        [[likely]] {
      WithDType<C>(layout.dtype, [&](auto dtype) {
        AttendPlain<C, dtype(), kHalves>(group, stage, shared, rows, between);
      });
    } else {
      const int64_t last = int64_t{group.first} + group.count - 1;
      const bool hidden = last > lowest || (a.window > 0 && group.first <= highest - a.window) ||
                          item.branch_count > 0;
      if (group.count <= 0 || group.first > highest ||
          (a.window > 0 && last <= lowest - a.window)) {
        between([] {});
      } else {
        AttendMasked<C, kHalves>(a, unit, item, group, hidden, stage, shared, rows, between);
      }
    }
    SyncWarp();  // all lanes have read the values
    start_values(stage);
    stage = stage + 1 == C::kStages ? 0 : stage + 1;
  }
  AsyncWait<0>();
}

// The warps add up their sums, then all threads store.
template <class C, int kHalves>
ANNULUS_DEVICE void ShareRows(const AttentionUnit& unit, const DecodeRows<C, kHalves>& rows,
                              DecodeShared<C>& shared) {
  auto& o = shared.o[WarpIndex()];
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    const int row = 8 * h + Lane() / 4;
    float sum = rows.sum[h];
    sum += ShuffleXor(sum, 1);
    sum += ShuffleXor(sum, 2);
    if (Lane() % 4 == 0) {
      shared.maximum[WarpIndex()][row] = rows.maximum[h] - C::kHeadroom;
      shared.sum[WarpIndex()][row] = sum;
    }
    const int even = 8 * h + Lane() % 4 * 2;
#pragma unroll
    for (int n = 0; n < C::kTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (even < unit.row_count) o[even][ColumnOf<C>(n) + e] = rows.o[n][h][2 * e];
        if (even + 1 < unit.row_count) o[even + 1][ColumnOf<C>(n) + e] = rows.o[n][h][2 * e + 1];
      }
    }
  }
}

template <class C>
ANNULUS_DEVICE void StoreSharedRows(const AttentionArguments& a, const AttentionUnit& unit,
                                    const AttentionItemView& item, const DecodeShared<C>& shared) {
  for (int r = WarpIndex(); r < unit.row_count; r += C::kWarps) {
    float maximum = shared.maximum[0][r];
    for (int w = 1; w < C::kWarps; ++w) maximum = fmaxf(maximum, shared.maximum[w][r]);
    const float base = maximum == -FloatOf(0x7f800000u) ? 0 : maximum;
    float weight[C::kWarps];
    float sum = 0;
#pragma unroll
    for (int w = 0; w < C::kWarps; ++w) {
      weight[w] = Exp2(shared.maximum[w][r] - base);
      sum += weight[w] * shared.sum[w][r];
    }
    const RowStore store = StoreOf(a, unit, item, r, NaturalOf(maximum), sum);
    SyncWarp();
    for (int d = Lane(); d < a.layout.v_dim; d += kWarp) {
      float o = 0;
#pragma unroll
      for (int w = 0; w < C::kWarps; ++w) o += weight[w] * shared.o[w][r][d];
      store.Put(d, o);
    }
    if (Lane() == 0) *store.lse = store.new_lse;
  }
}

// Merges the unit's parts if this block is the last of them to be done. The order of the merge does
// not depend on which block that is.
template <class C>
ANNULUS_DEVICE void MergeIfLast(const AttentionArguments& a, const AttentionUnit& unit,
                                const AttentionItemView& item) {
  const AttentionMerge merge = a.merges[unit.merge];
  SyncThreads();  // all rows have been stored
  const bool last = ThreadIndex() == 0 && Arrivals(a.arrivals + unit.merge) == merge.parts;
  if (!SyncThreadsOr(last)) return;
  const AttentionMergeArguments parts{a.merges,       a.items,     a.heads,      a.group,
                                      a.layout.v_dim, a.partial_o, a.partial_lse};
  for (int r = WarpIndex(); r < merge.row_count; r += C::kWarps) {
    MergeParts(RowOfParts(parts, merge, item, r), a.layout.v_dim);
  }
}

template <class C, int kHalves>
ANNULUS_DEVICE void AttendUnit(const AttentionArguments& a, const AttentionUnit& unit,
                               const AttentionItemView& item, DecodeShared<C>& shared) {
  DecodeRows<C, kHalves> rows;
  AttendGroups<C, kHalves>(a, unit, item, shared, rows);
  SyncThreads();  // the rings end, the sums take their place
  ShareRows<C, kHalves>(unit, rows, shared);
}

template <class C>
ANNULUS_KERNEL(C::kThreads, kDecodeBlocks)
DecodeAttentionKernel(ANNULUS_ARGUMENT AttentionArguments a) {
  LetNextBegin();
  WaitForEarlier();
  auto& shared = *reinterpret_cast<DecodeShared<C>*>(SharedMemory());
  const AttentionUnit unit = a.units[BlockX()];
  const AttentionItemView item = a.items[unit.item];
  if (unit.row_count <= 8) {
    AttendUnit<C, 1>(a, unit, item, shared);
  } else {
    AttendUnit<C, 2>(a, unit, item, shared);
  }
  SyncThreads();
  StoreSharedRows<C>(a, unit, item, shared);
  if (unit.merge >= 0) MergeIfLast<C>(a, unit, item);
}

template <class C>
int LaunchDecodeAttention(StreamHandle stream, int64_t units, const AttentionArguments& arguments) {
  const Grid grid{.x = units, .threads = C::kThreads, .shared_bytes = sizeof(DecodeShared<C>)};
  return Launch<DecodeAttentionKernel<C>>(stream, Overlapping(stream, grid), arguments);
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ATTENTION_DECODE_H_
