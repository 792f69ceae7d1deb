// Ops on several residuals of a row, against their formulas in float64.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::testing {
namespace {

using StreamsTest = EveryTable;

constexpr int64_t kRows = 11;
const int64_t kHidden[] = {1, 7, 16, 33, 255, 256, 257, 600, 1100};

// sum_k weights[which, k] * tanh(logits[row, k])
double Factor(const TestMatrix& logits, const std::vector<float>& weights, int64_t row,
              int64_t which) {
  double sum = 0;
  for (int64_t k = 0; k < logits.cols(); ++k) {
    sum += double{weights[static_cast<size_t>(which * logits.cols() + k)]} *
           std::tanh(double{logits.row(row)[k]});
  }
  return sum;
}

std::vector<float> Normal(std::mt19937& random, int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Of a sum of so many terms, each of some roundings and at most so large.
double Slack(int64_t terms, double largest) {
  return 4 * static_cast<double>(terms + 4) * kUnit * largest;
}

TEST_P(StreamsTest, PredictionsMixTheStreamsOfARow) {
  std::mt19937 random(31);
  for (const int count : {1, 3, 4, kMostStreams}) {
    for (const int64_t hidden : kHidden) {
      SCOPED_TRACE(::testing::Message() << count << " streams of " << hidden);
      const int active = count / 2;
      TestMatrix logits(kRows, count, 2), streams(kRows, count * hidden, 3);
      TestMatrix output(kRows, hidden, 1);
      logits.FillNormal(random);
      streams.FillNormal(random, 3);
      const TestMatrix before = streams;
      const std::vector<float> weights = Normal(random, count * count * count);
      ASSERT_TRUE(table()
                      .predict_streams(
                          *MakeStream(table(), 2),
                          {{logits.view(), weights.data()}, active, streams.view(), output.view()})
                      .ok());
      EXPECT_TRUE(streams.PaddingUntouched() && output.PaddingUntouched());
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t j = 0; j < count; ++j) {
          std::vector<double> factors, sizes;
          for (int64_t i = 0; i < count; ++i) {
            const int64_t which = j * count + i;
            factors.push_back(Factor(logits, weights, r, which));
            sizes.push_back(0);
            for (int64_t k = 0; k < count; ++k) {
              sizes.back() += std::abs(weights[static_cast<size_t>(which * count + k)]);
            }
          }
          for (int64_t c = 0; c < hidden; ++c) {
            double sum = before.row(r)[j * hidden + c];
            double size = std::abs(sum);
            for (int64_t i = 0; i < count; ++i) {
              const double x = before.row(r)[i * hidden + c];
              sum += factors[static_cast<size_t>(i)] * x;
              size += sizes[static_cast<size_t>(i)] * std::abs(x);
            }
            ASSERT_NEAR(streams.row(r)[j * hidden + c], sum, Slack(2 * count, size));
          }
        }
        ASSERT_TRUE(SameBits(output.row(r), streams.row(r) + active * hidden, hidden));
      }
    }
  }
}

TEST_P(StreamsTest, CorrectionsMoveEveryStreamByWhatWasComputed) {
  std::mt19937 random(32);
  for (const int count : {1, 3, 4, kMostStreams}) {
    for (const int64_t hidden : kHidden) {
      SCOPED_TRACE(::testing::Message() << count << " streams of " << hidden);
      const int active = count - 1;
      TestMatrix logits(kRows, count), streams(kRows, count * hidden, 3);
      TestMatrix computed(kRows, hidden, 2), output(kRows, hidden, 1), plain(kRows, hidden);
      logits.FillNormal(random);
      streams.FillNormal(random, 3);
      computed.FillNormal(random, 3);
      const TestMatrix before = streams;
      const std::vector<float> weights = Normal(random, count * count);
      const std::vector<float> scale = Normal(random, hidden);
      const auto run = [&](const float* factors, TestMatrix& into, TestMatrix& out) {
        ASSERT_TRUE(table()
                        .correct_streams(*MakeStream(table(), 2), {{logits.view(), weights.data()},
                                                                   active,
                                                                   computed.view(),
                                                                   factors,
                                                                   into.view(),
                                                                   out.view()})
                        .ok());
      };
      run(scale.data(), streams, output);
      TestMatrix again = before;
      run(nullptr, again, plain);
      EXPECT_TRUE(streams.PaddingUntouched() && output.PaddingUntouched());
      for (int64_t r = 0; r < kRows; ++r) {
        ASSERT_TRUE(SameBits(again.row(r), streams.row(r), count * hidden));
        ASSERT_TRUE(SameBits(plain.row(r), streams.row(r) + active * hidden, hidden));
        for (int64_t c = 0; c < hidden; ++c) {
          ASSERT_EQ(output.row(r)[c], plain.row(r)[c] * scale[static_cast<size_t>(c)]);
          const double own = before.row(r)[active * hidden + c];
          const double change = computed.row(r)[c] - own;
          for (int64_t i = 0; i < count; ++i) {
            const double x = before.row(r)[i * hidden + c];
            const double size =
                std::abs(x) + (std::abs(computed.row(r)[c]) + std::abs(own)) * (1 + 3.0 * count);
            ASSERT_NEAR(streams.row(r)[i * hidden + c],
                        x + (1 + Factor(logits, weights, r, i)) * change, Slack(count, size));
          }
        }
      }
    }
  }
}

double MeanSquare(const TestMatrix& matrix, int64_t row) {
  const double norm = matrix.RowNorm(row);
  return norm * norm / static_cast<double>(matrix.cols());
}

TEST_P(StreamsTest, ARowTakesTheMagnitudeOfAnother) {
  constexpr float kFloor = 1e-5f;
  std::mt19937 random(33);
  for (const int64_t cols : kHidden) {
    SCOPED_TRACE(cols);
    TestMatrix input(kRows, cols, 1), like(kRows, cols, 2), sum(kRows, cols, 3);
    input.FillNormal(random);
    like.FillNormal(random, 5);
    sum.FillNormal(random);
    std::fill_n(input.row(3), cols, 1e-4f);  // below the floor
    std::fill_n(input.row(4), cols, 0.0f);
    const TestMatrix before = sum;
    const auto stream = MakeStream(table(), 2);
    ASSERT_TRUE(table()
                    .match_magnitude(*stream, {input.view(), like.view(), kFloor, sum.view(), true})
                    .ok());
    TestMatrix in_place = input;
    ASSERT_TRUE(
        table()
            .match_magnitude(*stream, {in_place.view(), like.view(), kFloor, in_place.view()})
            .ok());
    EXPECT_TRUE(sum.PaddingUntouched() && in_place.PaddingUntouched());
    for (int64_t r = 0; r < kRows; ++r) {
      const double factor =
          std::sqrt(MeanSquare(like, r) / std::max(MeanSquare(input, r), double{kFloor}));
      for (int64_t c = 0; c < cols; ++c) {
        const double wanted = factor * input.row(r)[c];
        const double slack = (Rounding(static_cast<double>(cols)) + 8 * kUnit) * std::abs(wanted);
        ASSERT_NEAR(in_place.row(r)[c], wanted, slack) << r << " " << c;
        ASSERT_NEAR(sum.row(r)[c], before.row(r)[c] + wanted,
                    slack + 2 * kUnit * (std::abs(before.row(r)[c]) + std::abs(wanted)));
      }
    }
  }
}

TEST_P(StreamsTest, WhatIsBelowTheCutoffOfItsRowIsZero) {
  std::mt19937 random(34);
  for (const int64_t cols : kHidden) {
    for (const float deviations : {-0.5f, 0.0f, 1.6448f, 40.0f}) {
      SCOPED_TRACE(::testing::Message() << cols << " columns, " << deviations);
      TestMatrix values(kRows, cols, 3);
      values.FillNormal(random, 2);
      std::fill_n(values.row(2), cols, 1.5f);  // has no deviation
      const TestMatrix before = values;
      ASSERT_TRUE(table().cut_off(*MakeStream(table(), 2), {values.view(), deviations}).ok());
      EXPECT_TRUE(values.PaddingUntouched());
      for (int64_t r = 0; r < kRows; ++r) {
        double mean = 0, squares = 0;
        for (int64_t c = 0; c < cols; ++c) mean += before.row(r)[c] / static_cast<double>(cols);
        for (int64_t c = 0; c < cols; ++c) squares += std::pow(before.row(r)[c] - mean, 2);
        const double cutoff = mean + deviations * std::sqrt(squares / static_cast<double>(cols));
        const double size = before.RowNorm(r) * (1 + std::abs(deviations));
        for (int64_t c = 0; c < cols; ++c) {
          ASSERT_NEAR(values.row(r)[c], std::max(0.0, before.row(r)[c] - cutoff),
                      (Rounding(static_cast<double>(cols)) + 8 * kUnit) * size)
              << r << " " << c;
        }
      }
    }
  }
}

// One row by itself has the bits that it has among others, in all ops one after the other.
TEST_P(StreamsTest, ARowDoesNotDependOnOthers) {
  constexpr int64_t kCount = 4, kCols = 1100;
  std::mt19937 random(35);
  TestMatrix logits(kRows, kCount), streams(kRows, kCount * kCols), output(kRows, kCols);
  TestMatrix computed(kRows, kCols);
  logits.FillNormal(random);
  streams.FillNormal(random);
  computed.FillNormal(random);
  const std::vector<float> weights = Normal(random, kCount * kCount * kCount);
  TestMatrix alone = streams, alone_output(kRows, kCols);
  const auto stream = MakeStream(table(), 3);
  const auto run = [&](TestMatrix& all, TestMatrix& out, int64_t first, int64_t rows) {
    const StreamFactors factors{logits.view().row_range(first, rows), weights.data()};
    const ConstMatrixView given = computed.view().row_range(first, rows);
    const MatrixView into = all.view().row_range(first, rows);
    const MatrixView made = out.view().row_range(first, rows);
    ASSERT_TRUE(table().predict_streams(*stream, {factors, 1, into, made}).ok());
    ASSERT_TRUE(
        table().match_magnitude(*stream, {made, given, 1e-5f, into.columns(0, kCols), true}).ok());
    ASSERT_TRUE(table().correct_streams(*stream, {factors, 2, given, nullptr, into, made}).ok());
    ASSERT_TRUE(table().cut_off(*stream, {made, 0.5f}).ok());
  };
  run(streams, output, 0, kRows);
  for (int64_t r = 0; r < kRows; ++r) {
    run(alone, alone_output, r, 1);
    EXPECT_TRUE(SameBits(alone.row(r), streams.row(r), kCount * kCols));
    EXPECT_TRUE(SameBits(alone_output.row(r), output.row(r), kCols));
  }
}

ANNULUS_FOR_EVERY_TABLE(StreamsTest);

}  // namespace
}  // namespace annulus::testing
