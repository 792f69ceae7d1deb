#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::testing {
namespace {

using ExpertsTest = EveryTable;

TEST_P(ExpertsTest, RouteChoosesTheLargestWithTheirSoftmax) {
  std::mt19937 random(31);
  for (const int experts : {1, 3, 8, 60, 128}) {
    for (const int chosen : {1, 2, 8}) {
      if (chosen > experts) continue;
      for (const bool of_chosen : {false, true}) {
        SCOPED_TRACE(::testing::Message() << chosen << " of " << experts);
        TestMatrix logits(37, experts, 2);
        logits.FillNormal(random, 3);
        for (int e = 1; e < experts; e += 2) logits.row(0)[e] = logits.row(0)[0];  // ties
        std::vector<int32_t> picks(37 * chosen);
        std::vector<float> weights(37 * chosen);
        ASSERT_TRUE(
            table()
                .route(*MakeStream(table(), 2), {logits.view(), chosen, of_chosen, picks, weights})
                .ok());
        for (int64_t r = 0; r < 37; ++r) {
          const float* row = logits.row(r);
          std::vector<int32_t> order(experts);
          std::iota(order.begin(), order.end(), 0);
          std::stable_sort(order.begin(), order.end(),
                           [&](int32_t a, int32_t b) { return row[a] > row[b]; });
          double sum = 0;
          for (int i = 0; i < (of_chosen ? chosen : experts); ++i) sum += std::exp(row[order[i]]);
          for (int i = 0; i < chosen; ++i) {
            ASSERT_EQ(picks[r * chosen + i], order[i]) << "row " << r;
            const double expected = std::exp(double{row[order[i]]}) / sum;
            ASSERT_NEAR(weights[r * chosen + i], expected, 2e-6 * expected);
          }
        }
      }
    }
  }
}

TEST_P(ExpertsTest, GathersRowsAndAddsThemBack) {
  std::mt19937 random(32);
  for (const int64_t cols : {1, 7, 16, 33, 1000}) {
    TestMatrix input(20, cols, 3);
    TestMatrix target(20, cols, 1);
    input.FillNormal(random);
    target.FillNormal(random);
    const TestMatrix before = target;
    const std::vector<int32_t> rows = {3, 0, 19, 7};
    const std::vector<float> weights = {0.5f, -2, 0, 1.25f};
    TestMatrix gathered(4, cols, 2);
    ASSERT_TRUE(
        table().gather_rows(*MakeStream(table(), 2), {input.view(), rows, gathered.view()}).ok());
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(SameBits(gathered.row(i), input.row(rows[i]), cols));
    ASSERT_TRUE(
        table()
            .scatter_add(*MakeStream(table(), 2), {gathered.view(), rows, weights, target.view()})
            .ok());
    EXPECT_TRUE(gathered.PaddingUntouched() && target.PaddingUntouched());
    for (int64_t r = 0; r < 20; ++r) {
      const auto found = std::find(rows.begin(), rows.end(), r);
      const float weight = found == rows.end() ? 0 : weights[found - rows.begin()];
      for (int64_t c = 0; c < cols; ++c) {
        const double added = double{weight} * input.row(r)[c];
        ASSERT_NEAR(target.row(r)[c], before.row(r)[c] + added,
                    4 * kUnit * (std::abs(before.row(r)[c]) + std::abs(added)));
      }
    }
  }
}

// A sink is the state {0, sink}, merged.
TEST_P(ExpertsTest, SinkIsAStateWithoutValue) {
  std::mt19937 random(33);
  const int heads = 3;
  const int dim = 20;
  TestMatrix o(5, heads * dim);
  TestMatrix lse(5, heads);
  o.FillNormal(random);
  lse.FillNormal(random, 4);
  lse.row(4)[1] = -std::numeric_limits<float>::infinity();  // no key seen
  for (int d = 0; d < dim; ++d) o.row(4)[dim + d] = 0;
  const TestMatrix before = o;
  const TestMatrix lse_before = lse;
  const float sink[heads] = {0.5f, -3, 40};
  const AttentionState state{o.row(0), lse.row(0), 5, heads, dim};
  ASSERT_TRUE(table().merge_sink(*MakeStream(table(), 2), {state, sink}).ok());
  for (int64_t r = 0; r < 5; ++r) {
    for (int h = 0; h < heads; ++h) {
      const double old = lse_before.row(r)[h];
      const double both = std::log(std::exp(old) + std::exp(double{sink[h]}));
      ASSERT_NEAR(lse.row(r)[h], both, 1e-5 * std::max(1.0, std::abs(both)));
      for (int d = 0; d < dim; ++d) {
        const double expected = before.row(r)[h * dim + d] * std::exp(old - both);
        ASSERT_NEAR(o.row(r)[h * dim + d], expected, 1e-5 * std::abs(expected) + 1e-30);
      }
    }
  }
}

ANNULUS_FOR_EVERY_TABLE(ExpertsTest);

}  // namespace
}  // namespace annulus::testing
