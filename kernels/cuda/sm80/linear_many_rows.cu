// Products of many float32 rows with packed weights that are multiplied in bf16. The order over the
// depth is that of linear_weights.h, whatever the number of rows, so a row has the same bits in any
// batch. Inputs are rounded beforehand, once for all blocks. A block: many_rows_tile.h. Compiled
// without contraction.
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/sm80/many_rows_tile.h"

namespace annulus::cuda {
namespace {

using namespace many_rows;

template <int kTiles>
ANNULUS_DEVICE void MultiplyBlock(const ManyRowsArguments& a) {
  const LinearArguments& linear = a.linear;
  const BlockPlace place =
      PlaceOfBlock(BlockX(), linear.output.rows, linear.weight.out_features, kTileOutputs * kTiles);
  Sums<kTiles> totals = {};
  MultiplyForms<kTiles>(a, place, {0, static_cast<int>(a.depth / kRoundedDepth)}, totals);
  StoreTile<kTiles>(linear, place, totals);
}

ANNULUS_KERNEL(kThreads, 2) LinearTensorKernel(ANNULUS_ARGUMENT ManyRowsArguments a) {
  if (a.tiles == 4) {
    MultiplyBlock<4>(a);
  } else if (a.tiles == 2) {
    MultiplyBlock<2>(a);
  } else {
    MultiplyBlock<1>(a);
  }
}
static_assert(kMostTilesMany == 4);

}  // namespace

size_t ManyRowsBytes(DType dtype, int tiles) {
  const int depth_bytes =
      kRows * 2 * 8 + kTileOutputs * tiles * BitsOf(FormOf(dtype));  // in eighths
  return static_cast<size_t>(kStages * kRoundedDepth * depth_bytes / 8);
}

int LaunchLinearTensor(StreamHandle stream, const ManyRowsArguments& arguments) {
  const int64_t outputs = kTileOutputs * arguments.tiles;
  const Grid grid{.x = (arguments.linear.output.rows + kRows - 1) / kRows *
                       ((arguments.linear.weight.out_features + outputs - 1) / outputs),
                  .threads = kThreads,
                  .shared_bytes = ManyRowsBytes(arguments.linear.weight.dtype, arguments.tiles)};
  return Launch<LinearTensorKernel>(stream, grid, arguments);
}

}  // namespace annulus::cuda
