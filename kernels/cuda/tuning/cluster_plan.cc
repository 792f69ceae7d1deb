#include "kernels/cuda/tuning/cluster_plan.h"

#include <algorithm>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/sm80/linear.h"

namespace annulus::cuda {
namespace {

bool HasClusters(const DeviceInfo& device) { return device.major == 9 && device.minor == 0; }

}  // namespace

int ClusterTiles(int64_t rows, int64_t out_features, const DeviceInfo& device) {
  if (!HasClusters(device) || rows <= kFewRows || rows >= kLibraryRows) return 0;
  const int64_t down = (rows + kBlockRows - 1) / kBlockRows;
  const auto blocks = [&](int tiles) {
    return down * ((out_features + kTileOutputs * tiles - 1) / (kTileOutputs * tiles));
  };
  if (blocks(1) >= int64_t{kEnoughBlocks} * device.multiprocessors) return 0;
  int tiles = kMostTilesMany;
  while (tiles > 1 && kDepthParts * blocks(tiles) < device.multiprocessors) tiles /= 2;
  return tiles;
}

FewRowsStripes StripesOf(int64_t rows, int64_t out_features, int64_t in_features,
                         const DeviceInfo& device) {
  if (!HasClusters(device) || rows > kFewRows) return {};
  const int64_t most = std::max(device.multiprocessors / kDepthParts, 1);
  int tiles = kMostTilesTensor;
  const auto groups = [&] { return (out_features + 8 * tiles - 1) / (8 * tiles); };
  const auto fit = [&](int64_t held) {
    return FewRowsClusterBytes(rows, in_features, tiles, held) <= device.shared_bytes;
  };
  while (tiles > 1 && (groups() < most * kStripeWarps || !fit(kStripeWarps))) tiles /= 2;
  if (!fit(kStripeWarps)) return {};
  const int64_t clusters = std::min(most, groups());
  const int64_t longest = (groups() + clusters - 1) / clusters;  // stripe
  int held = kStripeWarps;
  while (held < longest && fit(held + kStripeWarps)) held += kStripeWarps;
  return {tiles, static_cast<int>(clusters), held};
}

}  // namespace annulus::cuda
