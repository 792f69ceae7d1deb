#ifndef ANNULUS_KERNELS_CUDA_SM80_ATTENTION_KERNEL_H_
#define ANNULUS_KERNELS_CUDA_SM80_ATTENTION_KERNEL_H_

// Attention over pages by the tensor cores of compute capability 8.0 and up. Source:
// FlashAttention-2 (Dao 2023): online softmax, scores and output in registers, and asynchronous
// copies that fetch the next tile of keys and values while the current one is attended.
//
// A block computes one AttentionUnit. Tiles of kKeys slots never cross a page. Scores, weights and
// sums are float32; queries and weights are rounded to the operand type T. 8-bit codes are widened
// in registers. For them, the depth of query and key is permuted within each 16 elements
// (PermutedDepth), and so are the columns of the output (OutputColumn), so that a lane's codes are
// contiguous. The scales of int8 multiply scores and weights, in float32.
//
// The order in which a row is summed depends on the shape and on its unit (the first page, and how
// many pages a part has): see OpTable::row_invariant.
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/sm80/attention_prefill.h"
#include "kernels/cuda/sm80/attention_tile.h"

namespace annulus::cuda {

// Starts the copies of a tile; absent slots and columns become 0.
template <class C>
ANNULUS_DEVICE void StartTile(const PageLayout& layout, int kv_head, const KeyTile& tile,
                              AttentionShared<C>& shared, int stage) {
  constexpr int kChunks = C::kDim * C::kElement / 16;
  for (int i = ThreadIndex(); i < C::kKeys * kChunks; i += C::kThreads) {
    const int slot = i / kChunks;
    const int chunk = i % kChunks;
    const bool present = slot < tile.count;
    const std::byte* const key = tile.page + layout.Key(kv_head, tile.slot + slot) + chunk * 16;
    const std::byte* const value = tile.page + layout.Value(kv_head, tile.slot + slot) + chunk * 16;
    AsyncCopy16(&shared.keys[stage][slot][chunk * 16], key,
                present && chunk * 16 < layout.k_stride * C::kElement);
    AsyncCopy16(&shared.values[stage][slot][chunk * 16], value,
                present && chunk * 16 < layout.v_stride * C::kElement);
  }
  if (C::kNarrow && layout.dtype == DType::kI8) {
    constexpr int kScaleChunks = C::kKeys / 8;
    for (int i = ThreadIndex(); i < kScaleChunks; i += C::kThreads) {
      const bool present = i * 8 < tile.count;
      AsyncCopy16(shared.OfKeys(stage) + i * 8,
                  tile.page + layout.KeyScale(kv_head, tile.slot + i * 8), present);
      AsyncCopy16(shared.OfValues(stage) + i * 8,
                  tile.page + layout.ValueScale(kv_head, tile.slot + i * 8), present);
    }
  }
  AsyncCommit();
}

template <class C>
ANNULUS_DEVICE void LoadQuery(const AttentionArguments& a, const AttentionUnit& unit,
                              const AttentionItemView& item, AttentionShared<C>& shared) {
  constexpr int kPairs = C::kDim / 2;
  for (int i = ThreadIndex(); i < C::kRows * kPairs; i += C::kThreads) {
    const int r = i / kPairs;
    const int d = i % kPairs * 2;
    float low = 0;
    float high = 0;
    if (r < unit.row_count) {
      const int row = unit.row_begin + r;
      const int head = unit.kv_head * a.group + row % a.group;
      const float* const query =
          item.query + row / a.group * item.query_stride + int64_t{head} * a.layout.k_dim;
      if (d < a.layout.k_dim) low = query[d];
      if (d + 1 < a.layout.k_dim) high = query[d + 1];
    }
    const uint32_t pair = Pack(typename C::Operand{}, low, high);
    const int at = C::kNarrow ? PermutedDepth(d) : d;
    *reinterpret_cast<uint32_t*>(&shared.query[r][at]) = pair;
  }
}

template <class C>
ANNULUS_DEVICE void StoreRows(const AttentionArguments& a, const AttentionUnit& unit,
                              const AttentionItemView& item, int first_row,
                              const RowSums<C>& rows) {
#pragma unroll
  for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = first_row + 16 * i + 8 * h + Lane() / 4;
      const RowStore store =
          StoreOf(a, unit, item, r, NaturalOf(rows.maximum[i][h]), rows.sum[i][h]);
      SyncWarp();
      if (r >= unit.row_count) continue;
#pragma unroll
      for (int n = 0; n < C::kDim / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int d = OutputColumn<C>(n, e);
          if (d < a.layout.v_dim) store.Put(d, rows.o[i][n][2 * h + e]);
        }
      }
      if (Lane() % 4 == 0) *store.lse = store.new_lse;
    }
  }
}

// The warps that divided the keys among themselves add up their sums, then all threads store.
template <class C>
ANNULUS_DEVICE void ExchangeRows(const AttentionArguments& a, const AttentionUnit& unit,
                                 const AttentionItemView& item, int key_warp,
                                 const RowSums<C>& rows, AttentionExchange<C>& exchange) {
  static_assert(C::kRowWarps == 1 && C::kRowTiles == 1);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = 8 * h + Lane() / 4;
#pragma unroll
    for (int n = 0; n < C::kDim / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        exchange.o[key_warp][r][OutputColumn<C>(n, e)] = rows.o[0][n][2 * h + e];
      }
    }
    if (Lane() % 4 == 0) {
      exchange.maximum[key_warp][r] = rows.maximum[0][h];
      exchange.sum[key_warp][r] = rows.sum[0][h];
    }
  }
  SyncThreads();
  for (int r = WarpIndex(); r < unit.row_count; r += C::kKeyWarps) {
    float maximum = exchange.maximum[0][r];
    for (int w = 1; w < C::kKeyWarps; ++w) maximum = fmaxf(maximum, exchange.maximum[w][r]);
    const float base = maximum == -FloatOf(0x7f800000u) ? 0 : maximum;
    float weight[C::kKeyWarps];
    float sum = 0;
#pragma unroll
    for (int w = 0; w < C::kKeyWarps; ++w) {
      weight[w] = Exp2(exchange.maximum[w][r] - base);
      sum += weight[w] * exchange.sum[w][r];
    }
    const RowStore store = StoreOf(a, unit, item, r, NaturalOf(maximum), sum);
    SyncWarp();
    for (int d = Lane(); d < a.layout.v_dim; d += kWarp) {
      float o = 0;
#pragma unroll
      for (int w = 0; w < C::kKeyWarps; ++w) o += weight[w] * exchange.o[w][r][d];
      store.Put(d, o);
    }
    if (Lane() == 0) *store.lse = store.new_lse;
  }
}

template <class C>
ANNULUS_KERNEL(C::kThreads, 1)
AttentionKernel(ANNULUS_ARGUMENT AttentionArguments a) {
  auto& shared = *reinterpret_cast<AttentionShared<C>*>(SharedMemory());
  const AttentionUnit unit = a.units[BlockX()];
  const AttentionItemView item = a.items[unit.item];
  const int first_row = WarpIndex() % C::kRowWarps * 16 * C::kRowTiles;
  const int key_warp = WarpIndex() / C::kRowWarps;
  const int per_page = (a.layout.page_tokens + C::kKeys - 1) / C::kKeys;
  const int tiles = (unit.page_end - unit.page_begin) * per_page;
  if (tiles > 0) {
    StartTile<C>(a.layout, unit.kv_head, TileAt<C::kKeys>(a, unit, item, 0), shared, 0);
  }
  LoadQuery<C>(a, unit, item, shared);
  RowSums<C> rows;
#pragma unroll
  for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = first_row + 16 * i + 8 * h + Lane() / 4;
      rows.maximum[i][h] = -FloatOf(0x7f800000u);
      rows.position[i][h] =
          r < unit.row_count ? item.positions[(unit.row_begin + r) / a.group] : -1;
    }
  }
  const int64_t lowest = item.positions[unit.row_begin / a.group];
  const int64_t highest = item.positions[(unit.row_begin + unit.row_count - 1) / a.group];
  for (int t = 0; t < tiles; ++t) {
    const int stage = t % C::kStages;
    if (t + 1 < tiles) {
      StartTile<C>(a.layout, unit.kv_head, TileAt<C::kKeys>(a, unit, item, t + 1), shared,
                   (t + 1) % C::kStages);
      AsyncWait<1>();
    } else {
      AsyncWait<0>();
    }
    SyncThreads();
    AttendTile<C>(a, unit, item, TileAt<C::kKeys>(a, unit, item, t), lowest, highest, first_row,
                  key_warp * C::kWarpKeys, stage, shared, rows);
    SyncThreads();  // before the next copies overwrite the tile
  }
#pragma unroll
  for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      rows.sum[i][h] += ShuffleXor(rows.sum[i][h], 1);
      rows.sum[i][h] += ShuffleXor(rows.sum[i][h], 2);
    }
  }
  if constexpr (C::kKeyWarps == 1) {
    StoreRows<C>(a, unit, item, first_row, rows);
  } else {
    static_assert(sizeof(AttentionExchange<C>) <= sizeof(shared.keys) + sizeof(shared.values));
    ExchangeRows<C>(a, unit, item, key_warp, rows,
                    *reinterpret_cast<AttentionExchange<C>*>(&shared.keys));
  }
}

template <class C>
int LaunchAttention(StreamHandle stream, int64_t units, const AttentionArguments& arguments) {
  const Grid grid{.x = units, .threads = C::kThreads, .shared_bytes = sizeof(AttentionShared<C>)};
  return Launch<AttentionKernel<C>>(stream, grid, arguments);
}

// Calls `use` with the Config for few rows of a dimension.
template <class T, bool kNarrow, class Use>
auto WithAttentionConfig(int dim, const Use& use) {
  if (dim <= 64) return use(AttentionConfig<T, kNarrow, 64, 1, 1, 4, 64>{});
  if (dim <= 128) return use(AttentionConfig<T, kNarrow, 128, 1, 1, 4, 64>{});
  return use(AttentionConfig<T, kNarrow, 256, 1, 1, 4, 64>{});
}

template <class T, bool kNarrow>
int LaunchAttentionOf(StreamHandle stream, AttentionShape shape, int dim, int64_t units,
                      const AttentionArguments& a) {
  if (shape == AttentionShape::kPrefill) {
    return WithPrefillConfig<T, kNarrow>(
        dim, [&](auto config) { return LaunchPrefill<decltype(config)>(stream, units, a); });
  }
  return WithAttentionConfig<T, kNarrow>(
      dim, [&](auto config) { return LaunchAttention<decltype(config)>(stream, units, a); });
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ATTENTION_KERNEL_H_
