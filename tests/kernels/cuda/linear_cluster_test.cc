// Products whose depth is split over clusters of blocks: when they are, and that bits stay.
#include "kernels/cuda/sm90/linear_cluster.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device_waits.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/trial.h"
#include "kernels/cuda/tuning/cluster_plan.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::cuda {
namespace {

DeviceInfo HopperWith(int multiprocessors) {
  DeviceInfo device = FindDevices()->front();
  device.multiprocessors = multiprocessors;
  return device;
}

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
  int64_t rows;
  int64_t in;  // parts of 64: with empty ones, of several stages, with a short last one
  int64_t out;
  int tiles;
  int multiprocessors;  // with which there are so many tiles
};
constexpr ClusterCase kCases[] = {
    {17, 33, 5, 1, 132}, {64, 521, 37, 1, 132}, {70, 1090, 200, 2, 40}, {127, 611, 131, 4, 4}};

// Products of the two tables, on streams of a device with so many multiprocessors.
class BothWays {
 public:
  explicit BothWays(const ClusterCase& shape)
      : shape_(shape), input_(shape.rows, shape.in, 1), source_(shape.out, shape.in) {
    std::mt19937 random(static_cast<uint32_t>(shape.in));
    input_.FillNormal(random);
    source_.FillNormal(random);
    bias_.FillNormal(random);
    const auto waits = std::make_shared<DeviceWaits>(std::chrono::seconds(60));
    stream_ = CudaStream::Create(HopperWith(shape.multiprocessors), waits, /*with_library=*/false)
                  .value();
  }

  // Adds to an output that is there already; in a graph if `held`.
  testing::TestMatrix MultiplyBy(const OpTable& table, const PackedMatrix& weight,
                                 Activations activations, bool held) {
    testing::TestMatrix output(shape_.rows, shape_.out, 2);
    for (int64_t r = 0; r < shape_.rows; ++r) std::fill_n(output.row(r), shape_.out, 0.5f);
    LinearParams params;
    params.input = input_.view();
    params.weight = &weight;
    params.bias = bias_.row(0);
    params.output = output.view();
    params.accumulate = true;
    params.activations = activations;
    const auto graph = held ? stream_->BeginGraph().value() : nullptr;
    EXPECT_TRUE(table.linear(*stream_, params).ok());
    if (held) {
      EXPECT_TRUE(graph->Launch().ok());
    }
    EXPECT_TRUE(stream_->Synchronize().ok());
    EXPECT_TRUE(output.PaddingUntouched());
    return output;
  }

  void ExpectSameBits(DType dtype, Activations activations, bool held) {
    const PackedMatrix weight = testing::Pack(old_, source_, dtype);
    const testing::TestMatrix whole = MultiplyBy(old_, weight, activations, held);
    const testing::TestMatrix split = MultiplyBy(trial_, weight, activations, held);
    for (int64_t r = 0; r < shape_.rows; ++r) {
      ASSERT_TRUE(testing::SameBits(whole.row(r), split.row(r), shape_.out)) << "row " << r;
    }
  }

 private:
  const ClusterCase shape_;
  const OpTable old_ = HopperOps();
  const OpTable trial_ = TrialOf(HopperOps()).value();
  testing::TestMatrix input_;
  testing::TestMatrix source_;
  testing::TestMatrix bias_{1, shape_.out};
  std::unique_ptr<CudaStream> stream_;
};

TEST(LinearClusterTest, ASplitDepthChangesNoBit) {
  for (const ClusterCase& shape : kCases) {
    if (kSanitized && shape.in > 33) break;  // the emulation is many times slower then
    ASSERT_EQ(ClusterTiles(shape.rows, shape.out, HopperWith(shape.multiprocessors)), shape.tiles);
    BothWays both(shape);
    for (const DType dtype : testing::kWeightDTypes) {
      SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " in " << shape.in << " out "
                                        << shape.out << " rows " << shape.rows);
      both.ExpectSameBits(dtype, Activations::kFloat, /*held=*/false);
      if (dtype == DType::kF8E4M3) both.ExpectSameBits(dtype, Activations::kFp8, /*held=*/false);
    }
  }
}

// A graph runs the kernel in clusters too.
TEST(LinearClusterTest, GraphsKeepClusters) {
  BothWays(kCases[0]).ExpectSameBits(DType::kBF16, Activations::kFloat, /*held=*/true);
}

}  // namespace
}  // namespace annulus::cuda
