#ifndef ANNULUS_KERNELS_CUDA_TUNING_ATTENTION_PATH_H_
#define ANNULUS_KERNELS_CUDA_TUNING_ATTENTION_PATH_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/sm80/attention.h"
#include "kernels/ops/attention.h"

// Decides which kernels attend the many rows of prefill, and how sm90/ addresses pages. Pure
// functions.

namespace annulus::cuda {

// The pages of an op, which may lie anywhere, as pages of one tensor: page view p has number
// (p.data - first) >> shift. 2^shift, at most 2^40, divides every distance between two pages.
struct PageGrid {
  const std::byte* first = nullptr;
  int shift = 0;
  int64_t count = 0;
};
PageGrid GridOfPages(const AttentionParams& params);

// Whether sm90/ supports the op; no other place decides this. It needs compute capability 9.0 (its
// instructions exist on no other), pages of 16 or 8 bits, k_dim and v_dim up to 256, no dilated
// branches, and pages that a tensor of at most 2^31 pages with strides of at least 16 bytes can
// cover.
bool HopperServes(const DeviceInfo& device, const AttentionParams& params, const PageGrid& grid);

// Blocks of units of few rows that a multiprocessor holds at once.
int BlocksOfFewRows(const KvPageShape& pages, const DeviceInfo& device);

// Which kernels attend an op's units of many rows, how many rows a unit may have, and in which
// order they start.
struct PrefillPath {
  bool hopper = false;
  PageGrid grid;  // for sm90/
  int rows = 0;
  int64_t section_bytes = 0;  // orders the units: see SortUnits
  bool pairs = false;         // units go to sm90/attention_pairs.h
};
// `hopper`: whether the caller's table has sm90/. Looks at every page, except for ops of few rows.
// Leaves section_bytes 0, and pairs false.
PrefillPath PathOfPrefill(const DeviceInfo& device, const AttentionParams& params, bool hopper);

// The same for tables that are row_invariant, whatever rows and pages the op has. All items have
// branches, or none. Pages of float32 have units of the decode shape alone. FAILED_PRECONDITION if
// only where the pages lie keeps sm90/ from the op: sm80/ would give its rows other bits.
absl::StatusOr<PrefillPath> PathOfInvariant(const DeviceInfo& device, const AttentionParams& params,
                                            bool hopper);

// Slots of a page that one copy moves: the largest power of 2 that divides both page_tokens and the
// tile of sm90/ for `dim`, the larger of k_dim and v_dim.
int BoxSlots(int page_tokens, int dim);
// Boxes of a tile of sm90/, and the least number of pages whose boxes are whole tiles.
int TileBoxes(int page_tokens, int dim);
int TilePages(int page_tokens, int dim);

// The keys and the values of all pages as tensors: the rows of one kv head after those of the
// other.
struct PageTensors {
  PagesTensor keys;
  PagesTensor values;
};
PageTensors TensorsOfPages(const AttentionParams& params, const PageGrid& grid);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_TUNING_ATTENTION_PATH_H_
