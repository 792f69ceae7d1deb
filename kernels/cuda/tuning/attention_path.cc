#include "kernels/cuda/tuning/attention_path.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/sm90/attention.h"
#include "kernels/cuda/tuning/attention_plan.h"

namespace annulus::cuda {
namespace {

constexpr int kMostHopperDim = 256;
constexpr int kLargestShift = 39;  // strides of a tensor are below 2^40
constexpr int kSmallestShift = 4;  // and multiples of 16
constexpr int64_t kMostPages = int64_t{1} << 31;

int LargerDim(const AttentionParams& params) {
  return std::max(params.shape.k_dim, params.shape.v_dim);
}

// Whether some item has more rows for a kv head than a unit of the decode shape.
bool HasManyRows(const AttentionParams& params) {
  const int64_t group = params.heads / params.shape.kv_heads;
  const int64_t few = AttentionRows(AttentionShape::kDecode, LargerDim(params));
  return std::any_of(params.items.begin(), params.items.end(), [&](const AttentionItem& item) {
    return static_cast<int64_t>(item.positions.size()) * group > few;
  });
}

}  // namespace

PageGrid GridOfPages(const AttentionParams& params) {
  uintptr_t lowest = UINTPTR_MAX;
  uintptr_t highest = 0;
  uintptr_t first = 0;
  uintptr_t distances = uintptr_t{1}
                        << kLargestShift;  // or-ed: its last bit set is their power of 2
  for (const AttentionItem& item : params.items) {
    for (const KvPageView& page : item.pages) {
      const auto address = reinterpret_cast<uintptr_t>(page.data + item.page_offset);
      if (first == 0) first = address;
      lowest = std::min(lowest, address);
      highest = std::max(highest, address);
      distances |= address - first;
    }
  }
  PageGrid grid;
  if (first == 0) return grid;
  grid.first = reinterpret_cast<const std::byte*>(lowest);
  grid.shift = std::countr_zero(distances);
  grid.count = static_cast<int64_t>((highest - lowest) >> grid.shift) + 1;
  return grid;
}

namespace {

// What HopperServes asks of an op but for where its pages lie.
bool HopperTakes(const DeviceInfo& device, const AttentionParams& params) {
  const KvPageShape& shape = params.shape;
  const bool dilated =
      std::any_of(params.items.begin(), params.items.end(),
                  [](const AttentionItem& item) { return !item.branches.empty(); });
  return device.major == 9 && device.minor == 0 && shape.dtype != DType::kF32 &&
         LargerDim(params) <= kMostHopperDim && !dilated;
}

bool HopperReaches(const PageGrid& grid) {
  return grid.count > 0 && grid.count <= kMostPages && grid.shift >= kSmallestShift &&
         reinterpret_cast<uintptr_t>(grid.first) % (1 << kSmallestShift) == 0;
}

}  // namespace

bool HopperServes(const DeviceInfo& device, const AttentionParams& params, const PageGrid& grid) {
  return HopperTakes(device, params) && HopperReaches(grid);
}

int BlocksOfFewRows(const KvPageShape& pages, const DeviceInfo& device) {
  if (pages.dtype == DType::kF32) return kPrefillBlocks;
  const int dim = std::max(pages.k_dim, pages.v_dim);
  const size_t fit = device.shared_bytes / AttentionBytes(AttentionShape::kDecode, dim);
  return std::clamp(static_cast<int>(fit), 1, kDecodeBlocks);
}

namespace {

PrefillPath PathOfSm80(const AttentionParams& params) {
  return {false, {}, AttentionRows(AttentionShape::kPrefill, LargerDim(params))};
}

}  // namespace

PrefillPath PathOfPrefill(const DeviceInfo& device, const AttentionParams& params, bool hopper) {
  if (hopper && HasManyRows(params)) {
    const PageGrid grid = GridOfPages(params);
    if (HopperServes(device, params, grid)) return {true, grid, kHopperRows};
  }
  return PathOfSm80(params);
}

absl::StatusOr<PrefillPath> PathOfInvariant(const DeviceInfo& device, const AttentionParams& params,
                                            bool hopper) {
  if (hopper && HopperTakes(device, params)) {
    const PageGrid grid = GridOfPages(params);
    if (HopperReaches(grid)) return PrefillPath{true, grid, kHopperRows};
    if (grid.count > 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "attention by sm90-invariant: the op's pages begin at 0x",
          absl::Hex(reinterpret_cast<uintptr_t>(grid.first)), " and span ", grid.count,
          " steps of ", int64_t{1} << grid.shift,
          " bytes; allowed: an address and steps that are multiples of 16, and at most ",
          kMostPages,
          " steps. Kernels of sm80/ would give other bits: use --gpu-kernels "
          "sm80-invariant"));
    }
  }
  PrefillPath path = PathOfSm80(params);
  if (params.shape.dtype == DType::kF32) {
    path.rows = AttentionRows(AttentionShape::kDecode, LargerDim(params));
  }
  return path;
}

int BoxSlots(int page_tokens, int dim) {
  return std::min(HopperKeys(dim), page_tokens & -page_tokens);
}

int TileBoxes(int page_tokens, int dim) { return HopperKeys(dim) / BoxSlots(page_tokens, dim); }

int TilePages(int page_tokens, int dim) {
  const int boxes = TileBoxes(page_tokens, dim);
  return boxes / std::gcd(boxes, page_tokens / BoxSlots(page_tokens, dim));
}

PageTensors TensorsOfPages(const AttentionParams& params, const PageGrid& grid) {
  const PageLayout layout = LayoutOf(params.shape);
  PagesTensor keys;
  keys.base = grid.first;
  keys.dtype = params.shape.dtype;
  keys.columns = layout.k_stride;
  keys.rows = int64_t{layout.kv_heads} * layout.page_tokens;
  keys.pages = grid.count;
  keys.row_bytes = int64_t{layout.k_stride} * layout.element;
  keys.page_stride = int64_t{1} << grid.shift;
  keys.box_rows = BoxSlots(layout.page_tokens, LargerDim(params));
  PagesTensor values = keys;
  values.base = grid.first + layout.Value(0, 0);
  values.columns = layout.v_stride;
  values.row_bytes = int64_t{layout.v_stride} * layout.element;
  return {keys, values};
}

}  // namespace annulus::cuda
