#ifndef ANNULUS_KERNELS_CUDA_TUNING_ATTENTION_PATH_H_
#define ANNULUS_KERNELS_CUDA_TUNING_ATTENTION_PATH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/sm80/attention.h"
#include "kernels/ops/attention.h"

// Which kernels attend the many rows of prefill, and how those of sm90/ address pages. Pure.

namespace annulus::cuda {

// The pages of an op, which may lie anywhere, as pages of one tensor: page view p is number
// (p.data - first) >> shift. 2^shift divides every distance between two pages, as far as 2^40.
struct PageGrid {
  const std::byte* first = nullptr;
  int shift = 0;
  int64_t count = 0;
};
PageGrid GridOfPages(const AttentionParams& params);

// The one place that says what sm90/ serves: compute capability 9.0 (its instructions are of this
// one alone), pages of 16 or 8 bits, k_dim and v_dim up to 256, no dilated branches, and pages that
// a tensor of at most 2^31 pages with strides of at least 16 bytes covers.
bool HopperServes(const DeviceInfo& device, const AttentionParams& params, const PageGrid& grid);

// Which instance of sm80/ attends units of `shape`: the one for them, or where its block has more
// shared memory than the device gives, the one for many rows of 256 dimensions, which takes them
// too. Where that is 99 KiB, it takes those of 16 bits that are many rows of more than 64
// dimensions or few of more than 128.
struct AttentionInstance {
  AttentionShape shape;
  int dim;
};
AttentionInstance InstanceFor(AttentionShape shape, const KvPageShape& pages,
                              const DeviceInfo& device);

// Who attends an op's units of many rows, and how many rows these have at most.
struct PrefillPath {
  bool hopper = false;
  PageGrid grid;  // for sm90/
  int rows = 0;
};
// `hopper`: whether the caller's table has sm90/. Looks at every page, but for ops of few rows.
PrefillPath PathOfPrefill(const DeviceInfo& device, const AttentionParams& params, bool hopper);

// Slots of a page that one copy moves: the largest power of 2 that divides page_tokens and the tile
// of sm90/ for `dim`, the larger of k_dim and v_dim.
int BoxSlots(int page_tokens, int dim);

// The keys, or else the values, of all pages: rows of one kv head after the other.
struct PageTensors {
  PagesTensor keys;
  PagesTensor values;
};
PageTensors TensorsOfPages(const AttentionParams& params, const PageGrid& grid);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_TUNING_ATTENTION_PATH_H_
