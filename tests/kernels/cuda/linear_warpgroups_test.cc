// Products of some rows by wgmma: when they are one launch, its shape, and that bits stay.
#include "kernels/cuda/sm90/linear_warpgroups.h"

#include <cstring>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cuda/tuning/warpgroup_plan.h"
#include "tests/kernels/cuda/both_ways.h"
#include "tests/support/cuda/emulated_device.h"

namespace annulus::cuda {
namespace {

using testing::TestMatrix;

constexpr DType kBF16 = DType::kBF16;

TEST(WarpgroupShapeTest, TilesHoldAllRowsWhereInputsFit) {
  const DeviceInfo h200 = HopperWith(132);
  const auto shape = [&](const JointProducts& products) {
    return WarpgroupShapeOf(products, h200);
  };
  // q, k and v, the output, gate and up, down of Qwen2.5 0.5B.
  EXPECT_EQ(shape({64, 896, 18, kBF16}), (WarpgroupShape{64, 18, 2}));
  EXPECT_EQ(shape({64, 896, 14, kBF16}), (WarpgroupShape{64, 14, 2}));
  EXPECT_EQ(shape({64, 896, 152, kBF16}), (WarpgroupShape{64, 33, 2}));
  EXPECT_EQ(shape({64, 4864, 14, kBF16}), (WarpgroupShape{64, 14, 2}));
  EXPECT_EQ(shape({17, 896, 18, kBF16}), (WarpgroupShape{32, 18, 2}));
  EXPECT_EQ(shape({33, 896, 18, kBF16}).rows, 64);
  EXPECT_EQ(shape({32, 896, 18, kBF16}).rows, 32);
  EXPECT_EQ(shape({65, 896, 18, kBF16}), (WarpgroupShape{64, 16, 2})) << "two tiles of rows";
  EXPECT_EQ(shape({127, 896, 18, DType::kI4G32}), (WarpgroupShape{64, 16, 2}));
  EXPECT_EQ(shape({64, 896, 1, kBF16}).clusters, 1);
  EXPECT_EQ(shape({32, 4096, 448, kBF16}), (WarpgroupShape{32, 33, 2}));
  EXPECT_EQ(shape({64, 4096, 448, kBF16}), (WarpgroupShape{64, 16, 6}))
      << "one block of a multiprocessor, whose memory holds more sums";
}

TEST(WarpgroupShapeTest, LongInputsMakeTilesOfFewerRows) {
  const DeviceInfo h200 = HopperWith(132);
  const auto rows = [&](int64_t rows, int64_t in) {
    return WarpgroupShapeOf({rows, in, 14, kBF16}, h200).rows;
  };
  EXPECT_EQ(rows(127, 8192), 64);
  EXPECT_EQ(rows(65, 8192), 64);
  EXPECT_EQ(rows(65, 8193), 0) << "weights would be read three times";
  EXPECT_EQ(rows(64, 8192), 64);
  EXPECT_EQ(rows(64, 8193), 32);
  EXPECT_EQ(rows(64, 18432), 32);
  EXPECT_EQ(rows(17, 18432), 32);
  EXPECT_EQ(rows(17, 18433), 0);
  for (const int64_t in : {64, 896, 3072, 4096, 8192, 18432}) {
    for (const int64_t tiles : {1, 14, 152, 3000}) {
      const WarpgroupShape shape = WarpgroupShapeOf({64, in, tiles, kBF16}, h200);
      if (shape.rows == 0) continue;
      EXPECT_EQ(shape.held % kWarpgroups, 0);
      EXPECT_LE(WarpgroupBytes(shape.rows, in, shape.held), h200.shared_bytes);
    }
  }
}

TEST(WarpgroupShapeTest, OnlyWhereItMayGain) {
  DeviceInfo device = HopperWith(132);
  EXPECT_EQ(WarpgroupShapeOf({kFewRows, 896, 14, kBF16}, device).rows, 0);
  EXPECT_EQ(WarpgroupShapeOf({kLibraryRows, 896, 14, kBF16}, device).rows, 0);
  // 28 bytes of sums an output and row, beside 1792 of weights an output.
  EXPECT_EQ(WarpgroupShapeOf({64, 896, 2374, kBF16}, device).rows, 64);
  EXPECT_EQ(WarpgroupShapeOf({32, 448, 2374, kBF16}, device).rows, 32);
  EXPECT_EQ(WarpgroupShapeOf({64, 895, 264, kBF16}, device).rows, 0);
  EXPECT_EQ(WarpgroupShapeOf({64, 895, 263, kBF16}, device).rows, 64) << "too few blocks otherwise";
  EXPECT_EQ(WarpgroupShapeOf({64, 1791, 264, DType::kI8}, device).rows, 0);
  EXPECT_EQ(WarpgroupShapeOf({64, 1792, 264, DType::kI8}, device).rows, 64);
  for (const auto& [major, minor] : {std::pair(8, 0), {8, 9}, {10, 0}, {12, 0}}) {
    device.major = major;
    device.minor = minor;
    EXPECT_EQ(WarpgroupShapeOf({64, 896, 14, kBF16}, device).rows, 0) << major << "." << minor;
  }
}

struct WarpgroupCase {
  ProductSize shape;  // parts with empty ones, of several stages, with a short last one
  WarpgroupShape launch;
  int multiprocessors;
  int64_t shared_bytes = 227 << 10;
};
constexpr WarpgroupCase kCases[] = {
    {{17, 33, 5}, {32, 1, 2}, 132},
    {{64, 521, 137}, {64, 3, 2}, 132},
    {{70, 1090, 200}, {64, 1, 2}, 8, 130000},  // two tiles of rows, two rounds of sums
    {{33, 611, 330}, {32, 1, 4}, 8, 110000}};

DeviceInfo DeviceFor(const WarpgroupCase& split) {
  DeviceInfo device = HopperWith(split.multiprocessors);
  device.shared_bytes = static_cast<size_t>(split.shared_bytes);
  return device;
}

WarpgroupShape ShapeOf(const WarpgroupCase& split) {
  const auto& [rows, in, out] = split.shape;
  return WarpgroupShapeOf({rows, in, WarpgroupTiles(out), kBF16}, DeviceFor(split));
}

OpTable Trial() { return WarpgroupTrialOf(HopperOps()).value(); }

TEST(LinearWarpgroupsTest, BitsAreThoseOfTheOtherKernels) {
  for (const WarpgroupCase& split : kCases) {
    if (kSanitized && split.shape.in > 33) break;  // the emulation is many times slower then
    ASSERT_EQ(ShapeOf(split), split.launch) << "in " << split.shape.in;
    ExpectSameBitsOfAll(split.shape, DeviceFor(split), Trial());
  }
}

TEST(LinearWarpgroupsTest, GraphsKeepClusters) {
  BothWays(kCases[0].shape, DeviceFor(kCases[0]), Trial())
      .ExpectSameBits(DType::kI8, Activations::kFloat, /*held=*/true);
}

// Products of one input by a table, on a stream of a device.
class JointTest : public ::testing::Test {
 protected:
  static constexpr int64_t kIn = 70;
  static constexpr int64_t kMostRows = 127;

  JointTest() {
    std::mt19937 random(5);
    input_.FillNormal(random);
    for (TestMatrix& source : sources_) source.FillNormal(random);
    bias_.FillNormal(random);
  }

  // The outputs of so many of the first rows, one matrix after the other, and how many launches
  // they took. The first weights are of `first`, the others of `dtype`.
  std::vector<float> Multiply(const OpTable& table, const DeviceInfo& device, int64_t rows,
                              DType first, DType dtype, Activations activations, bool together) {
    const auto waits = std::make_shared<DeviceWaits>(std::chrono::seconds(60));
    const auto stream = CudaStream::Create(device, waits, /*with_library=*/false).value();
    std::vector<PackedMatrix> weights;
    std::vector<TestMatrix> outputs;
    std::vector<LinearParams> parts;
    for (const TestMatrix& source : sources_) {
      weights.push_back(testing::Pack(table, source, weights.empty() ? first : dtype));
      outputs.emplace_back(rows, weights.back().out_features, 3);
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      LinearParams part;
      part.input = input_.view().row_range(0, rows);
      part.weight = &weights[i];
      part.bias = i == 1 ? bias_.row(0) : nullptr;
      part.output = outputs[i].view();
      part.activations = activations;
      parts.push_back(part);
    }
    const int64_t before = EmulatedDevice::Get().launches;
    if (together) {
      EXPECT_TRUE(table.linears(*stream, parts).ok());
    } else {
      for (const LinearParams& part : parts) EXPECT_TRUE(table.linear(*stream, part).ok());
    }
    EXPECT_TRUE(stream->Synchronize().ok());
    launches_ = EmulatedDevice::Get().launches - before;
    std::vector<float> all;
    for (TestMatrix& output : outputs) {
      EXPECT_TRUE(output.PaddingUntouched());
      for (int64_t r = 0; r < rows; ++r) {
        all.insert(all.end(), output.row(r), output.row(r) + output.cols());
      }
    }
    return all;
  }

  static bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  TestMatrix input_{kMostRows, kIn, 2};
  std::vector<TestMatrix> sources_ = {TestMatrix(130, kIn), TestMatrix(20, kIn),
                                      TestMatrix(67, kIn)};
  TestMatrix bias_{1, 20};
  int64_t launches_ = 0;
};

TEST_F(JointTest, ProductsOfTheSameRowsAreOneLaunch) {
  const OpTable trial = Trial();
  for (const auto& [dtype, activations] : {std::pair(kBF16, Activations::kFloat),
                                           {DType::kI4G32, Activations::kFloat},
                                           {DType::kF8E4M3, Activations::kFp8}}) {
    // 6 tiles: a cluster for each, and all in one.
    for (const int multiprocessors : {132, 4}) {
      const DeviceInfo device = HopperWith(multiprocessors);
      const std::vector<float> old =
          Multiply(HopperOps(), device, 40, dtype, dtype, activations, true);
      EXPECT_EQ(launches_, 4) << "the rounding of inputs, and three products";
      EXPECT_TRUE(SameBits(Multiply(trial, device, 40, dtype, dtype, activations, true), old))
          << DTypeName(dtype);
      EXPECT_EQ(launches_, activations == Activations::kFp8 ? 2 : 1);
      EXPECT_TRUE(SameBits(Multiply(trial, device, 40, dtype, dtype, activations, false), old));
      EXPECT_EQ(launches_, activations == Activations::kFp8 ? 6 : 3);
    }
  }
}

// Other forms of weights, float32 ones and other rows go apart.
TEST_F(JointTest, OnlyTheLikeGoTogether) {
  const OpTable trial = Trial();
  const DeviceInfo device = HopperWith(132);
  const auto expect = [&](DType first, int64_t rows, int64_t launches) {
    const std::vector<float> old =
        Multiply(HopperOps(), device, rows, first, kBF16, Activations::kFloat, true);
    EXPECT_TRUE(
        SameBits(Multiply(trial, device, rows, first, kBF16, Activations::kFloat, true), old));
    EXPECT_EQ(launches_, launches) << DTypeName(first) << " of " << rows << " rows";
  };
  expect(DType::kI8, 20, 2);
  expect(DType::kF32, 20, 2);
  expect(kBF16, kFewRows, 3);
}

// The law of row-invariant tables, but for how mma and wgmma add (linear_warpgroups.h): 17 rows
// have the same bits beside others, in tiles of any number of rows, in stripes of any length and
// with other products; and so has each alone.
TEST_F(JointTest, ARowHasTheSameBitsInAnyLaunch) {
  const OpTable trial = Trial();
  for (const DType dtype : {kBF16, DType::kI4G64, DType::kF8E4M3}) {
    const auto rows_of = [&](const std::vector<float>& all, int64_t rows, int64_t count) {
      std::vector<float> first;
      size_t at = 0;
      for (const TestMatrix& source : sources_) {
        const auto cols = static_cast<size_t>(source.rows());
        first.insert(first.end(), all.begin() + at, all.begin() + at + cols * count);
        at += cols * static_cast<size_t>(rows);
      }
      return first;
    };
    const auto multiply = [&](int64_t rows, int multiprocessors, bool together) {
      return Multiply(trial, HopperWith(multiprocessors), rows, dtype, dtype, Activations::kFloat,
                      together);
    };
    const std::vector<float> expected = multiply(17, 132, true);
    for (const int64_t rows : {33, 65, 127}) {
      for (const int multiprocessors : {132, 16, 4}) {
        EXPECT_TRUE(
            SameBits(rows_of(multiply(rows, multiprocessors, rows != 65), rows, 17), expected))
            << DTypeName(dtype) << ", rows " << rows << ", multiprocessors " << multiprocessors;
      }
    }
    EXPECT_TRUE(SameBits(multiply(1, 132, true), rows_of(expected, 17, 1)));
  }
}

}  // namespace
}  // namespace annulus::cuda
