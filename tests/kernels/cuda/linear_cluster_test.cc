// Products whose depth is split over clusters of blocks: when they are, and that bits stay.
#include "kernels/cuda/sm90/linear_cluster.h"

#include <utility>

#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cuda/tuning/cluster_plan.h"
#include "tests/kernels/cuda/both_ways.h"

namespace annulus::cuda {
namespace {

TEST(ClusterTilesTest, FewOutputsOfSomeRowsAreSplit) {
  const DeviceInfo h200 = HopperWith(132);
  EXPECT_EQ(ClusterTiles(64, 896, h200), 1);  // 28 blocks without the split
  EXPECT_EQ(ClusterTiles(65, 896, h200), 2);  // two tiles of rows
  EXPECT_EQ(ClusterTiles(64, 4864, h200), 4);
  EXPECT_EQ(ClusterTiles(17, 5, h200), 1);
  EXPECT_EQ(ClusterTiles(64, 527 * 32, h200), 4);
  EXPECT_EQ(ClusterTiles(64, 527 * 32 + 1, h200), 0) << "528 blocks are four for each";
  EXPECT_EQ(ClusterTiles(kFewRows, 896, h200), 0);
  EXPECT_EQ(ClusterTiles(kLibraryRows - 1, 896, h200), 2);
  EXPECT_EQ(ClusterTiles(kLibraryRows, 896, h200), 0);
  for (const auto& [major, minor] : {std::pair(8, 0), {8, 9}, {10, 0}}) {
    DeviceInfo other = h200;
    other.major = major;
    other.minor = minor;
    EXPECT_EQ(ClusterTiles(64, 896, other), 0) << major << "." << minor;
  }
}

struct ClusterCase {
  ProductSize shape;  // parts of 64: with empty ones, of several stages, with a short last one
  int tiles;
  int multiprocessors;  // with which there are so many tiles
};
constexpr ClusterCase kCases[] = {{{17, 33, 5}, 1, 132},
                                  {{64, 521, 37}, 1, 132},
                                  {{70, 1090, 200}, 2, 40},
                                  {{127, 611, 131}, 4, 4}};

TEST(LinearClusterTest, ASplitDepthChangesNoBit) {
  for (const ClusterCase& split : kCases) {
    if (kSanitized && split.shape.in > 33) break;  // the emulation is many times slower then
    const DeviceInfo device = HopperWith(split.multiprocessors);
    ASSERT_EQ(ClusterTiles(split.shape.rows, split.shape.out, device), split.tiles);
    ExpectSameBitsOfAll(split.shape, device);
  }
}

// A graph runs the kernel in clusters too.
TEST(LinearClusterTest, GraphsKeepClusters) {
  BothWays(kCases[0].shape, HopperWith(kCases[0].multiprocessors))
      .ExpectSameBits(DType::kBF16, Activations::kFloat, /*held=*/true);
}

}  // namespace
}  // namespace annulus::cuda
