// Linear layers with Activations::kFp8: codes are the reference's, sums may have another order.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"
#include "tests/kernels/cpu/activations_case.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::testing {
namespace {

ActivationsCase Fp8Case(int64_t rows, int64_t in, int64_t out, uint32_t seed) {
  return {Activations::kFp8, DType::kF8E4M3, rows, in, out, seed};
}

// Codes grow by at most 2^-4 of their size each, on both sides; else as for float inputs. A library
// of a GPU may keep 13 bits of its sums.
double Tolerance(const ActivationsCase& test, const OpTable& table, int64_t r, int64_t o) {
  const double norms = 1.13 * test.input.RowNorm(r) * test.weight.RowNorm(o);
  const double sums = IsOfGpu(table) && test.input.rows() >= 128 ? kLambda * 0x1p-13 * norms : 0;
  return sums + 2 * Rounding(test.input.cols() + 4) *
                    (norms + std::abs(test.bias.row(0)[o]) + std::abs(test.initial.row(r)[o]));
}

using Fp8ActivationsTest = EveryTable;

TEST_P(Fp8ActivationsTest, MatchesTheReference) {
  uint32_t seed = 1;
  const int64_t shapes[][3] = {{1, 1, 1},       {1, 300, 77},   {2, 16, 16},   {3, 63, 65},
                               {5, 257, 15},    {16, 129, 129}, {17, 515, 47}, {97, 64, 63},
                               {133, 140, 100}, {261, 33, 36}};
  for (const auto& shape : shapes) {
    const ActivationsCase test = Fp8Case(shape[0], shape[1], shape[2], seed);
    const bool bias = seed % 2 == 0;
    const bool accumulate = seed % 3 == 0;
    SCOPED_TRACE(::testing::Message() << "seed " << seed++ << " rows " << shape[0] << " in "
                                      << shape[1] << " out " << shape[2]);
    const TestMatrix expected = test.Run(Reference(), bias, accumulate, shape[0]);
    const TestMatrix actual = test.Run(table(), bias, accumulate, shape[0]);
    for (int64_t r = 0; r < shape[0]; ++r) {
      for (int64_t o = 0; o < shape[2]; ++o) {
        ASSERT_NEAR(actual.row(r)[o], expected.row(r)[o], Tolerance(test, table(), r, o))
            << r << " " << o;
      }
    }
  }
}

// Weights that pick one input each, with codes and scales that are powers of 2 or whole: what
// comes out is the code, whoever sums.
TEST_P(Fp8ActivationsTest, EveryInputIsRoundedToTheNearestCode) {
  for (const int64_t rows : {1, 16, 17, 130}) {
    SCOPED_TRACE(rows);
    ActivationsCase test = Fp8Case(rows, 75, 76, 21);
    for (int64_t o = 0; o < 76; ++o) {
      std::fill_n(test.weight.row(o), 75, 0.0f);
      test.weight.row(o)[o % 75] = 448;  // of scale 1
    }
    for (int64_t r = 0; r < rows; ++r) {
      float* const input = test.input.row(r);
      // Sizes from beyond the subnormal codes up, and ties, which are among 32nds.
      for (int64_t i = 0; i < 75; ++i) {
        const float size = std::ldexp(1.0f, static_cast<int>(test.random() % 20) - 12);
        input[i] =
            i % 3 == 0 ? size * (1 + static_cast<float>(test.random() % 32) / 32) : input[i] * size;
        input[i] = std::clamp(input[i], -448.0f, 448.0f);
      }
      input[r % 75] = 448;
    }
    const TestMatrix output = test.Run(table(), false, false, rows);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t o = 0; o < 76; ++o) {
        const float code = ToFloat(ToFloat8E4M3(test.input.row(r)[o % 75]));
        ASSERT_EQ(output.row(r)[o], 448 * code) << r << " " << o;
      }
    }
  }
}

// Codes differ from inputs by at most 2^-4 of them (2^-10 of the largest where they are small), as
// good as independently; those of weights are the same on both sides.
TEST(Fp8ActivationsReferenceTest, IsNearFloatActivations) {
  const ActivationsCase test = Fp8Case(9, 777, 33, 7);
  const TestMatrix actual = test.Run(Reference(), false, false, 9);
  const PackedMatrix packed = Pack(Reference(), test.weight, DType::kF8E4M3);
  TestMatrix expected = test.initial;
  LinearParams params;
  params.input = test.input.view();
  params.weight = &packed;
  params.output = expected.view();
  ASSERT_TRUE(Reference().linear(*MakeStream(1), params).ok());
  for (int64_t r = 0; r < 9; ++r) {
    for (int64_t o = 0; o < 33; ++o) {
      double squares = 0;
      for (int64_t i = 0; i < 777; ++i) {
        const double product = double{test.input.row(r)[i]} * test.weight.row(o)[i];
        squares += product * product;
      }
      ASSERT_NEAR(actual.row(r)[o], expected.row(r)[o], kLambda * 0x1p-4 * std::sqrt(squares));
      EXPECT_NE(actual.row(r)[o], expected.row(r)[o]);
    }
  }
}

TEST_P(Fp8ActivationsTest, RowsOfZerosTinyNumbersAndNaN) {
  for (const int64_t rows : {4, 20, 132}) {
    ActivationsCase test = Fp8Case(rows, 70, 20, 11);
    for (int64_t i = 0; i < 70; ++i) {
      test.input.row(0)[i] = 0;
      test.input.row(1)[i] = 0x1p-140f;
    }
    test.input.row(2)[69] = std::numeric_limits<float>::infinity();
    test.input.row(3)[3] = std::numeric_limits<float>::quiet_NaN();
    const TestMatrix output = test.Run(table(), false, false, rows);
    for (int64_t o = 0; o < 20; ++o) {
      EXPECT_EQ(output.row(0)[o], 0);
      EXPECT_EQ(output.row(1)[o], 0);
      EXPECT_TRUE(std::isnan(output.row(2)[o]));
      EXPECT_TRUE(std::isnan(output.row(3)[o]));
      for (int64_t r = 4; r < rows; ++r) EXPECT_FALSE(std::isnan(output.row(r)[o]));
    }
  }
}

TEST_P(Fp8ActivationsTest, ARowsBitsDependNotOnTheOthersWhereNoLibraryMultiplies) {
  const ActivationsCase test = Fp8Case(61, 300, 50, 13);
  const TestMatrix whole = test.Run(table(), true, true, 61);
  for (const int64_t step : {1, 7, 11, 16, 33}) {
    const TestMatrix parts = test.Run(table(), true, true, step);
    for (int64_t r = 0; r < 61; ++r) {
      ASSERT_TRUE(SameBits(whole.row(r), parts.row(r), 50)) << "step " << step << " row " << r;
    }
  }
}

ANNULUS_FOR_EVERY_TABLE(Fp8ActivationsTest);

}  // namespace
}  // namespace annulus::testing
