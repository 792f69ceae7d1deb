#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::testing {
namespace {

struct Shape {
  int64_t rows;
  int64_t in;
  int64_t out;
};

// Sizes that divide nothing evenly, and the edges of the tiles (6 rows, 16 and 64 columns, 96 rows
// and 256 depth per block).
const Shape kShapes[] = {{1, 1, 1},     {1, 300, 77},  {2, 16, 16},    {3, 31, 65},
                         {5, 257, 15},  {6, 64, 64},   {7, 129, 129},  {13, 512, 1},
                         {96, 33, 100}, {97, 255, 63}, {101, 256, 17}, {193, 40, 128}};

enum class Mode { kPlain, kBias, kAccumulate, kBoth };

// All of one product's operands.
struct Case {
  Case(const Shape& shape, uint32_t seed)
      : random(seed),
        input(shape.rows, shape.in, 3),
        weight(shape.out, shape.in),
        bias(1, shape.out),
        initial(shape.rows, shape.out, 5) {
    input.FillNormal(random);
    weight.FillNormal(random);
    bias.FillNormal(random);
    initial.FillNormal(random);
  }

  TestMatrix Run(const OpTable& table, DType dtype, Mode mode, int threads) const {
    const PackedMatrix packed = Pack(table, weight, dtype);
    TestMatrix output = initial;
    LinearParams params;
    params.input = input.view();
    params.weight = &packed;
    params.bias = mode == Mode::kBias || mode == Mode::kBoth ? bias.row(0) : nullptr;
    params.accumulate = mode == Mode::kAccumulate || mode == Mode::kBoth;
    params.output = output.view();
    const auto stream = MakeStream(threads);
    EXPECT_TRUE(table.linear(*stream, params).ok());
    EXPECT_TRUE(output.PaddingUntouched());
    return output;
  }

  // sum_i x_i w_i rounds at every step by at most kUnit of a partial sum, which is at most the
  // product of the norms; bias and the old output add their own size.
  double Tolerance(int64_t r, int64_t o) const {
    const double norms = input.RowNorm(r) * weight.RowNorm(o);
    return 2 * Rounding(input.cols() + 2) *
           (norms + std::abs(bias.row(0)[o]) + std::abs(initial.row(r)[o]));
  }

  std::mt19937 random;
  TestMatrix input;
  TestMatrix weight;
  TestMatrix bias;
  TestMatrix initial;
};

using LinearTest = EveryTable;

TEST_P(LinearTest, MatchesTheReference) {
  uint32_t seed = 1;
  for (const Shape& shape : kShapes) {
    for (const DType dtype : kCpuDTypes) {
      const Mode mode = static_cast<Mode>(seed % 4);
      SCOPED_TRACE(::testing::Message()
                   << "seed " << seed << " rows " << shape.rows << " in " << shape.in << " out "
                   << shape.out << " " << DTypeName(dtype) << " mode " << seed % 4);
      const Case test(shape, seed++);
      const TestMatrix expected = test.Run(Reference(), dtype, mode, 1);
      const TestMatrix actual = test.Run(table(), dtype, mode, 2);
      for (int64_t r = 0; r < shape.rows; ++r) {
        for (int64_t o = 0; o < shape.out; ++o) {
          ASSERT_NEAR(actual.row(r)[o], expected.row(r)[o], test.Tolerance(r, o)) << r << " " << o;
        }
      }
    }
  }
}

// The reference itself against float64.
TEST(LinearReferenceTest, MatchesFloat64) {
  const Case test({5, 333, 21}, 99);
  const TestMatrix actual = test.Run(Reference(), DType::kF32, Mode::kBoth, 1);
  for (int64_t r = 0; r < 5; ++r) {
    for (int64_t o = 0; o < 21; ++o) {
      double expected = double{test.bias.row(0)[o]} + test.initial.row(r)[o];
      for (int64_t i = 0; i < 333; ++i) {
        expected += double{test.input.row(r)[i]} * test.weight.row(o)[i];
      }
      ASSERT_NEAR(actual.row(r)[o], expected, test.Tolerance(r, o)) << r << " " << o;
    }
  }
}

TEST_P(LinearTest, ARowsBitsDependOnNeitherTheOtherRowsNorTheThreads) {
  for (const DType dtype : kCpuDTypes) {
    SCOPED_TRACE(DTypeName(dtype));
    const int64_t rows = 103;
    const int64_t in = 523;
    const int64_t out = 150;
    const Case test({rows, in, out}, 5);
    const TestMatrix whole = test.Run(table(), dtype, Mode::kBoth, 1);
    for (const int threads : {2, 3, 7}) {
      const TestMatrix again = test.Run(table(), dtype, Mode::kBoth, threads);
      for (int64_t r = 0; r < rows; ++r) ASSERT_TRUE(SameBits(whole.row(r), again.row(r), out));
    }
    const PackedMatrix packed = Pack(table(), test.weight, dtype);
    const auto stream = MakeStream(2);
    for (const int64_t step : {1, 2, 5, 6, 7, 50, 96, 100}) {
      TestMatrix output = test.initial;
      for (int64_t begin = 0; begin < rows; begin += step) {
        const int64_t count = std::min(step, rows - begin);
        LinearParams params;
        params.input = test.input.view().row_range(begin, count);
        params.weight = &packed;
        params.bias = test.bias.row(0);
        params.accumulate = true;
        params.output = output.view().row_range(begin, count);
        ASSERT_TRUE(table().linear(*stream, params).ok());
      }
      for (int64_t r = 0; r < rows; ++r) {
        ASSERT_TRUE(SameBits(whole.row(r), output.row(r), out)) << "step " << step << " row " << r;
      }
    }
  }
}

TEST_P(LinearTest, NoRowsAreNoWork) {
  const Case test({1, 20, 30}, 3);
  const PackedMatrix packed = Pack(table(), test.weight, DType::kF32);
  LinearParams params;
  params.input = test.input.view().row_range(0, 0);
  params.weight = &packed;
  params.output = TestMatrix(1, 30).view().row_range(0, 0);
  EXPECT_TRUE(table().linear(*MakeStream(2), params).ok());
}

TEST_P(LinearTest, EmbedGathersRowsExactly) {
  std::mt19937 random(11);
  for (const int64_t hidden : {1, 8, 255, 256, 257, 600}) {
    for (const DType dtype : kCpuDTypes) {
      SCOPED_TRACE(::testing::Message() << "hidden " << hidden << " " << DTypeName(dtype));
      const int64_t vocabulary = 37;
      TestMatrix weight(vocabulary, hidden);
      weight.FillNormal(random);
      const PackedMatrix packed = Pack(table(), weight, dtype);
      std::vector<int32_t> ids(200);
      for (int32_t& id : ids) id = random() % vocabulary;
      TestMatrix output(ids.size(), hidden, 2);
      ASSERT_TRUE(table().embed(*MakeStream(3), {&packed, ids, output.view()}).ok());
      std::vector<std::byte> narrow(hidden * DTypeSize(dtype));
      std::vector<float> expected(hidden);
      for (size_t r = 0; r < ids.size(); ++r) {
        ConvertFromFloat(dtype, weight.row(ids[r]), narrow.data(), hidden);
        ConvertToFloat(dtype, narrow.data(), expected.data(), hidden);
        ASSERT_TRUE(SameBits(output.row(r), expected.data(), hidden)) << "row " << r;
      }
      EXPECT_TRUE(output.PaddingUntouched());
    }
  }
}

TEST_P(LinearTest, PackConvertsBetweenAllStorageTypes) {
  std::mt19937 random(13);
  TestMatrix weight(19, 270);
  weight.FillNormal(random);
  std::vector<int32_t> ids(19);
  for (int i = 0; i < 19; ++i) ids[i] = i;
  for (const DType from : kCpuDTypes) {
    std::vector<std::byte> stored(19 * 270 * DTypeSize(from));
    ConvertFromFloat(from, weight.row(0), stored.data(), 19 * 270);
    for (const DType to : kCpuDTypes) {
      SCOPED_TRACE(::testing::Message() << DTypeName(from) << " to " << DTypeName(to));
      const absl::StatusOr<PackedMatrix> packed =
          table().pack_matrix(CpuBackend(), {stored.data(), from, 19, 270}, to);
      ASSERT_TRUE(packed.ok()) << packed.status();
      EXPECT_EQ(packed->out_features, 19);
      EXPECT_EQ(packed->in_features, 270);
      EXPECT_EQ(packed->dtype, to);
      TestMatrix output(19, 270);
      ASSERT_TRUE(table().embed(*MakeStream(1), {&*packed, ids, output.view()}).ok());
      std::vector<float> expected(19 * 270);
      std::vector<std::byte> narrow(expected.size() * DTypeSize(to));
      ConvertToFloat(from, stored.data(), expected.data(), expected.size());
      ConvertFromFloat(to, expected.data(), narrow.data(), expected.size());
      ConvertToFloat(to, narrow.data(), expected.data(), expected.size());
      EXPECT_TRUE(SameBits(output.row(0), expected.data(), expected.size()));
    }
  }
}

TEST_P(LinearTest, PackRefusesImpossibleMatrices) {
  const float value = 1;
  const int64_t huge = std::numeric_limits<int64_t>::max();
  const HostTensorView impossible[] = {
      {&value, DType::kF32, 0, 1},    {&value, DType::kF32, 1, 0},
      {&value, DType::kF32, -1, 5},   {&value, DType::kF32, huge, 1},
      {&value, DType::kF32, 1, huge}, {&value, DType::kF32, int64_t{1} << 33, int64_t{1} << 33},
      {&value, DType::kI8, 1, 1}};
  for (const HostTensorView& source : impossible) {
    EXPECT_EQ(table().pack_matrix(CpuBackend(), source, DType::kBF16).status().code(),
              absl::StatusCode::kInvalidArgument)
        << source.rows << " x " << source.cols << " " << DTypeName(source.dtype);
  }
  EXPECT_EQ(table()
                .pack_matrix(CpuBackend(), {&value, DType::kF32, 1, 1}, DType::kF8E4M3)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  // Possible in principle, but not in this machine's memory.
  EXPECT_EQ(table()
                .pack_matrix(CpuBackend(),
                             {&value, DType::kF32, int64_t{1} << 25, int64_t{1} << 30}, DType::kF32)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
}

ANNULUS_FOR_EVERY_CPU_TABLE(LinearTest);

}  // namespace
}  // namespace annulus::testing
