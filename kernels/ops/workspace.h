#ifndef ANNULUS_KERNELS_OPS_WORKSPACE_H_
#define ANNULUS_KERNELS_OPS_WORKSPACE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/base/activations.h"
#include "kernels/base/dtype.h"
#include "kernels/ops/attention.h"

// Bounds on the ops of one stream, and the memory those ops need besides their arguments. A step
// within the bounds allocates nothing on the device: see Backend::PlanWorkspace.

namespace annulus {

// A matrix product of up to `rows` rows by `linear`, or by `expert_linear` if `chosen`.
struct ProductShape {
  int64_t rows = 0;
  int64_t in = 0;
  int64_t out = 0;
  DType dtype = DType::kF32;  // of the weights
  Activations activations = Activations::kFloat;
  bool bias = false;
  bool accumulate = false;
  bool chosen = false;  // by `expert_linear`; `rows` then counts choices
};

// The most branches of an item of attention or block_scores.
inline constexpr int64_t kMostBranches = 64;

// Upper bounds: no op of the stream exceeds any of these counts. 0 if the stream never runs such an
// op.
struct WorkShape {
  std::vector<ProductShape> products;
  // Rows of any op other than attention. The rows of a block_scores item are consecutive, except
  // for gaps that begin and end at multiples of the stride.
  int64_t rows = 0;
  int64_t attended_rows = 0;  // of one attention op, all items together
  int64_t items = 0;          // of one attention op
  KvPageShape pages;
  int heads = 0;  // query heads
  // OpTable::row_invariant of the table; if it is true, `shards` is AttentionParams::shards.
  bool row_invariant = false;
  int shards = 1;
  // Pages of one op, all items together; a page of several items counts once for each. An op of
  // more pages, as when many requests share a document, allocates memory while it runs. So may an
  // item whose pages in one shard have gaps. A block list names a page at most once per kv head and
  // query block. Query blocks of such lists have page_tokens rows or more, except an item's first
  // and last.
  int64_t named_pages = 0;
  bool lists = false;      // attention ops have block lists, and blocks are scored
  int64_t exact_rows = 0;  // of a block_scores item with stride 1; with other strides up to `rows`
  int64_t sampled_rows = 0;  // of one sample op
  int64_t vocabulary = 0;
  // For steps whose launches are held back (Stream::BeginGraph): the layers of such a step, and the
  // pages that all its ops name together.
  int64_t held_layers = 0;
  int64_t held_pages = 0;
};

// Bytes of device memory. `uploads` also takes as many bytes of pinned host memory.
struct WorkspaceBytes {
  size_t scratch = 0;  // what an op's launches pass to each other
  size_t uploads = 0;  // host arrays of ops on their way to the device

  size_t total() const { return scratch + uploads; }
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_WORKSPACE_H_
