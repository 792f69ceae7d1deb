#ifndef ANNULUS_KERNELS_OPS_WORKSPACE_H_
#define ANNULUS_KERNELS_OPS_WORKSPACE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/base/activations.h"
#include "kernels/base/dtype.h"
#include "kernels/ops/attention.h"

// What a stream's ops are asked for at most, and the memory that they need for it beside what they
// are given. A step that stays below takes nothing of the device: Backend::PlanWorkspace.

namespace annulus {

// One kind of product, of up to `rows` rows: by `linear` or, where rows chose, by `expert_linear`.
struct ProductShape {
  int64_t rows = 0;
  int64_t in = 0;
  int64_t out = 0;
  DType dtype = DType::kF32;  // of the weights
  Activations activations = Activations::kFloat;
  bool bias = false;
  bool accumulate = false;
  bool chosen = false;  // by `expert_linear`: `rows` counts choices
};

// Of an item of attention or block_scores.
inline constexpr int64_t kMostBranches = 64;

// No op exceeds any of these. All counts; 0 where there is no such thing.
struct WorkShape {
  std::vector<ProductShape> products;
  // Of an op but attention. Rows of an item of block_scores lie side by side, but for gaps that
  // begin and end at multiples of the stride.
  int64_t rows = 0;
  int64_t attended_rows = 0;  // of an op of attention, all items together
  int64_t items = 0;          // of an op of attention
  KvPageShape pages;
  int heads = 0;  // query heads
  // Pages of an op, all items together. Lists name each once for every kv head and query block;
  // these have a page's tokens or more, but for the first and the last of an item.
  int64_t named_pages = 0;
  bool lists = false;        // ops have block lists, and blocks are scored
  int64_t exact_rows = 0;    // of an item scored with stride 1; with others they are up to `rows`
  int64_t sampled_rows = 0;  // of an op of sample
  int64_t vocabulary = 0;
  // Of steps that are held back (Stream::BeginGraph): layers, and pages that all of them name.
  int64_t held_layers = 0;
  int64_t held_pages = 0;
};

// Bytes of the device. `uploads` is pinned on the host a second time.
struct WorkspaceBytes {
  size_t scratch = 0;  // what one op leaves for its own launches
  size_t uploads = 0;  // host arrays of ops on their way

  size_t total() const { return scratch + uploads; }
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_WORKSPACE_H_
