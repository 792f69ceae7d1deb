#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::testing {
namespace {

using ElementwiseTest = EveryTable;

const int64_t kColumns[] = {1, 2, 7, 8, 15, 16, 17, 33, 100, 1000, 4097};

TEST_P(ElementwiseTest, NormsMatchTheReference) {
  std::mt19937 random(21);
  for (const int64_t cols : kColumns) {
    for (const float epsilon : {0.0f, 1e-5f, 0.5f}) {
      SCOPED_TRACE(::testing::Message() << "cols " << cols << " epsilon " << epsilon);
      TestMatrix input(23, cols, 3);
      TestMatrix weight(1, cols);
      input.FillNormal(random, 3);
      weight.FillNormal(random);
      TestMatrix expected(23, cols);
      TestMatrix actual(23, cols, 1);
      ASSERT_TRUE(
          Reference()
              .norm(*MakeStream(1), {input.view(), weight.row(0), {epsilon}, expected.view()})
              .ok());
      ASSERT_TRUE(table()
                      .norm(*MakeStream(table(), 2),
                            {input.view(), weight.row(0), {epsilon}, actual.view()})
                      .ok());
      EXPECT_TRUE(actual.PaddingUntouched());
      for (int64_t r = 0; r < 23; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          // The sum of squares has no cancellation: relative error of its depth, halved by the
          // root; then four more roundings.
          const double bound = (Rounding(cols) + 8 * kUnit) * std::abs(expected.row(r)[c]);
          ASSERT_NEAR(actual.row(r)[c], expected.row(r)[c], bound) << r << " " << c;
        }
      }
      // In place, a row at a time: the same bits.
      for (int64_t r = 0; r < 23; ++r) {
        const MatrixView row = input.view().row_range(r, 1);
        ASSERT_TRUE(
            table().norm(*MakeStream(table(), 1), {row, weight.row(0), {epsilon}, row}).ok());
        ASSERT_TRUE(SameBits(input.row(r), actual.row(r), cols));
      }
    }
  }
}

// The mean is far from 0, as in rows that only a norm by the variance brings together.
TEST_P(ElementwiseTest, CentredNormsMatchTheirFormula) {
  constexpr int64_t kRows = 12;
  std::mt19937 random(27);
  for (const int64_t cols : kColumns) {
    for (const int64_t weight_rows : {1, 3}) {
      for (const bool biased : {false, true}) {
        SCOPED_TRACE(::testing::Message() << "cols " << cols << ", weights " << weight_rows);
        TestMatrix input(kRows, cols, 3);
        TestMatrix weights(weight_rows, cols);
        TestMatrix bias(1, cols);
        TestMatrix actual(kRows, cols, 1);
        input.FillNormal(random, 3);
        weights.FillNormal(random);
        bias.FillNormal(random);
        for (int64_t r = 0; r < kRows; ++r) {
          for (int64_t c = 0; c < cols; ++c) input.row(r)[c] += 4;
        }
        NormParams params{input.view(), weights.row(0), {1e-3f, true}, actual.view()};
        params.weight_rows = weight_rows;
        if (biased) params.bias = bias.row(0);
        ASSERT_TRUE(table().norm(*MakeStream(table(), 2), params).ok());
        EXPECT_TRUE(actual.PaddingUntouched());
        for (int64_t r = 0; r < kRows; ++r) {
          double mean = 0;
          double squares = 0;
          double largest = 0;
          for (int64_t c = 0; c < cols; ++c) {
            mean += input.row(r)[c] / double(cols);
            largest = std::max(largest, std::abs(double{input.row(r)[c]}));
          }
          for (int64_t c = 0; c < cols; ++c) squares += std::pow(input.row(r)[c] - mean, 2);
          const double root = std::sqrt(squares / double(cols) + 1e-3);
          for (int64_t c = 0; c < cols; ++c) {
            const double weight = weights.row(r % weight_rows)[c];
            const double scaled = (input.row(r)[c] - mean) / root * weight;
            const double expected = scaled + (biased ? bias.row(0)[c] : 0);
            // The mean is off by its roundings, which every number of the row shares.
            const double bound = (Rounding(cols) + 8 * kUnit) *
                                     (std::abs(scaled) + largest / root * std::abs(weight)) +
                                 kUnit * std::abs(expected);
            ASSERT_NEAR(actual.row(r)[c], expected, bound) << r << " " << c;
          }
        }
        // In place, a row at a time: the same bits.
        for (int64_t r = 0; r < kRows; ++r) {
          NormParams alone = params;
          alone.input = alone.output = input.view().row_range(r, 1);
          alone.weight = weights.row(r % weight_rows);
          alone.weight_rows = 1;
          ASSERT_TRUE(table().norm(*MakeStream(table(), 1), alone).ok());
          ASSERT_TRUE(SameBits(input.row(r), actual.row(r), cols));
        }
      }
    }
  }
}

TEST_P(ElementwiseTest, SiluMulMatchesTheReference) {
  std::mt19937 random(22);
  for (const int64_t cols : kColumns) {
    SCOPED_TRACE(cols);
    TestMatrix gate(9, cols, 3);
    TestMatrix up(9, cols);
    gate.FillNormal(random, 10);
    up.FillNormal(random);
    TestMatrix expected(9, cols);
    ASSERT_TRUE(
        Reference().gated_mul(*MakeStream(1), {gate.view(), up.view(), expected.view()}).ok());
    // Over its own input, as the contract allows.
    ASSERT_TRUE(
        table().gated_mul(*MakeStream(table(), 2), {gate.view(), up.view(), gate.view()}).ok());
    EXPECT_TRUE(gate.PaddingUntouched());
    for (int64_t r = 0; r < 9; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        // exp within 1e-6 relative on each side.
        ASSERT_NEAR(gate.row(r)[c], expected.row(r)[c], 2e-6 * std::abs(expected.row(r)[c]));
      }
    }
  }
}

TEST_P(ElementwiseTest, SiluIsAccurateEverywhere) {
  std::vector<float> values;
  for (float x = -110; x <= 110; x += 0.0078125f) values.push_back(x);
  for (const float x : {0.0f, 1e-38f, -1e-38f, 1e-45f, 88.72283f, -88.72283f, -87.33655f, 1e30f}) {
    values.push_back(x);
  }
  const int64_t count = values.size();
  std::vector<float> ones(count, 1.0f);
  std::vector<float> output(count);
  const ConstMatrixView gate{values.data(), 1, count, count};
  ASSERT_TRUE(
      table()
          .gated_mul(*MakeStream(table(), 1),
                     {gate, {ones.data(), 1, count, count}, {output.data(), 1, count, count}})
          .ok());
  for (int64_t i = 0; i < count; ++i) {
    const double x = values[i];
    const double expected = x / (1 + std::exp(-x));
    // Results below float32's normal range may be flushed.
    ASSERT_NEAR(output[i], expected, 1e-6 * std::abs(expected) + 1.5e-38 * std::abs(x) + 1.5e-45)
        << x;
  }
}

TEST_P(ElementwiseTest, SiluKeepsNanAndInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> gate = {infinity, std::nanf(""), -1e30f};
  const std::vector<float> up = {1, 1, 1};
  std::vector<float> output(3);
  ASSERT_TRUE(
      table()
          .gated_mul(*MakeStream(table(), 1),
                     {{gate.data(), 1, 3, 3}, {up.data(), 1, 3, 3}, {output.data(), 1, 3, 3}})
          .ok());
  EXPECT_EQ(output[0], infinity);
  EXPECT_TRUE(std::isnan(output[1]));
  EXPECT_EQ(output[2], 0);
}

TEST_P(ElementwiseTest, OtherActivationsMatchTheirFormulas) {
  std::mt19937 random(25);
  TestMatrix gate(9, 1000, 3);
  TestMatrix up(9, 1000);
  TestMatrix output(9, 1000, 1);
  gate.FillNormal(random, 6);
  up.FillNormal(random, 3);
  for (const Activation activation :
       {Activation::kGeluTanh, Activation::kGeluTanhAlone, Activation::kClampedSwiglu}) {
    const GatedMulParams params{gate.view(), up.view(), output.view(), activation, 1.702f, 7.0f};
    ASSERT_TRUE(table().gated_mul(*MakeStream(table(), 2), params).ok());
    for (int64_t r = 0; r < 9; ++r) {
      for (int64_t c = 0; c < 1000; ++c) {
        double g = gate.row(r)[c];
        double u = up.row(r)[c];
        double expected = 0;
        if (activation == Activation::kGeluTanhAlone) u = 1;
        double size = std::abs(g * u);
        if (activation != Activation::kClampedSwiglu) {
          expected =
              0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u;
        } else {
          g = std::min(g, 7.0);
          u = std::clamp(u, -7.0, 7.0);
          expected = g / (1 + std::exp(-1.702f * g)) * (u + 1);
          size = std::abs(g) * (std::abs(u) + 1);
        }
        ASSERT_NEAR(output.row(r)[c], expected, 1e-6 * size) << g << " " << u;
      }
    }
  }
}

TEST_P(ElementwiseTest, ScaleByZeroClearsWhatIsNotFinite) {
  TestMatrix values(3, 21, 2);
  for (int64_t r = 0; r < 3; ++r) {
    std::fill_n(values.row(r), 21, r == 0 ? NAN : r == 1 ? INFINITY : -2.0f);
  }
  ASSERT_TRUE(table().scale(*MakeStream(table(), 2), {values.view(), 0}).ok());
  for (int64_t r = 0; r < 3; ++r) {
    for (int i = 0; i < 21; ++i) EXPECT_EQ(values.row(r)[i], 0) << r << ", " << i;
  }
}

TEST_P(ElementwiseTest, SoftCapIsTheScaledTanhEverywhere) {
  std::vector<float> values = {0.0f, 1e-30f, -1e-6f, 1e30f, -1e30f};
  for (float x = -200; x <= 200; x += 0.037f) values.push_back(x);
  for (const float cap : {0.5f, 30.0f, 50.0f}) {
    std::vector<float> capped = values;
    const int64_t count = capped.size();
    ASSERT_TRUE(
        table().soft_cap(*MakeStream(table(), 2), {{capped.data(), 1, count, count}, cap}).ok());
    for (int64_t i = 0; i < count; ++i) {
      const double expected = cap * std::tanh(double{values[i]} / cap);
      ASSERT_NEAR(capped[i], expected, 1e-6 * std::abs(expected)) << values[i] << " cap " << cap;
    }
  }
}

TEST_P(ElementwiseTest, NormAddsToItsOutputAndScaleMultiplies) {
  std::mt19937 random(26);
  for (const int64_t cols : kColumns) {
    TestMatrix input(7, cols, 1);
    TestMatrix weight(1, cols);
    TestMatrix output(7, cols, 2);
    input.FillNormal(random);
    weight.FillNormal(random);
    output.FillNormal(random);
    const TestMatrix before = output;
    TestMatrix alone(7, cols);
    const NormParams plain{input.view(), weight.row(0), {1e-5f}, alone.view()};
    ASSERT_TRUE(table().norm(*MakeStream(table(), 1), plain).ok());
    NormParams added = plain;
    added.output = output.view();
    added.accumulate = true;
    ASSERT_TRUE(table().norm(*MakeStream(table(), 2), added).ok());
    EXPECT_TRUE(output.PaddingUntouched());
    for (int64_t r = 0; r < 7; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        ASSERT_EQ(output.row(r)[c], before.row(r)[c] + alone.row(r)[c]);
      }
    }
    ASSERT_TRUE(table().scale(*MakeStream(table(), 2), {alone.view(), 2.5f}).ok());
    ASSERT_TRUE(
        table()
            .norm(*MakeStream(table(), 1), {input.view(), weight.row(0), {1e-5f}, input.view()})
            .ok());
    for (int64_t c = 0; c < cols; ++c) ASSERT_EQ(alone.row(6)[c], input.row(6)[c] * 2.5f);
  }
}

// Angles up to 10M radians, where a float32 product would err by 0.3 radians.
TEST_P(ElementwiseTest, RopeTableIsTheFloat64AngleAtAnyPosition) {
  std::vector<int32_t> positions = {0, 1, 2, 3, 63, 64, 1000, 9999999, 10000000, 2147483647};
  std::mt19937 random(23);
  for (int i = 0; i < 500; ++i) positions.push_back(random() % 10000000);
  const int64_t rows = positions.size();
  for (const int64_t pairs : {1, 3, 4, 7, 8, 9, 32, 67}) {
    for (const float scale : {1.0f, 1.25f}) {
      SCOPED_TRACE(::testing::Message() << pairs << " pairs, scale " << scale);
      std::vector<float> frequencies(pairs);
      for (int64_t i = 0; i < pairs; ++i) {
        frequencies[i] = static_cast<float>(std::pow(10000.0, -double(i) / pairs));
      }
      TestMatrix cosine(rows, pairs, 1);
      TestMatrix sine(rows, pairs, 2);
      ASSERT_TRUE(table()
                      .rope_table(*MakeStream(table(), 2),
                                  {positions, frequencies, scale, cosine.view(), sine.view()})
                      .ok());
      EXPECT_TRUE(cosine.PaddingUntouched() && sine.PaddingUntouched());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < pairs; ++i) {
          const double angle = double{frequencies[i]} * positions[r];
          // An angle within 1e-6 rad moves neither by more than 1e-6; only storing rounds.
          ASSERT_NEAR(cosine.row(r)[i], scale * std::cos(angle), 1e-7) << positions[r];
          ASSERT_NEAR(sine.row(r)[i], scale * std::sin(angle), 1e-7) << positions[r];
          const double seen = std::atan2(double{sine.row(r)[i]}, double{cosine.row(r)[i]});
          ASSERT_LT(std::abs(std::remainder(seen - angle, 2 * M_PI)), 1e-6) << positions[r];
        }
      }
    }
  }
}

TEST_P(ElementwiseTest, RopeMatchesTheReference) {
  std::mt19937 random(24);
  struct Shape {
    int heads;
    int head_dim;
    int64_t pairs;
  };
  for (const Shape& shape : {Shape{1, 2, 1}, Shape{3, 10, 5}, Shape{2, 64, 32}, Shape{5, 80, 20},
                             Shape{1, 7, 3}, Shape{2, 256, 100}}) {
    SCOPED_TRACE(::testing::Message() << shape.heads << " heads of " << shape.head_dim << ", "
                                      << shape.pairs << " pairs");
    const int64_t rows = 37;
    TestMatrix values(rows, int64_t{shape.heads} * shape.head_dim, 3);
    TestMatrix cosine(rows, shape.pairs, 1);
    TestMatrix sine(rows, shape.pairs);
    values.FillNormal(random);
    cosine.FillNormal(random);
    sine.FillNormal(random);
    const TestMatrix before = values;
    TestMatrix expected = values;
    const auto run = [&](const OpTable& table, TestMatrix& x, int threads) {
      const RopeParams params{x.view(), shape.heads, shape.head_dim, cosine.view(), sine.view()};
      ASSERT_TRUE(table.rope(*MakeStream(table, threads), params).ok());
    };
    run(Reference(), expected, 1);
    run(table(), values, 2);
    EXPECT_TRUE(values.PaddingUntouched());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < values.cols(); ++c) {
        const int64_t d = c % shape.head_dim;
        if (d >= 2 * shape.pairs) {
          ASSERT_EQ(values.row(r)[c], before.row(r)[c]);
          continue;
        }
        const int64_t first = c - d + d % shape.pairs;
        // Two products and a sum, each rounded once.
        const double pair = std::hypot(before.row(r)[first], before.row(r)[first + shape.pairs]);
        const double turn =
            std::hypot(cosine.row(r)[d % shape.pairs], sine.row(r)[d % shape.pairs]);
        const double size = pair * turn;
        ASSERT_NEAR(values.row(r)[c], expected.row(r)[c], 4 * kUnit * size) << r << " " << c;
      }
    }
  }
}

ANNULUS_FOR_EVERY_TABLE(ElementwiseTest);

}  // namespace
}  // namespace annulus::testing
