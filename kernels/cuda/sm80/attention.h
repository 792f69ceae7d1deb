#ifndef ANNULUS_KERNELS_CUDA_SM80_ATTENTION_H_
#define ANNULUS_KERNELS_CUDA_SM80_ATTENTION_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/page_layout.h"
#include "kernels/cuda/common/stream_handle.h"
#include "kernels/ops/attention.h"

// Launches of attention over pages. All pointers are device addresses. Each function returns 0 or
// CUDA's error number.

namespace annulus::cuda {

// What one block computes: some rows of an item over some of the item's pages, for one kv head.
// Rows of an item and kv head are numbered position-major: row = position index * group + query
// head within the group.
struct AttentionUnit {
  int32_t item;
  int32_t kv_head;
  int32_t row_begin;
  int32_t row_count;   // at most the rows of the kernel's tile
  int32_t page_begin;  // into the item's pages or, if it has lists, into those
  int32_t page_end;
  int32_t partial;     // first workspace row for the state; < 0: goes to the item's state
  int32_t merge = -1;  // that this is a part of; < 0: none
};

// A unit whose pages were divided among several parts: part p has its rows at partial_begin + p *
// row_count.
struct AttentionMerge {
  int32_t item;
  int32_t kv_head;
  int32_t row_begin;
  int32_t row_count;
  int32_t partial_begin;
  int32_t parts;
};

struct AttentionItemView {
  const float* query;
  int64_t query_stride;
  const int32_t* positions;
  const KvPageView* pages;
  int64_t page_offset;   // added to the address of every page
  const int32_t* lists;  // page indices; null: page_begin itself is the index
  const DilatedBranch* branches;
  int branch_count;
  float* o;
  float* lse;
  bool merges;
};

struct AttentionArguments {
  PageLayout layout;
  const AttentionUnit* units;  // [grid]
  const AttentionItemView* items;
  int heads;
  int group;  // query heads per kv head
  float scale;
  float soft_cap;
  int32_t window;
  float* partial_o;  // [partial rows, v_dim]
  float* partial_lse;
  // Of decode units that are parts; the block that finishes last merges them.
  const AttentionMerge* merges;
  int32_t* arrivals;  // of each merge; 0 before the launch
};

// The two kinds of block. Prefill: many rows share every tile of keys. Decode: at most 16 rows, and
// the warps divide the keys of a tile among themselves.
enum class AttentionShape : uint8_t { kPrefill, kDecode };

// The most rows of a unit.
constexpr int AttentionRows(AttentionShape shape, int dim) {
  return shape == AttentionShape::kDecode ? 16 : dim > 128 ? 64 : 128;
}

// Blocks of the decode shape for which a multiprocessor has registers.
inline constexpr int kDecodeBlocks = 2;

// `dim` is at least the larger of k_dim and v_dim, and at most 256. There is one function per class
// of storage: bf16, f16, and 8 bits. Codes of 8 bits are widened to bf16 by the prefill shape, and
// by the decode shape to f16, except int8 values, which become bf16.
int LaunchAttentionBf16(StreamHandle stream, AttentionShape shape, int dim, int64_t units,
                        const AttentionArguments& arguments);
int LaunchAttentionF16(StreamHandle stream, AttentionShape shape, int dim, int64_t units,
                       const AttentionArguments& arguments);
int LaunchAttentionNarrow(StreamHandle stream, AttentionShape shape, int dim, int64_t units,
                          const AttentionArguments& arguments);
// Bytes of shared memory per block for bf16 and f16. 8 bits fit where the 99 KiB of 8.9 do.
size_t AttentionBytes(AttentionShape shape, int dim);
// Computes everything in float32, for units of the decode shape and up to 256 dimensions.
int LaunchAttentionFloat(StreamHandle stream, int64_t units, const AttentionArguments& arguments);

// Merges the parts in ascending order into the items' states, with one block per merge and row. For
// parts that their own launch does not merge: prefill units and float32.
struct AttentionMergeArguments {
  const AttentionMerge* merges;
  const AttentionItemView* items;
  int heads;
  int group;
  int v_dim;
  const float* partial_o;
  const float* partial_lse;
};
int LaunchAttentionMerge(StreamHandle stream, int64_t merges, int largest_rows,
                         const AttentionMergeArguments& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ATTENTION_H_
