// Products of few rows whose inputs lie in the shared memory of a cluster: how their outputs are
// spread, and that bits stay.
#include "kernels/cuda/sm90/few_rows_cluster.h"

#include <utility>

#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cuda/tuning/cluster_plan.h"
#include "tests/kernels/cuda/both_ways.h"

namespace annulus::cuda {
namespace {

TEST(StripesTest, EveryWarpHasAGroupWhereThereAreEnough) {
  const DeviceInfo h200 = HopperWith(132);
  EXPECT_EQ(StripesOf(16, 14336, 4096, h200), (FewRowsStripes{4, 16, 32}));
  EXPECT_EQ(StripesOf(1, 14336, 4096, h200), (FewRowsStripes{4, 16, 32}));
  EXPECT_EQ(StripesOf(16, 4096, 14336, h200), (FewRowsStripes{2, 16, 16}));
  EXPECT_EQ(StripesOf(16, 1024, 4096, h200), (FewRowsStripes{1, 16, 16}));
  EXPECT_EQ(StripesOf(16, 896, 896, h200), (FewRowsStripes{1, 16, 16}));
  EXPECT_EQ(StripesOf(3, 5, 64, h200), (FewRowsStripes{1, 1, 16}));
  EXPECT_EQ(StripesOf(3, 33, 64, h200), (FewRowsStripes{1, 5, 16}));
  EXPECT_EQ(StripesOf(16, 8192, 64, HopperWith(7)).clusters, 1);
}

TEST(StripesTest, SumsFitTheSharedMemory) {
  const DeviceInfo h200 = HopperWith(132);
  for (const int64_t rows : {1, 8, 9, 16}) {
    for (int64_t in = 64; in < 60000; in += 1472) {
      const FewRowsStripes stripes = StripesOf(rows, 128256, in, h200);
      if (stripes.tiles == 0) {
        EXPECT_GT(FewRowsClusterBytes(rows, in, 1, kStripeWarps), h200.shared_bytes);
        continue;
      }
      EXPECT_EQ(stripes.groups % kStripeWarps, 0);
      EXPECT_LE(FewRowsClusterBytes(rows, in, stripes.tiles, stripes.groups), h200.shared_bytes);
    }
  }
  EXPECT_GT(StripesOf(16, 128256, 4096, h200).groups, StripesOf(16, 128256, 14336, h200).groups);
  EXPECT_EQ(StripesOf(16, 4096, 16384, h200).tiles, 2);
  EXPECT_EQ(StripesOf(16, 14336, 16384, h200).tiles, 2) << "the inputs leave no room for 4";
  EXPECT_NE(StripesOf(9, 4096, 22016, h200).tiles, 0);
  EXPECT_EQ(StripesOf(9, 4096, 22017, h200).tiles, 0);
  EXPECT_NE(StripesOf(8, 4096, 22017, h200).tiles, 0);
}

TEST(StripesTest, OnlyFewRowsAndDevicesOfClusters) {
  DeviceInfo device = HopperWith(132);
  EXPECT_EQ(StripesOf(kFewRows + 1, 14336, 4096, device).tiles, 0);
  for (const auto& [major, minor] : {std::pair(8, 0), {8, 9}, {10, 0}, {12, 0}}) {
    device.major = major;
    device.minor = minor;
    EXPECT_EQ(StripesOf(16, 14336, 4096, device).tiles, 0) << major << "." << minor;
  }
}

struct StripesCase {
  ProductSize shape;
  FewRowsStripes stripes;
  int multiprocessors;
};
// Depths with empty parts; of one stage and more, with short ones; with scales that can be loaded
// at once, and not.
constexpr StripesCase kStripesCases[] = {{{3, 33, 5}, {1, 1, 16}, 132},
                                         {{9, 70, 600}, {4, 1, 16}, 8},
                                         {{16, 521, 37}, {1, 5, 16}, 132},
                                         {{1, 2600, 530}, {2, 2, 32}, 16},
                                         {{16, 3840, 530}, {4, 1, 32}, 8}};

// A device with just so much shared memory.
DeviceInfo DeviceFor(const StripesCase& spread) {
  const auto& [shape, stripes, multiprocessors] = spread;
  DeviceInfo device = HopperWith(multiprocessors);
  device.shared_bytes = FewRowsClusterBytes(shape.rows, shape.in, stripes.tiles, stripes.groups);
  return device;
}

TEST(FewRowsClusterTest, StripesChangeNoBit) {
  for (const StripesCase& spread : kStripesCases) {
    if (kSanitized && spread.shape.in > 33) break;  // the emulation is many times slower then
    const DeviceInfo device = DeviceFor(spread);
    const auto& [rows, in, out] = spread.shape;
    ASSERT_EQ(StripesOf(rows, out, in, device), spread.stripes) << "in " << in << " out " << out;
    ExpectSameBitsOfAll(spread.shape, device);
  }
}

TEST(FewRowsClusterTest, GraphsKeepClusters) {
  BothWays(kStripesCases[0].shape, DeviceFor(kStripesCases[0]))
      .ExpectSameBits(DType::kI8, Activations::kFloat, /*held=*/true);
}

}  // namespace
}  // namespace annulus::cuda
