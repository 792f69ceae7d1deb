#ifndef ANNULUS_KERNELS_OPS_ATTENTION_H_
#define ANNULUS_KERNELS_OPS_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/ops/shards.h"

namespace annulus {

// The shape of the keys and values that one layer stores in one page. Each OpTable chooses its own
// byte order, which is opaque above kernels/: only that table's kv_page_bytes, kv_append, kv_read
// and attention understand it. `dtype` may be any type but the grouped ones; values are rounded
// once, when they are written (see kernels/base/dtype.h). With kI8 the page also holds bf16 scales:
// for every token and kv head, one for K and one for V.
struct KvPageShape {
  int page_tokens = 64;  // multiple of 16
  int kv_heads = 0;
  int k_dim = 0;
  int v_dim = 0;
  DType dtype = DType::kF32;
};

// Writes rows of K and V into pages: row r goes to slot `slots[r]` of page `pages[r]`.
struct KvAppendParams {
  KvPageShape shape;
  ConstMatrixView k;                  // [rows, kv_heads * k_dim], already rotated
  ConstMatrixView v;                  // [rows, kv_heads * v_dim]
  std::span<std::byte* const> pages;  // [rows], one layer's part of the page
  std::span<const int32_t> slots;     // [rows], 0 <= slot < page_tokens
};

// The inverse of KvAppendParams for one page: reads its first `tokens` slots as float32.
struct KvReadParams {
  KvPageShape shape;
  const std::byte* page = nullptr;
  int tokens = 0;
  MatrixView k;  // [tokens, kv_heads * k_dim]
  MatrixView v;  // [tokens, kv_heads * v_dim]
};

// One layer's part of a page that holds positions [first_position, first_position + tokens).
// first_position is a multiple of page_tokens.
struct KvPageView {
  const std::byte* data = nullptr;
  int32_t first_position = 0;
  int32_t tokens = 0;
};

// The pages that each query block attends, separately for each head group. If `full`, every block
// attends all pages that the mask allows: dense causal attention. Otherwise block b of group g
// attends pages[offsets[g * blocks + b] .. offsets[g * blocks + b + 1]). These are ascending
// indices into the item's `pages`; the mask still applies inside each page.
struct BlockLists {
  bool full = true;
  int head_groups = 1;  // divides kv_heads; a group has kv_heads / head_groups
  std::span<const int32_t> query_block_rows;  // [blocks + 1], row offsets, ascending from 0 to rows
  std::span<const int32_t> offsets;           // [head_groups * blocks + 1]
  std::span<const int32_t> pages;
};

// Partial attention over the keys attended so far. `o` is the softmax-weighted mean of V; `lse` is
// the natural log of the sum of the exponentiated scores. Before any key, o = 0 and lse =
// -infinity: the empty state.
// o: [rows, heads * v_dim], lse: [rows, heads]; both dense float32.
struct AttentionState {
  float* o = nullptr;
  float* lse = nullptr;
  int64_t rows = 0;
  int heads = 0;
  int v_dim = 0;
};

// One branch of dilated attention (LongNet, Ding et al. 2023, arXiv 2307.02486, section 3).
// Positions are cut into segments of `segment` tokens. In each segment, query head h attends only
// from and to the positions p with p mod rate = h mod rate. `segment` is a multiple of `rate` and
// of page_tokens.
struct DilatedBranch {
  int32_t segment = 0;
  int32_t rate = 1;

  // Whether query head `head` at position `row` keeps the key at position `key`. Ignores the causal
  // mask.
  bool Keeps(int head, int64_t row, int64_t key) const {
    return row / segment == key / segment && row % rate == head % rate && key % rate == head % rate;
  }

  bool operator==(const DilatedBranch&) const = default;
};

// Rows of one sequence that attend some of its pages. The row at position i attends key j if j <= i
// and, when window > 0, i - window < j.
//
// With branches, a key counts once for each branch that keeps it, so each branch has the weight of
// its softmax denominator. `blocks` must then be full and window 0. A row that no branch keeps gets
// the empty state.
struct AttentionItem {
  ConstMatrixView query;               // [rows, heads * k_dim], already rotated
  std::span<const int32_t> positions;  // [rows], ascending
  std::span<const KvPageView> pages;   // ascending first_position; gaps are allowed
  // Bytes added to the address of every page. All layers of a step share one list of views into the
  // first layer; each layer sets the distance from there to its own part of the page.
  size_t page_offset = 0;
  BlockLists blocks;
  // Attends only the pages whose leaf (shards.h) lies in [first_leaf, first_leaf + leaves); if
  // `leaves` is 0, all pages.
  int first_leaf = 0;
  int leaves = 0;
  std::span<const DilatedBranch> branches;  // if empty, every key counts once
  AttentionState state;
  // If false, the op overwrites `state`. If true, `state` already holds the rows' attention to
  // other keys, and the op merges its result into it. That is cheaper than a separate merge_state
  // and gives the same bits (within rounding if the table is not row_invariant). Items of one call
  // must not share a state.
  bool merges = false;
};

// Whether the item attends the pages of `leaf`.
inline bool Attends(const AttentionItem& item, int leaf) {
  return item.leaves == 0 || (leaf >= item.first_leaf && leaf < item.first_leaf + item.leaves);
}

// Positions per shard in one span: see the order of summation below.
inline constexpr int32_t kAttentionSpan = 8192;

// What a table derives from the items of attention calls, such as the order of their pages. Only
// that table can read it.
class AttentionLayout {
 public:
  virtual ~AttentionLayout() = default;
};

// Attention of queries over paged keys and values with grouped heads: query head h reads kv head h
// / (heads / kv_heads). The score of a key is scale * (query . key), then the soft cap (Gemma 2,
// Gemma Team 2024). Source: FlashAttention (Dao et al. 2022), online softmax (Milakov and
// Gimelshein 2018).
//
// Order of summation. A row's pages are summed shard by shard, and the shards are merged in the
// tree of shards.h. Within a shard, pages are taken in ascending order, in spans of absolute
// positions [n * s, (n + 1) * s) with s = shards * kAttentionSpan. The state of each span is
// finished, then merged into the shard's, in ascending order. With branches, a shard's state is
// that of the first branch, merged with those of the other branches in their order.
//
// A row's result therefore depends only on its own query, position and pages: never on the other
// rows, the number of threads, or where a chunk began. If an item's pages are those of one subtree,
// its result is that subtree's state; merging the states of two siblings gives the same bits as one
// item with the pages of both. Tables that are not row_invariant (registry.h: "cuda/sm90") may
// split keys differently; for them all of this holds within rounding.
//
// Precision. Scores, weights and sums are float32; subnormal numbers may count as 0. If pages are
// no more precise than bf16 (kBF16 and the 8-bit types), a table may round queries, weights and
// dequantised values to bf16 before it multiplies; its exponentials then have a relative error of
// up to 1.2e-4. "cpu/avx512-bf16", "cpu/amx" and the GPU tables do so. If pages are f16, GPU tables
// round queries and weights to f16: a query element beyond 65504 becomes infinite. If pages have 8
// bits, a GPU table may round them to f16 too, but keeps a finite element finite.
//
// FLOPs: 2 * heads * (k_dim + v_dim) per attended (row, key) pair. Bytes: each page once per query
// block.
struct AttentionParams {
  KvPageShape shape;
  int heads = 0;  // multiple of shape.kv_heads
  float scale = 1;
  float soft_cap = 0;  // 0: none; else score = soft_cap * tanh(score / soft_cap) before the mask
  int32_t window = 0;  // 0: no window
  int shards = 1;      // virtual shards (shards.h): a power of two up to kMostVirtualShards
  std::span<const AttentionItem> items;
  // Where the op keeps what it derives from the items; null: nowhere. The layers of a step attend
  // the same rows and pages, so their calls pass the same `layout`. The first of them, which finds
  // it empty, fills it; the others only read it. A table may ignore it.
  //
  // Such calls must use one stream and one array of items. Only page_offset and the addresses of
  // queries and states may change in it. The items and the arrays they name must outlive the
  // layout.
  std::unique_ptr<AttentionLayout>* layout = nullptr;
};

// Merges two states of the same rows and heads: into = into (+) from. This is the only merge
// operation; everything that combines partial attention uses it. With a and b the two lse and m =
// max(a, b): lse = m + log(exp(a - m) + exp(b - m)), o = exp(a - lse) o_a + exp(b - lse) o_b.
// Merging with an empty state leaves the other bit for bit unchanged; two empty states stay empty.
// The merge is commutative bit for bit (Ring Attention, Liu et al. 2023).
struct MergeStateParams {
  AttentionState into;
  AttentionState from;
};

// Merges a learned sink into every row: state = state (+) {o = 0, lse = sink[head]}. The sink acts
// like a key that every row sees and that has no value (Xiao et al. 2024). Call it once per row, on
// the rank that holds the fully merged state.
struct MergeSinkParams {
  AttentionState state;
  const float* sink = nullptr;  // [heads]
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_ATTENTION_H_
