// The router that a bench forces draws as it says, and leaves all else alone.

#include "bench/model/forced_routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"

namespace annulus::bench {
namespace {

constexpr int64_t kExperts = 12;
constexpr int64_t kRows = 20'000;

struct Draws {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

class ForcedRoutingTest : public ::testing::TestWithParam<ForcedRouting> {
 protected:
  ForcedRoutingTest()
      : backend_(CreateCpuBackend().value()), stream_(backend_->CreateStream(1).value()) {
    RegisterForcedKernels(GetParam(), registry_);
    std::mt19937 random(3);
    std::normal_distribution<float> logit;
    for (float& each : logits_) each = logit(random);
  }

  Draws Draw(int64_t first, int64_t rows, const RoutingRule& rule) {
    Draws draws;
    draws.experts.resize(static_cast<size_t>(rows * rule.chosen));
    draws.weights.resize(draws.experts.size());
    RouteParams params;
    params.logits = {logits_.data() + first * kExperts, rows, kExperts, kExperts};
    params.rule = rule;
    params.experts = draws.experts.data();
    params.weights = draws.weights.data();
    EXPECT_TRUE(registry_.Available("cpu").front()->route(*stream_, params).ok());
    return draws;
  }

  // What a draw of one expert should give: the share of each, in no order.
  static std::vector<double> Expected() {
    std::vector<double> shares(kExperts, 1.0);
    for (size_t n = 0; n < shares.size(); ++n) {
      if (GetParam() == ForcedRouting::kZipf) shares[n] = 1 / static_cast<double>(n + 1);
    }
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (double& share : shares) share /= sum;
    return shares;
  }

  const std::unique_ptr<Backend> backend_;
  const std::unique_ptr<Stream> stream_;
  KernelRegistry registry_;
  std::vector<float> logits_ = std::vector<float>(kRows * kExperts);
};

TEST_P(ForcedRoutingTest, DrawsEachExpertAsOftenAsItSays) {
  const Draws draws = Draw(0, kRows, {.chosen = 1});
  std::vector<double> shares(kExperts);
  for (const int32_t e : draws.experts) shares.at(static_cast<size_t>(e)) += 1.0 / kRows;
  std::sort(shares.rbegin(), shares.rend());
  const std::vector<double> expected = Expected();
  for (size_t n = 0; n < shares.size(); ++n) {
    // Five standard deviations of a count.
    EXPECT_NEAR(shares[n], expected[n], 5 * std::sqrt(expected[n] / kRows)) << n;
  }
}

TEST_P(ForcedRoutingTest, ChoosesDistinctExpertsInOrderWithEqualShares) {
  const RoutingRule rule = {.chosen = 5, .normalised = true, .scale = 2.5f};
  const Draws draws = Draw(0, kRows, rule);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t i = r * rule.chosen; i < (r + 1) * rule.chosen; ++i) {
      ASSERT_LT(draws.experts[i], kExperts);
      ASSERT_GT(draws.experts[i], i == r * rule.chosen ? -1 : draws.experts[i - 1]);
      ASSERT_FLOAT_EQ(draws.weights[i], 0.5f);
    }
  }
}

TEST_P(ForcedRoutingTest, ARowDrawsTheSameInAnyBatch) {
  const RoutingRule rule = {.chosen = 3};
  const std::vector<int32_t> all = Draw(0, 100, rule).experts;
  const std::vector<int32_t> one = Draw(42, 1, rule).experts;
  EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + 42 * rule.chosen));
}

TEST_P(ForcedRoutingTest, AllOtherOpsAreThoseOfTheTable) {
  KernelRegistry plain;
  RegisterCpuKernels(plain);
  const auto expected = plain.Available("cpu");
  const auto forced = registry_.Available("cpu");
  ASSERT_EQ(forced.size(), expected.size());
  for (size_t i = 0; i < forced.size(); ++i) {
    EXPECT_EQ(forced[i]->name, expected[i]->name);
    EXPECT_EQ(forced[i]->linear, expected[i]->linear);
    EXPECT_EQ(forced[i]->pack_rows, expected[i]->pack_rows);
    EXPECT_NE(forced[i]->route, expected[i]->route);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ForcedRoutingTest,
                         ::testing::Values(ForcedRouting::kUniform, ForcedRouting::kZipf),
                         [](const auto& info) {
                           return std::string(ForcedRoutingName(info.param));
                         });

}  // namespace
}  // namespace annulus::bench
