#include "kernels/cuda/tuning/cluster_plan.h"

#include "kernels/cuda/ops.h"
#include "kernels/cuda/sm80/linear.h"

namespace annulus::cuda {

int ClusterTiles(int64_t rows, int64_t out_features, const DeviceInfo& device) {
  if (device.major != 9 || device.minor != 0 || rows <= kFewRows || rows >= kLibraryRows) return 0;
  const int64_t down = (rows + kBlockRows - 1) / kBlockRows;
  const auto blocks = [&](int tiles) {
    return down * ((out_features + kTileOutputs * tiles - 1) / (kTileOutputs * tiles));
  };
  if (blocks(1) >= int64_t{kEnoughBlocks} * device.multiprocessors) return 0;
  int tiles = kMostTilesMany;
  while (tiles > 1 && kDepthParts * blocks(tiles) < device.multiprocessors) tiles /= 2;
  return tiles;
}

}  // namespace annulus::cuda
