#include "engine/sampling/logprobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/engine/sampling/special_values.h"

namespace annulus {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::Pair;
using ::testing::SizeIs;

TEST(LogprobsTest, EqualsPlainLogSoftmax) {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    std::vector<float> logits(1 + random() % 200);
    for (float& logit : logits) logit = std::round(std::normal_distribution(0.f, 4.f)(random));
    const int32_t token = static_cast<int32_t>(random() % logits.size());
    const int32_t wanted = static_cast<int32_t>(random() % 21);
    const TokenLogprob result = LogprobOf(logits, token, wanted);

    double sum = 0;
    for (float logit : logits) sum += std::exp(double{logit});
    EXPECT_EQ(result.token_id, token);
    EXPECT_NEAR(result.logprob, logits[token] - std::log(sum), 1e-5);

    std::vector<int32_t> order(logits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    ASSERT_THAT(result.alternatives, SizeIs(std::min<size_t>(wanted, logits.size())));
    for (size_t i = 0; i < result.alternatives.size(); ++i) {
      EXPECT_EQ(result.alternatives[i].first, order[i]);
      EXPECT_NEAR(result.alternatives[i].second, logits[order[i]] - std::log(sum), 1e-5);
    }
  }
}

TEST(LogprobsTest, ImpossibleTokensAreNoAlternatives) {
  const std::vector<float> logits = {-kInfinity, 2, kNan, 2};
  EXPECT_THAT(LogprobOf(logits, 3, 20).alternatives,
              ElementsAre(Pair(1, FloatEq(-std::log(2.f))), Pair(3, FloatEq(-std::log(2.f)))));
}

TEST(LogprobsTest, HugeLogitsDoNotOverflow) {
  const std::vector<float> logits = {kInfinity, -3e38f, 3e38f};
  const TokenLogprob result = LogprobOf(logits, 0, 1);
  EXPECT_EQ(result.logprob, 0);
  EXPECT_THAT(result.alternatives, ElementsAre(Pair(0, 0.f)));
}

}  // namespace
}  // namespace annulus
