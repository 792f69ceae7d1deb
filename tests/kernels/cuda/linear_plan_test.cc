// Products of few rows: how outputs are cut into blocks, and that rows keep their bits whichever
// kernel multiplies them.
#include "kernels/cuda/tuning/linear_plan.h"

#include <random>

#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/sm80/linear.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::cuda {
namespace {

DeviceInfo WithMultiprocessors(int multiprocessors, size_t shared_kib) {
  DeviceInfo device;
  device.multiprocessors = multiprocessors;
  device.shared_bytes = shared_kib << 10;
  return device;
}

TEST(FewRowsTilesTest, EveryMultiprocessorHasABlockBeforeBlocksGrow) {
  const DeviceInfo h200 = WithMultiprocessors(132, 227);
  EXPECT_EQ(FewRowsTiles(1, true, h200), 1);
  EXPECT_EQ(FewRowsTiles(132 * 16 - 1, true, h200), 1);
  EXPECT_EQ(FewRowsTiles(132 * 16, true, h200), 2);
  EXPECT_EQ(FewRowsTiles(132 * 32 - 1, true, h200), 2);
  EXPECT_EQ(FewRowsTiles(132 * 32, true, h200), 4);
  EXPECT_EQ(FewRowsTiles(200000, true, h200), 4);
  EXPECT_EQ(FewRowsTiles(132 * 16 - 1, false, h200), 1);
  EXPECT_EQ(FewRowsTiles(200000, false, h200), 2);
}

// 163 KiB for a block on compute capability 8.0, 99 on 8.6 and 8.9.
TEST(FewRowsTilesTest, BlocksHaveTheirSharedMemory) {
  EXPECT_EQ(FewRowsTiles(200000, true, WithMultiprocessors(108, 163)), 4);
  EXPECT_EQ(FewRowsTiles(200000, true, WithMultiprocessors(128, 99)), 2);
  EXPECT_EQ(FewRowsTiles(200000, false, WithMultiprocessors(128, 99)), 2);
  EXPECT_LE(FewRowsTensorBytes(1), size_t{99} << 10);
}

TEST(Fp8ProductsTest, FollowComputeCapability) {
  const auto of = [](int major, int minor) {
    DeviceInfo device;
    device.major = major;
    device.minor = minor;
    return Fp8ProductsOf(device);
  };
  EXPECT_EQ(of(8, 0), Fp8Products::kNone);
  EXPECT_EQ(of(8, 7), Fp8Products::kNone);
  EXPECT_EQ(of(8, 9), Fp8Products::kSums);
  EXPECT_EQ(of(9, 0), Fp8Products::kScaled);
  EXPECT_EQ(of(10, 0), Fp8Products::kSums);
  EXPECT_EQ(of(12, 1), Fp8Products::kSums);
}

TEST(Fp8ProductsTest, OutputsAreWordsOfSixteenBytes) {
  alignas(16) float memory[64];
  EXPECT_TRUE(Fp8OutputFits({memory, 2, 8, 12}));
  EXPECT_FALSE(Fp8OutputFits({memory, 2, 7, 12}));
  EXPECT_FALSE(Fp8OutputFits({memory, 2, 8, 13}));
  EXPECT_FALSE(Fp8OutputFits({memory + 2, 2, 8, 12}));
}

struct FewShape {
  int64_t in;
  int64_t out;  // the emulated device has 4 multiprocessors: tiles of 1, 2 and 4
};

// Depths of one part, of several with a short last one, and of stages that end amid a part.
const FewShape kFewShapes[] = {{33, 5}, {521, 37}, {1090, 70}, {2113, 131}};

// A batch beyond kFewRows is multiplied by the tiles of many rows; each of its rows, alone and
// among few, must come out the same.
TEST(FewRowsTest, RowsHaveTheBitsThatManyRowsGiveThem) {
  const OpTable table = Ops();
  Backend& backend = testing::BackendOf(table);
  const auto stream = backend.CreateStream(1).value();
  for (const FewShape& shape : kFewShapes) {
    if (kSanitized && shape.in > 100) break;  // the emulation is many times slower then
    std::mt19937 random(static_cast<uint32_t>(shape.in));
    constexpr int64_t kMany = kFewRows + 3;
    testing::TestMatrix input(kMany, shape.in, 1);  // rows that do not start at 16 bytes
    input.FillNormal(random);
    testing::TestMatrix source(shape.out, shape.in);
    source.FillNormal(random);
    testing::TestMatrix bias(1, shape.out);
    bias.FillNormal(random);
    for (const DType dtype : testing::kWeightDTypes) {
      const PackedMatrix weight = testing::Pack(table, source, dtype);
      const auto multiply = [&](int64_t begin, int64_t rows, testing::TestMatrix& output) {
        LinearParams params;
        params.input = input.view().row_range(begin, rows);
        params.weight = &weight;
        params.bias = bias.row(0);
        params.output = output.view().row_range(begin, rows);
        ASSERT_TRUE(table.linear(*stream, params).ok());
        ASSERT_TRUE(stream->Synchronize().ok());
      };
      testing::TestMatrix many(kMany, shape.out, 2);
      multiply(0, kMany, many);
      for (const int64_t step : {int64_t{1}, int64_t{7}, int64_t{9}, kFewRows}) {
        SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " in " << shape.in << " out "
                                          << shape.out << " by " << step);
        testing::TestMatrix few(kMany, shape.out, 2);
        for (int64_t begin = 0; begin < kMany; begin += step) {
          multiply(begin, std::min(step, kMany - begin), few);
        }
        ASSERT_TRUE(few.PaddingUntouched());
        for (int64_t r = 0; r < kMany; ++r) {
          ASSERT_TRUE(testing::SameBits(many.row(r), few.row(r), shape.out)) << "row " << r;
        }
      }
    }
  }
}

}  // namespace
}  // namespace annulus::cuda
