// Linear layers with Activations::kInt8: sums over codes are exact and those of groups are scaled
// in one order, so every table that has them gives the bits of the reference.
#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cpu/activations_case.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::testing {
namespace {

absl::StatusOr<const OpTable*> SelectInt8(const std::string& table, DType weights) {
  KernelRequirements required;
  required.implementation = table;
  required.weights_dtype = weights;
  required.activations = Activations::kInt8;
  required.k_dim = required.v_dim = 64;
  return CpuRegistry().Select(required);
}

// The tables that take int8 activations here.
std::vector<const OpTable*> Tables() {
  std::vector<const OpTable*> tables;
  for (const OpTable* table : CpuRegistry().Available("cpu")) {
    if (SelectInt8(table->name, DType::kI8).ok()) tables.push_back(table);
  }
  return tables;
}

class Int8ActivationsTest : public ::testing::TestWithParam<DType> {
 protected:
  static ActivationsCase Case(int64_t rows, int64_t in, int64_t out, uint32_t seed) {
    return {Activations::kInt8, GetParam(), rows, in, out, seed};
  }
};

void ExpectSameBits(const TestMatrix& expected, const TestMatrix& actual, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    ASSERT_TRUE(SameBits(expected.row(r), actual.row(r), expected.cols())) << "row " << r;
  }
}

TEST_P(Int8ActivationsTest, EveryTableHasTheBitsOfTheReference) {
  ASSERT_FALSE(Tables().empty());
  uint32_t seed = 1;
  const int64_t shapes[][3] = {{1, 1, 1},      {1, 300, 77},   {2, 16, 16},    {3, 63, 65},
                               {5, 257, 15},   {7, 129, 129},  {17, 1100, 47}, {97, 64, 63},
                               {193, 40, 300}, {261, 1030, 35}};
  for (const auto& shape : shapes) {
    const ActivationsCase test = Case(shape[0], shape[1], shape[2], seed++);
    const bool accumulate = seed % 2 == 0;
    const TestMatrix expected = test.Run(Reference(), accumulate, accumulate, shape[0]);
    for (const OpTable* table : Tables()) {
      const PackedMatrix packed = Pack(*table, test.weight, test.weights);
      for (const int64_t step : {shape[0], int64_t{1}, int64_t{4}, int64_t{50}}) {
        SCOPED_TRACE(::testing::Message() << table->name << " rows " << shape[0] << " in "
                                          << shape[1] << " out " << shape[2] << " step " << step);
        ExpectSameBits(expected, test.Run(*table, packed, accumulate, accumulate, step), shape[0]);
      }
    }
  }
}

// Every number of rows has its own tiles; the inputs are more than what one pass of many rows
// takes.
TEST_P(Int8ActivationsTest, ARowHasTheSameBitsInEveryNumberOfRows) {
  constexpr int64_t kMostRows = 40;
  const ActivationsCase test = Case(kMostRows, 1057, 83, 3);
  const TestMatrix expected = test.Run(Reference(), true, true, kMostRows);
  for (const OpTable* table : Tables()) {
    const PackedMatrix packed = Pack(*table, test.weight, test.weights);
    for (int64_t rows = 1; rows <= kMostRows; ++rows) {
      SCOPED_TRACE(::testing::Message() << table->name << " rows " << rows);
      TestMatrix output = test.initial;
      LinearParams params;
      params.input = test.input.view().row_range(0, rows);
      params.weight = &packed;
      params.bias = test.bias.row(0);
      params.accumulate = true;
      params.output = output.view().row_range(0, rows);
      params.activations = Activations::kInt8;
      ASSERT_TRUE(table->linear(*MakeStream(*table, 2), params).ok());
      ExpectSameBits(expected, output, rows);
    }
  }
}

// Codes differ from inputs by at most half a step, as good as independently; those of weights are
// the same on both sides.
TEST_P(Int8ActivationsTest, TheReferenceIsNearFloatActivations) {
  const ActivationsCase test = Case(9, 777, 33, 7);
  const TestMatrix actual = test.Run(Reference(), false, false, 9);
  const PackedMatrix packed = Pack(Reference(), test.weight, test.weights);
  TestMatrix expected = test.initial;
  LinearParams params;
  params.input = test.input.view();
  params.weight = &packed;
  params.output = expected.view();
  ASSERT_TRUE(Reference().linear(*MakeStream(1), params).ok());
  for (int64_t r = 0; r < 9; ++r) {
    float largest = 0;
    for (int64_t i = 0; i < 777; ++i) {
      largest = std::max(largest, std::abs(test.input.row(r)[i]));
    }
    for (int64_t o = 0; o < 33; ++o) {
      const double step = largest / 127 * test.weight.RowNorm(o);
      ASSERT_NEAR(actual.row(r)[o], expected.row(r)[o], kLambda * step / std::sqrt(12.0));
      EXPECT_NE(actual.row(r)[o], expected.row(r)[o]);
    }
  }
}

TEST_P(Int8ActivationsTest, RowsOfZerosTinyNumbersAndNaN) {
  ActivationsCase test = Case(4, 70, 20, 11);
  for (int64_t i = 0; i < 70; ++i) {
    test.input.row(0)[i] = 0;
    test.input.row(1)[i] = 0x1p-140f;
  }
  test.input.row(2)[69] = std::numeric_limits<float>::infinity();
  test.input.row(3)[3] = std::numeric_limits<float>::quiet_NaN();
  for (const OpTable* table : Tables()) {
    SCOPED_TRACE(table->name);
    const TestMatrix output = test.Run(*table, false, false, 4);
    for (int64_t o = 0; o < 20; ++o) {
      EXPECT_EQ(output.row(0)[o], 0);
      EXPECT_EQ(output.row(1)[o], 0);
      EXPECT_TRUE(std::isnan(output.row(2)[o]));
      EXPECT_TRUE(std::isnan(output.row(3)[o]));
    }
  }
}

// Codes of the largest size and as many as there may be: sums of int32 hold them.
TEST_P(Int8ActivationsTest, TheWidestSumsFit) {
  ActivationsCase test = Case(2, kMostInt8Inputs, 17, 13);
  for (int64_t i = 0; i < kMostInt8Inputs; ++i) {
    test.input.row(0)[i] = 1;
    test.input.row(1)[i] = -1;
    for (int64_t o = 0; o < 17; ++o) test.weight.row(o)[i] = 1;
  }
  for (const OpTable* table : Tables()) {
    const TestMatrix output = test.Run(*table, false, false, 2);
    // f16 scales of 8-bit codes are off by up to 2^-11 of themselves.
    const double most = GetParam() == DType::kQ8_0 ? 0x1p-11 * kMostInt8Inputs : 1;
    for (int64_t o = 0; o < 17; ++o) {
      EXPECT_NEAR(output.row(0)[o], kMostInt8Inputs, most) << table->name;
      EXPECT_NEAR(output.row(1)[o], -kMostInt8Inputs, most) << table->name;
    }
  }
}

// Weights of each column: `code` for all inputs, or random bytes where it is negative. Scales (and
// minimums) reach from subnormal to large ones, and some are zero.
PackedMatrix PackCodes(const OpTable& table, DType dtype, int64_t in, int64_t out,
                       const std::vector<int>& codes) {
  std::mt19937 random(29);
  std::vector<std::byte> values(out * QuantizedRowBytes(dtype, in));
  const size_t row_bytes = QuantizedRowBytes(dtype, in);
  for (size_t i = 0; i < values.size(); ++i) {
    const int code = codes[i / row_bytes % codes.size()];
    values[i] = static_cast<std::byte>(code >= 0 ? code : static_cast<int>(random() & 0xff));
    // An int8 code with one scale per column is never -128.
    if (dtype == DType::kI8 && values[i] == std::byte{0x80}) values[i] = std::byte{0x81};
  }
  std::vector<std::byte> scales(out * QuantizedScaleBytes(dtype, in));
  for (size_t i = 0; i < scales.size() / 2; ++i) {
    const bool zero = i % 11 == 3;
    const uint16_t number = zero ? 0 : static_cast<uint16_t>(random() & 0xbbff);  // finite, as f16
    std::memcpy(scales.data() + i * 2, &number, 2);
  }
  return PackMatrix(table, BackendOf(table), {values.data(), dtype, out, in, scales.data()}, dtype)
      .value();
}

// The smallest, the largest and any codes, with inputs of the largest size, alternating or all
// alike.
TEST_P(Int8ActivationsTest, ExtremeCodesAndScalesHaveTheBitsOfTheReference) {
  constexpr int64_t kIn = 1091;
  const std::vector<int> codes = {0x00, 0xff, 0x7f, 0x81, -1};
  ActivationsCase test = Case(6, kIn, 37, 17);
  for (int64_t i = 0; i < kIn; ++i) {
    test.input.row(0)[i] = 3;
    test.input.row(1)[i] = -3;
    test.input.row(2)[i] = i % 2 == 0 ? 5.0f : -5.0f;
    test.input.row(3)[i] = i == 40 ? 0x1p100f : 1.0f;
  }
  const TestMatrix expected =
      test.Run(Reference(), PackCodes(Reference(), GetParam(), kIn, 37, codes), false, false, 6);
  for (const OpTable* table : Tables()) {
    SCOPED_TRACE(table->name);
    const PackedMatrix packed = PackCodes(*table, GetParam(), kIn, 37, codes);
    ExpectSameBits(expected, test.Run(*table, packed, false, false, 6), 6);
    ExpectSameBits(expected, test.Run(*table, packed, false, false, 1), 6);
  }
}

TEST_P(Int8ActivationsTest, OtherTablesSayThatTheyLackThem) {
  for (const OpTable* table : CpuRegistry().Available("cpu")) {
    const auto selected = SelectInt8(table->name, GetParam());
    if (selected.ok()) continue;
    EXPECT_THAT(std::string(selected.status().message()),
                ::testing::HasSubstr(table->name + " misses activations in int8"));
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, Int8ActivationsTest,
                         ::testing::ValuesIn(WeightsFor(Activations::kInt8).begin(),
                                             WeightsFor(Activations::kInt8).end()),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

}  // namespace
}  // namespace annulus::testing
