// Products of few and of many rows: how outputs are cut into blocks, and that rows keep their bits
// whichever kernel multiplies them, and in blocks of any shape.
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

// Kernels of GPUs would take their codes for those of another type.
TEST(MatrixBytesTest, TypesOfGgufFilesAreRefused) {
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    EXPECT_EQ(MatrixBytes(64, 96, dtype).status().code(), absl::StatusCode::kUnimplemented)
        << DTypeName(dtype);
  }
  EXPECT_TRUE(MatrixBytes(64, 96, DType::kI8).ok());
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
  for (const size_t shared_kib : {163, 99}) {
    EXPECT_EQ(FewRowsTiles(200000, true, WithMultiprocessors(108, shared_kib)), 4);
    EXPECT_EQ(FewRowsTiles(200000, false, WithMultiprocessors(128, shared_kib)), 2);
  }
  EXPECT_LE(FewRowsTensorBytes(1), size_t{99} << 10);
  EXPECT_LE(FewRowsTensorBytes(2), size_t{99} << 10);
}

// A multiprocessor of compute capability 9.0 has 228 KiB, of which 1 is taken for every block.
TEST(FewRowsTilesTest, TwoBlocksFitOnAMultiprocessor) {
  for (const int tiles : {1, 2, 4}) {
    EXPECT_LE(kFewRowsBlocks * (FewRowsTensorBytes(tiles) + 1024), size_t{228} << 10) << tiles;
  }
}

TEST(FewRowsBlocksTest, StreamingBlocksAllRunAtOnce) {
  const DeviceInfo h200 = WithMultiprocessors(132, 227);
  EXPECT_EQ(FewRowsBlocks(14336, 4, /*streamed=*/true, h200), 264);
  EXPECT_EQ(FewRowsBlocks(14336, 4, /*streamed=*/false, h200), 448);
  EXPECT_EQ(FewRowsBlocks(4097, 2, /*streamed=*/true, h200), 257);
  EXPECT_EQ(FewRowsBlocks(1, 1, /*streamed=*/true, h200), 1);
}

TEST(ManyRowsTilesTest, EveryMultiprocessorHasABlockBeforeBlocksGrow) {
  const DeviceInfo a100 = WithMultiprocessors(108, 163);
  EXPECT_EQ(ManyRowsTiles(17, 1, a100), 1);
  EXPECT_EQ(ManyRowsTiles(64, 107 * 64, a100), 1);
  EXPECT_EQ(ManyRowsTiles(64, 107 * 64 + 1, a100), 2);
  EXPECT_EQ(ManyRowsTiles(64, 107 * 128, a100), 2);
  EXPECT_EQ(ManyRowsTiles(64, 107 * 128 + 1, a100), 4);
  EXPECT_EQ(ManyRowsTiles(65, 53 * 128 + 1, a100), 4);
  EXPECT_EQ(ManyRowsTiles(2048, 4096, a100), 4);
  EXPECT_EQ(ManyRowsTiles(int64_t{107} * 64 + 1, 1, a100), 4);
}

// Three stages of inputs in bf16 and of codes; two blocks fit on a multiprocessor of 164 KiB.
TEST(ManyRowsTilesTest, BlocksHaveTheirSharedMemory) {
  EXPECT_EQ(ManyRowsBytes(DType::kBF16, 4), size_t{72} << 10);
  EXPECT_EQ(ManyRowsBytes(DType::kI8, 4), size_t{48} << 10);
  EXPECT_EQ(ManyRowsBytes(DType::kF8E5M2, 2), size_t{36} << 10);
  EXPECT_EQ(ManyRowsBytes(DType::kI4G64, 4), size_t{36} << 10);
  EXPECT_EQ(ManyRowsBytes(DType::kI4G32, 1), size_t{27} << 10);
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

// The same of codes of fp8, whose rows have scales of their own.
TEST(FewRowsTest, RowsOfCodesHaveTheBitsThatManyRowsGiveThem) {
  const OpTable table = InvariantOps();
  Backend& backend = testing::BackendOf(table);
  const auto stream = backend.CreateStream(1).value();
  for (const FewShape& shape : kFewShapes) {
    if (kSanitized && shape.in > 100) break;  // the emulation is many times slower then
    std::mt19937 random(static_cast<uint32_t>(shape.in));
    constexpr int64_t kMany = 70;
    testing::TestMatrix input(kMany, shape.in, 1);
    input.FillNormal(random);
    testing::TestMatrix source(shape.out, shape.in);
    source.FillNormal(random);
    const PackedMatrix weight = testing::Pack(table, source, DType::kF8E4M3);
    const auto multiply = [&](int64_t begin, int64_t rows, testing::TestMatrix& output) {
      LinearParams params;
      params.input = input.view().row_range(begin, rows);
      params.weight = &weight;
      params.output = output.view().row_range(begin, rows);
      params.activations = Activations::kFp8;
      ASSERT_TRUE(table.linear(*stream, params).ok());
      ASSERT_TRUE(stream->Synchronize().ok());
    };
    testing::TestMatrix many(kMany, shape.out, 2);
    multiply(0, kMany, many);
    for (const int64_t step : {int64_t{1}, kFewRows, kFewRows + 1}) {
      testing::TestMatrix few(kMany, shape.out, 2);
      for (int64_t begin = 0; begin < kMany; begin += step) {
        multiply(begin, std::min(step, kMany - begin), few);
      }
      for (int64_t r = 0; r < kMany; ++r) {
        ASSERT_TRUE(testing::SameBits(many.row(r), few.row(r), shape.out))
            << "in " << shape.in << " by " << step << " row " << r;
      }
    }
  }
}

struct ManyShape {
  int64_t rows;
  int64_t in;
};

// 4 multiprocessors give 219 outputs blocks of 64 where there are 19 rows, of 128 where there are
// more than 64. 1100 rows are more than blocks take at once (PlaceOfBlock).
TEST(ManyRowsTest, RowsHaveTheSameBitsInBlocksOfEveryShape) {
  constexpr int64_t kOut = 219;
  const DeviceInfo emulated = WithMultiprocessors(4, 163);
  ASSERT_EQ(ManyRowsTiles(19, kOut, emulated), 2);
  ASSERT_EQ(ManyRowsTiles(130, kOut, emulated), 4);
  const OpTable table = Ops();
  Backend& backend = testing::BackendOf(table);
  const auto stream = backend.CreateStream(1).value();
  for (const ManyShape& shape : {ManyShape{130, 37}, ManyShape{130, 611}, ManyShape{1100, 70}}) {
    if (kSanitized && shape.in > 37) break;  // the emulation is many times slower then
    std::mt19937 random(static_cast<uint32_t>(shape.in));
    testing::TestMatrix input(shape.rows, shape.in, 1);
    input.FillNormal(random);
    testing::TestMatrix source(kOut, shape.in);
    source.FillNormal(random);
    for (const DType dtype : testing::kWeightDTypes) {
      if (dtype == DType::kF32 || dtype == DType::kF16) continue;
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(dtype) << " in " << shape.in << " rows " << shape.rows);
      const PackedMatrix weight = testing::Pack(table, source, dtype);
      testing::TestMatrix output(shape.rows, kOut, 2);
      testing::TestMatrix part(19, kOut, 2);
      const auto multiply = [&](int64_t begin, int64_t rows, const MatrixView& to) {
        LinearParams params;
        params.input = input.view().row_range(begin, rows);
        params.weight = &weight;
        params.output = to;
        ASSERT_TRUE(table.linear(*stream, params).ok());
        ASSERT_TRUE(stream->Synchronize().ok());
      };
      multiply(0, shape.rows, output.view());
      ASSERT_TRUE(output.PaddingUntouched());
      for (const int64_t rows : {int64_t{19}, kFewRows}) {
        for (const int64_t begin : {int64_t{0}, int64_t{57}, shape.rows - rows}) {
          multiply(begin, rows, part.view().row_range(0, rows));
          for (int64_t r = 0; r < rows; ++r) {
            ASSERT_TRUE(testing::SameBits(output.row(begin + r), part.row(r), kOut))
                << rows << " rows from " << begin << ", row " << r;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace annulus::cuda
