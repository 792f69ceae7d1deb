#include "kernels/cuda/tuning/warpgroup_plan.h"

#include <algorithm>
#include <cstdint>

#include "kernels/base/row_converter.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/sm80/linear.h"
#include "kernels/cuda/tuning/cluster_plan.h"

namespace annulus::cuda {
namespace {

constexpr int kFewestRows = 32;  // of a tile
constexpr int64_t kMostReadings = 2;
constexpr size_t kReserved = 1024;  // bytes of a multiprocessor's shared memory, for each block

int64_t TilesOfRows(const JointProducts& products, int rows) {
  return (products.rows + rows - 1) / rows;
}

// Rows of a tile; 0: the block's part of the inputs does not fit.
int RowsOfTile(const JointProducts& products, const DeviceInfo& device) {
  const auto fits = [&](int rows) {
    return WarpgroupBytes(rows, products.in_features, kWarpgroups) <= device.shared_bytes;
  };
  const bool most = products.rows > kFewestRows && fits(kMostTileRows);
  const int rows = most ? kMostTileRows : kFewestRows;
  return fits(rows) && TilesOfRows(products, rows) <= kMostReadings ? rows : 0;
}

// Whether blocks without clusters occupy the device, and clusters would exchange more bytes than
// they read of weights, for each tile of rows.
bool ExchangeTooMuch(const JointProducts& products, int rows, const DeviceInfo& device) {
  const int64_t blocks = (products.rows + kBlockRows - 1) / kBlockRows * products.tiles *
                         (kWarpgroupOutputs / kTileOutputs);
  const int64_t exchanged = int64_t{kDepthParts - 1} * static_cast<int64_t>(sizeof(float)) * rows;
  return blocks >= int64_t{kEnoughBlocks} * device.multiprocessors &&
         exchanged > static_cast<int64_t>(StoredRowBytes(products.dtype, products.in_features));
}

bool Overlap(const MatrixView& a, const MatrixView& b) {
  const auto end = [](const MatrixView& m) { return m.row(m.rows - 1) + m.cols; };
  return a.data < end(b) && b.data < end(a);
}

}  // namespace

WarpgroupShape WarpgroupShapeOf(const JointProducts& products, const DeviceInfo& device) {
  if (device.major != 9 || device.minor != 0) return {};
  if (products.rows <= kFewRows || products.rows >= kLibraryRows) return {};
  const int rows = RowsOfTile(products, device);
  if (rows == 0 || ExchangeTooMuch(products, rows, device)) return {};
  const auto bytes = [&](int held) { return WarpgroupBytes(rows, products.in_features, held); };
  const size_t half = (device.shared_bytes - kReserved) / 2;
  const bool two = bytes(kWarpgroups) <= half;
  const size_t most = two ? half : device.shared_bytes;
  const int64_t at_once = int64_t{device.multiprocessors} * (two ? 2 : 1) / kDepthParts;
  const int64_t clusters =
      std::clamp<int64_t>(at_once / TilesOfRows(products, rows), 1, products.tiles);
  const int64_t longest = (products.tiles + clusters - 1) / clusters;  // stripe
  int held = kWarpgroups;
  while (held < longest && bytes(held + kWarpgroups) <= most) held += kWarpgroups;
  return {rows, static_cast<int>(clusters), held};
}

size_t ProductsTogether(std::span<const LinearParams> parts, const DeviceInfo& device) {
  const LinearParams& first = parts.front();
  const DType dtype = first.weight->dtype;
  if (dtype == DType::kF32 || dtype == DType::kF16) return 0;  // multiplied in float32
  JointProducts products{first.input.rows, first.weight->in_features, 0, dtype};
  size_t together = 0;
  for (size_t i = 0; i < std::min<size_t>(parts.size(), kMostTogether); ++i) {
    const LinearParams& part = parts[i];
    if (part.input.rows != products.rows || part.activations != first.activations ||
        part.weight->dtype != dtype) {
      break;
    }
    products.tiles += WarpgroupTiles(part.weight->out_features);
    if (WarpgroupShapeOf(products, device).rows == 0) break;
    const auto overlaps = [&](const LinearParams& before) {
      return Overlap(before.output, part.output);
    };
    if (std::any_of(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(i), overlaps)) break;
    ++together;
  }
  return together;
}

}  // namespace annulus::cuda
