// Linear layers with Activations::kInt8: sums over codes are exact, so every table that has them
// gives the bits of the reference.
#include <limits>
#include <random>

#include "gtest/gtest.h"
#include "tests/kernels/cpu/activations_case.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::testing {
namespace {

// The tables that take int8 activations here.
std::vector<const OpTable*> Tables() {
  std::vector<const OpTable*> tables;
  for (const OpTable* table : CpuRegistry().Available("cpu")) {
    KernelRequirements required;
    required.implementation = table->name;
    required.weights_dtype = DType::kI8;
    required.activations = Activations::kInt8;
    required.k_dim = required.v_dim = 64;
    if (CpuRegistry().Select(required).ok()) tables.push_back(table);
  }
  return tables;
}

ActivationsCase Int8Case(int64_t rows, int64_t in, int64_t out, uint32_t seed) {
  return {Activations::kInt8, rows, in, out, seed};
}

TEST(Int8ActivationsTest, EveryTableHasTheBitsOfTheReference) {
  ASSERT_FALSE(Tables().empty());
  uint32_t seed = 1;
  const int64_t shapes[][3] = {{1, 1, 1},      {1, 300, 77},   {2, 16, 16},    {3, 63, 65},
                               {5, 257, 15},   {7, 129, 129},  {17, 1100, 47}, {97, 64, 63},
                               {193, 40, 300}, {261, 1030, 35}};
  for (const auto& shape : shapes) {
    const ActivationsCase test = Int8Case(shape[0], shape[1], shape[2], seed++);
    const bool accumulate = seed % 2 == 0;
    const TestMatrix expected = test.Run(Reference(), accumulate, accumulate, shape[0]);
    for (const OpTable* table : Tables()) {
      for (const int64_t step : {shape[0], int64_t{1}, int64_t{4}, int64_t{50}}) {
        SCOPED_TRACE(::testing::Message() << table->name << " rows " << shape[0] << " in "
                                          << shape[1] << " out " << shape[2] << " step " << step);
        const TestMatrix actual = test.Run(*table, accumulate, accumulate, step);
        for (int64_t r = 0; r < shape[0]; ++r) {
          ASSERT_TRUE(SameBits(expected.row(r), actual.row(r), shape[2])) << "row " << r;
        }
      }
    }
  }
}

// Codes differ from inputs by at most half a step, as good as independently; those of weights are
// the same on both sides.
TEST(Int8ActivationsTest, TheReferenceIsNearFloatActivations) {
  const ActivationsCase test = Int8Case(9, 777, 33, 7);
  const TestMatrix actual = test.Run(Reference(), false, false, 9);
  const PackedMatrix packed = Pack(Reference(), test.weight, DType::kI8);
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

TEST(Int8ActivationsTest, RowsOfZerosTinyNumbersAndNaN) {
  ActivationsCase test = Int8Case(4, 70, 20, 11);
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
TEST(Int8ActivationsTest, TheWidestSumsFit) {
  ActivationsCase test = Int8Case(2, kMostInt8Inputs, 17, 13);
  for (int64_t i = 0; i < kMostInt8Inputs; ++i) {
    test.input.row(0)[i] = 1;
    test.input.row(1)[i] = -1;
    for (int64_t o = 0; o < 17; ++o) test.weight.row(o)[i] = 1;
  }
  for (const OpTable* table : Tables()) {
    const TestMatrix output = test.Run(*table, false, false, 2);
    for (int64_t o = 0; o < 17; ++o) {
      EXPECT_NEAR(output.row(0)[o], kMostInt8Inputs, 1) << table->name;
      EXPECT_NEAR(output.row(1)[o], -kMostInt8Inputs, 1) << table->name;
    }
  }
}

}  // namespace
}  // namespace annulus::testing
