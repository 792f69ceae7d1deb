#include "kernels/cuda/tuning/linear_plan.h"

#include "kernels/cuda/sm80/linear.h"

namespace annulus::cuda {

int FewRowsTiles(int64_t out_features, bool tensor, const DeviceInfo& device) {
  int tiles = tensor ? kMostTilesTensor : kMostTilesFloat;
  const auto fits = [&] {
    const size_t bytes = tensor ? FewRowsTensorBytes(tiles) : FewRowsFloatBytes(tiles);
    return bytes <= device.shared_bytes &&
           out_features >= int64_t{8} * tiles * device.multiprocessors;
  };
  while (tiles > 1 && !fits()) tiles /= 2;
  return tiles;
}

}  // namespace annulus::cuda
