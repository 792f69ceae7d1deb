#ifndef ANNULUS_KERNELS_OPS_ATTENTION_H_
#define ANNULUS_KERNELS_OPS_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/ops/shards.h"

namespace annulus {

// What one layer keeps in one page. The order of the bytes belongs to the OpTable that writes them
// and is opaque above kernels/: only kv_page_bytes, kv_append, kv_read and attention know it.
// `dtype` may be any: values are rounded once, when they are written, as kernels/base/dtype.h says.
// kI8 keeps one bf16 scale for every token and kv head of K, and one of V, inside the page.
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

// Inverse of KvAppendParams for one page: the first `tokens` slots as float32.
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

// Which pages a query block attends, for every (head group, query block). `full` means all pages
// that the mask allows, which is dense causal attention. Otherwise group g, block b attends
// pages[offsets[g * blocks + b] .. offsets[g * blocks + b + 1]), ascending page indices into the
// item's `pages`; the mask still applies inside them.
struct BlockLists {
  bool full = true;
  int head_groups = 1;                        // divides kv_heads; group g has kv_heads/head_groups
  std::span<const int32_t> query_block_rows;  // [blocks + 1], row offsets, ascending from 0 to rows
  std::span<const int32_t> offsets;           // [head_groups * blocks + 1]
  std::span<const int32_t> pages;
};

// Partial attention: o is the softmax-weighted mean of V over the keys attended so far, lse the
// natural log of the sum of exponentiated scores. No key at all: o = 0, lse = -infinity.
// o: [rows, heads * v_dim], lse: [rows, heads]; both dense float32.
struct AttentionState {
  float* o = nullptr;
  float* lse = nullptr;
  int64_t rows = 0;
  int heads = 0;
  int v_dim = 0;
};

// One branch of dilated attention (LongNet, Ding et al. 2023, arXiv 2307.02486, section 3):
// positions are cut into segments of `segment` tokens, and query head h keeps those with p mod rate
// = h mod rate, as rows and as keys. `segment` is a multiple of `rate` and of page_tokens.
struct DilatedBranch {
  int32_t segment = 0;
  int32_t rate = 1;

  // Whether query head `head` of the row at `row` keeps the key at `key`, the causal mask aside.
  bool Keeps(int head, int64_t row, int64_t key) const {
    return row / segment == key / segment && row % rate == head % rate && key % rate == head % rate;
  }

  bool operator==(const DilatedBranch&) const = default;
};

// The rows of one sequence against some of its pages. Key j is attended by the row at position i
// where j <= i, and i - window < j when window > 0. Where there are branches, a key counts once for
// each branch that keeps it, which mixes the branches by their softmax denominators; then `blocks`
// is full and window is 0. A row that no branch keeps has the empty state.
struct AttentionItem {
  ConstMatrixView query;               // [rows, heads * k_dim], already rotated
  std::span<const int32_t> positions;  // [rows], ascending
  std::span<const KvPageView> pages;   // ascending first_position; gaps are allowed
  // Added to the data of every page, so that the layers of a step share their views: each names
  // the same pages, at its own distance from the first layer's part.
  size_t page_offset = 0;
  BlockLists blocks;
  // Only the pages with these leaves (shards.h) are attended; `leaves` 0: all are.
  int first_leaf = 0;
  int leaves = 0;
  std::span<const DilatedBranch> branches;  // none: every key counts once
  AttentionState state;
  // False: the state is overwritten. True: it holds what the rows have of other keys, and what they
  // have of these is merged into it, which costs less than merge_state afterwards and gives the
  // same bits (a table that is not row_invariant: within rounding). Items of one call have states
  // of their own.
  bool merges = false;
};

// Whether the item attends the pages of that leaf.
inline bool Attends(const AttentionItem& item, int leaf) {
  return item.leaves == 0 || (leaf >= item.first_leaf && leaf < item.first_leaf + item.leaves);
}

// Attention of queries over paged keys and values with grouped heads: query head h reads kv head
// h / (heads / kv_heads). The score of a key is scale * (query . key), then the soft cap (Gemma 2,
// Gemma Team 2024).
//
// The pages of a row are summed shard by shard and merged in the one tree of shards.h. A shard's
// pages are taken in ascending order, in spans anchored at absolute positions [n * s, (n + 1) * s)
// with s = shards * kAttentionSpan; each span's state is finished, then merged in ascending order.
// So a row's result depends only on its own query, position and pages: never on the rows beside it,
// on the number of threads, or on where a chunk began. An item whose pages are those of one subtree
// gives that subtree's state, and merging the states of two siblings gives the bits that one item
// with the pages of both has.
// With branches, a shard's state is that of the first branch, merged with the others in their
// order. A table that is not row_invariant (registry.h: the GPU's) may cut and share out keys as it
// likes: then this holds within rounding. Scores, weights and sums are float32; subnormal numbers
// may count as 0. Where pages hold no more precision than bf16 (kBF16 and the 8-bit types) a table
// may round queries, weights and dequantised values to bf16 before they are multiplied
// ("cpu/avx512-bf16" and "cpu/amx" do); its exponentials are then good to 1.2e-4. The tables of
// GPUs do so too, and round queries and weights to f16 where pages are f16: a query beyond 65504 is
// then infinite. FLOPs: 2 * heads * (k_dim + v_dim) per attended (row, key) pair. Bytes: each page
// once per query block. Source: FlashAttention (Dao et al. 2022), online softmax (Milakov and
// Gimelshein 2018).
inline constexpr int32_t kAttentionSpan = 8192;

struct AttentionParams {
  KvPageShape shape;
  int heads = 0;  // multiple of shape.kv_heads
  float scale = 1;
  float soft_cap = 0;  // 0: none; else score = soft_cap * tanh(score / soft_cap) before the mask
  int32_t window = 0;  // 0: no window
  int shards = 1;      // virtual shards (shards.h): a power of two up to kMostVirtualShards
  std::span<const AttentionItem> items;
};

// The one merge law: into = into (+) from, over the same rows and heads. With m = max of the two
// lse: lse = m + log(exp(a - m) + exp(b - m)), o = exp(a - lse) o_a + exp(b - lse) o_b. An empty
// state changes no bit of the other; two empty states stay empty. The order of the two states
// changes no bit either (Ring Attention, Liu et al. 2023).
struct MergeStateParams {
  AttentionState into;
  AttentionState from;
};

// state = state (+) {o = 0, lse = sink[head]} for every row: a learned sink, a key that is always
// seen and has no value (Xiao et al. 2024). To be called once per state, by the rank that has all
// of it.
struct MergeSinkParams {
  AttentionState state;
  const float* sink = nullptr;  // [heads]
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_ATTENTION_H_
