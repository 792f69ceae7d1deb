#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::testing {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

// An AttentionState with its memory.
struct State {
  State(int64_t rows, int heads, int v_dim)
      : rows(rows), heads(heads), v_dim(v_dim), o(rows * heads * v_dim), lse(rows * heads) {}

  AttentionState view() { return {o.data(), lse.data(), rows, heads, v_dim}; }

  void Fill(std::mt19937& random, float lse_centre, float lse_spread) {
    std::normal_distribution<float> normal;
    for (float& x : o) x = normal(random);
    for (float& x : lse) x = lse_centre + lse_spread * normal(random);
  }
  void Clear(int64_t index) {
    std::fill_n(o.begin() + index * v_dim, v_dim, 0.0f);
    lse[index] = kNegativeInfinity;
  }

  int64_t rows;
  int heads;
  int v_dim;
  std::vector<float> o;
  std::vector<float> lse;
};

State Merge(const OpTable& table, State into, State from) {
  EXPECT_TRUE(table.merge_state(*MakeStream(table, 2), {into.view(), from.view()}).ok());
  return into;
}

double LargestLse(const State& a, const State& b) {
  double largest = 1;
  for (const State* state : {&a, &b}) {
    for (const float x : state->lse) {
      if (std::isfinite(x)) largest = std::max(largest, std::abs(double{x}));
    }
  }
  return largest;
}

// Each merge forms weights exp(lse - l) whose exponent is rounded at the size of the lse: eps x
// max|lse| x merges, on values of size max|o| (4 is ample for normal ones).
void ExpectNear(const State& a, const State& b, int merges) {
  const double bound = 8 * kUnit * (LargestLse(a, b) + 1) * merges;
  for (size_t i = 0; i < a.lse.size(); ++i) {
    if (a.lse[i] == kNegativeInfinity || b.lse[i] == kNegativeInfinity) {
      ASSERT_EQ(a.lse[i], b.lse[i]);
    } else {
      ASSERT_NEAR(a.lse[i], b.lse[i], bound) << "lse " << i;
    }
    for (int d = 0; d < a.v_dim; ++d) {
      ASSERT_NEAR(a.o[i * a.v_dim + d], b.o[i * a.v_dim + d], 4 * bound) << "o " << i << " " << d;
    }
  }
}

using MergeTest = EveryTable;

TEST_P(MergeTest, MatchesFloat64) {
  std::mt19937 random(51);
  for (const float centre : {0.0f, 80.0f, -500.0f, 3000.0f}) {
    for (const int v_dim : {1, 7, 16, 33, 128}) {
      SCOPED_TRACE(::testing::Message() << "lse about " << centre << ", v_dim " << v_dim);
      State a(11, 3, v_dim);
      State b(11, 3, v_dim);
      a.Fill(random, centre, 4);
      b.Fill(random, centre, 4);
      State expected(11, 3, v_dim);
      for (size_t i = 0; i < a.lse.size(); ++i) {
        const double m = std::max(a.lse[i], b.lse[i]);
        const double l = m + std::log(std::exp(a.lse[i] - m) + std::exp(b.lse[i] - m));
        expected.lse[i] = static_cast<float>(l);
        for (int d = 0; d < v_dim; ++d) {
          const int64_t at = i * v_dim + d;
          expected.o[at] = static_cast<float>(std::exp(a.lse[i] - l) * a.o[at] +
                                              std::exp(b.lse[i] - l) * b.o[at]);
        }
      }
      ExpectNear(Merge(table(), a, b), expected, 1);
    }
  }
}

TEST_P(MergeTest, EmptyStatesChangeNothing) {
  std::mt19937 random(52);
  State full(5, 2, 19);
  full.Fill(random, 3, 1);
  State empty(5, 2, 19);
  for (int i = 0; i < 10; ++i) empty.Clear(i);
  const State right = Merge(table(), full, empty);
  EXPECT_TRUE(SameBits(right.o.data(), full.o.data(), full.o.size()));
  EXPECT_TRUE(SameBits(right.lse.data(), full.lse.data(), full.lse.size()));
  const State left = Merge(table(), empty, full);
  EXPECT_TRUE(SameBits(left.o.data(), full.o.data(), full.o.size()));
  EXPECT_TRUE(SameBits(left.lse.data(), full.lse.data(), full.lse.size()));
  const State both = Merge(table(), empty, empty);
  EXPECT_EQ(both.o, empty.o);
  EXPECT_EQ(both.lse, empty.lse);
}

// Nor on what an empty state holds.
TEST_P(MergeTest, RowsDoNotDependOnEachOther) {
  if (!table().row_invariant) GTEST_SKIP() << "these kernels do not promise it";
  std::mt19937 random(54);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const int heads : {1, 4, 8, 16, 35}) {
    SCOPED_TRACE(heads);
    State a(1, heads, 20);
    State b(1, heads, 20);
    a.Fill(random, 3, 2);
    b.Fill(random, 3, 2);
    if (heads > 2) {
      a.lse[1] = kNan;
      b.lse[2] = kNegativeInfinity;
      std::fill_n(b.o.begin() + 2 * 20, 20, kNan);
    }
    const State all = Merge(table(), a, b);
    for (int h = 0; h < heads; ++h) {
      const auto alone = [&](const State& state) {
        State one(1, 1, 20);
        std::copy_n(state.o.begin() + h * 20, 20, one.o.begin());
        one.lse[0] = state.lse[h];
        return one;
      };
      const State one = Merge(table(), alone(a), alone(b));
      if (h == 1 && heads > 2) {
        EXPECT_TRUE(std::isnan(all.lse[h]) && std::isnan(all.o[h * 20]));
        continue;
      }
      EXPECT_FALSE(std::isnan(one.lse[0]));
      EXPECT_TRUE(SameBits(&all.lse[h], one.lse.data(), 1)) << "row " << h;
      EXPECT_TRUE(SameBits(&all.o[h * 20], one.o.data(), 20)) << "row " << h;
    }
  }
}

TEST_P(MergeTest, IsCommutativeAndAssociativeWithinTolerance) {
  std::mt19937 random(53);
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    State states[3] = {{7, 2, 24}, {7, 2, 24}, {7, 2, 24}};
    for (State& state : states) {
      state.Fill(random, 20, 10);
      for (int i = 0; i < 14; ++i) {
        if (random() % 4 == 0) state.Clear(i);
      }
    }
    const State& a = states[0];
    const State& b = states[1];
    const State& c = states[2];
    const State right = Merge(table(), a, b);
    const State left = Merge(table(), b, a);
    if (table().row_invariant) {
      EXPECT_TRUE(SameBits(right.o.data(), left.o.data(), left.o.size()));
      EXPECT_TRUE(SameBits(right.lse.data(), left.lse.data(), left.lse.size()));
    } else {
      ExpectNear(right, left, 2);
    }
    ExpectNear(Merge(table(), Merge(table(), a, b), c), Merge(table(), a, Merge(table(), b, c)), 4);
  }
}

TEST_P(MergeTest, AFarSmallerStateVanishes) {
  State big(1, 1, 20);
  State small(1, 1, 20);
  std::fill(big.o.begin(), big.o.end(), 2.0f);
  std::fill(small.o.begin(), small.o.end(), 1e30f);
  big.lse[0] = 500;
  small.lse[0] = -500;
  const State merged = Merge(table(), small, big);
  EXPECT_EQ(merged.o, big.o);
  EXPECT_EQ(merged.lse, big.lse);
}

TEST_P(MergeTest, ManyEqualStatesAverage) {
  std::mt19937 random(54);
  State sum(3, 2, 9);
  for (int i = 0; i < 6; ++i) sum.Clear(i);
  State one(3, 2, 9);
  one.Fill(random, 5, 1);
  const int merges = 64;
  for (int i = 0; i < merges; ++i) sum = Merge(table(), sum, one);
  State expected = one;
  for (float& lse : expected.lse) lse += std::log(float{merges});
  ExpectNear(sum, expected, merges);
}

ANNULUS_FOR_EVERY_TABLE(MergeTest);

}  // namespace
}  // namespace annulus::testing
