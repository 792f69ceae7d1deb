// See linear_cluster.h. A tile is that of linear_many_rows.cu (many_rows_tile.h). After its part of
// the depth a block leaves its sums in its shared memory, where the copies were:
// [64 rows][32 * tiles outputs], padded so that the 8 rows of a fragment meet other banks. Block r
// then adds up rows 8r to 8r + 7 of all blocks and writes them. Compiled without contraction.
#include <algorithm>

#include "kernels/cuda/common/cluster.h"
#include "kernels/cuda/sm80/many_rows_tile.h"
#include "kernels/cuda/sm90/linear_cluster.h"

namespace annulus::cuda {
namespace {

using namespace many_rows;

constexpr int kRowsOfBlock = kRows / kDepthParts;  // that one block adds up
static_assert(kRowsOfBlock * kDepthParts == kRows);

constexpr int SumsStride(int tiles) { return static_cast<int>(kTileOutputs) * tiles + 8; }
constexpr size_t SumsBytes(int tiles) { return kRows * SumsStride(tiles) * sizeof(float); }

// The copies of a block's part have all been read.
template <int kTiles>
ANNULUS_DEVICE void LeaveSums(const Sums<kTiles>& sums, float* into) {
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = 16 * i + Lane() / 4 + e / 2 * 8;
        const int column = (WarpIndex() * kTiles + n) * 8 + Lane() % 4 * 2 + e % 2;
        into[row * SumsStride(kTiles) + column] = sums[i][n][e];
      }
    }
  }
}

// Adds up the parts of this block's rows, in order, and writes them.
template <int kTiles>
ANNULUS_DEVICE void StoreRows(const LinearArguments& a, const BlockPlace& place, float* sums) {
  constexpr int kOutputs = static_cast<int>(kTileOutputs) * kTiles;
  const bool grouped = IsFourBit(a.weight.dtype);
  for (int i = ThreadIndex(); i < kRowsOfBlock * kOutputs; i += kThreads) {
    const int tile_row = ClusterRank() * kRowsOfBlock + i / kOutputs;
    const int64_t row = place.row + tile_row;
    const int64_t column = place.output + i % kOutputs;
    if (row >= a.output.rows || column >= a.weight.out_features) continue;
    float* const own = sums + tile_row * SumsStride(kTiles) + i % kOutputs;
    float total = 0;
#pragma unroll
    for (int part = 0; part < kDepthParts; ++part) total += *InBlock(own, part);
    const float scale = grouped ? 1 : LoadScale(a.weight, column, 0);
    StoreOutput(a, row, column, total * InputScale(a, row) * scale);
  }
}

template <int kTiles>
ANNULUS_DEVICE void MultiplyInCluster(const ManyRowsArguments& a) {
  const LinearArguments& linear = a.linear;
  const BlockPlace place = PlaceOfBlock(BlockX() / kDepthParts, linear.output.rows,
                                        linear.weight.out_features, kTileOutputs * kTiles);
  const int count = static_cast<int>(a.depth / kRoundedDepth);
  const int begin = Smaller(ClusterRank() * StagesOfPart(a), count);
  Sums<kTiles> sums = {};
  MultiplyForms<kTiles>(a, place, {begin, Smaller(begin + StagesOfPart(a), count)}, sums);
  SyncThreads();
  auto* const shared = reinterpret_cast<float*>(SharedMemory());
  LeaveSums<kTiles>(sums, shared);
  SyncCluster();
  StoreRows<kTiles>(linear, place, shared);
  SyncCluster();  // no block ends while another one reads its sums
}

ANNULUS_CLUSTER_KERNEL(kDepthParts, kThreads, 2)
LinearClusterKernel(ANNULUS_ARGUMENT ManyRowsArguments a) {
  if (a.tiles == 4) {
    MultiplyInCluster<4>(a);
  } else if (a.tiles == 2) {
    MultiplyInCluster<2>(a);
  } else {
    MultiplyInCluster<1>(a);
  }
}
static_assert(kMostTilesMany == 4);

}  // namespace

int LaunchLinearCluster(StreamHandle stream, const ManyRowsArguments& arguments) {
  const int64_t outputs = kTileOutputs * arguments.tiles;
  const int64_t tiles = (arguments.linear.output.rows + kRows - 1) / kRows *
                        ((arguments.linear.weight.out_features + outputs - 1) / outputs);
  const Grid grid{
      .x = tiles * kDepthParts,
      .threads = kThreads,
      .shared_bytes = std::max(ManyRowsBytes(arguments.linear.weight.dtype, arguments.tiles),
                               SumsBytes(arguments.tiles))};
  return LaunchInClusters<LinearClusterKernel, kDepthParts>(stream, grid, arguments);
}

}  // namespace annulus::cuda
