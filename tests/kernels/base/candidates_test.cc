#include "kernels/base/candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/engine/sampling/chi_square.h"
#include "tests/engine/sampling/special_values.h"

namespace annulus {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAreArray;

std::vector<Candidate> Candidates(const std::vector<float>& values) {
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < values.size(); ++i) {
    candidates.push_back({values[i], static_cast<int32_t>(i)});
  }
  return candidates;
}

std::vector<int32_t> Tokens(std::span<const Candidate> candidates) {
  std::vector<int32_t> tokens;
  for (const Candidate& candidate : candidates) tokens.push_back(candidate.token);
  return tokens;
}

TEST(ReadLogitTest, MapsNanAndInfinity) {
  EXPECT_EQ(ReadLogit(kNan), -kInfinity);
  EXPECT_EQ(ReadLogit(-kInfinity), -kInfinity);
  EXPECT_EQ(ReadLogit(kInfinity), std::numeric_limits<float>::max());
  EXPECT_EQ(ReadLogit(-1.5f), -1.5f);
}

TEST(GreatestTokenTest, IsTheFirstByTheOrderOfPreference) {
  std::mt19937 random(7);
  const float few[] = {kNan, -kInfinity, kInfinity, std::numeric_limits<float>::max(), -1, 0, 1, 2};
  for (const int kinds : {1, 2, 3, 4, 8}) {
    for (int size = 1; size < 70; ++size) {
      std::vector<float> logits(size);
      for (float& logit : logits) {
        logit = few[random() % static_cast<unsigned>(kinds)];
        if (random() % 4 == 0) logit = few[4 + random() % 4];
      }
      std::vector<Candidate> candidates;
      for (int i = 0; i < size; ++i) candidates.push_back({ReadLogit(logits[i]), i});
      const Candidate best = *std::min_element(candidates.begin(), candidates.end(), Before);
      EXPECT_EQ(GreatestToken(logits), best.value == -kInfinity ? -1 : best.token)
          << kinds << " kinds, " << size << " logits";
    }
  }
  EXPECT_EQ(GreatestToken({}), -1);
  EXPECT_EQ(GreatestToken(std::vector<float>(20, kNan)), -1);
}

// Random logits with many ties, some extreme spreads and some -inf.
std::vector<float> RandomLogits(std::mt19937& random) {
  const int size = std::uniform_int_distribution(1, 300)(random);
  const float spread = std::pow(10.f, std::uniform_real_distribution(-2.f, 3.f)(random));
  std::vector<float> logits(size);
  for (float& logit : logits) {
    logit = std::round(std::normal_distribution(0.f, 5.f)(random)) * spread / 5;
    if (random() % 16 == 0) logit = -kInfinity;
  }
  logits[random() % size] = 0;
  return logits;
}

// The plain reference: all tokens sorted by descending weight, then by id.
std::vector<Candidate> Sorted(std::vector<Candidate> weights) {
  std::stable_sort(weights.begin(), weights.end(),
                   [](const Candidate& a, const Candidate& b) { return a.value > b.value; });
  return weights;
}

TEST(ToWeightsTest, EqualsSoftmaxUpToAFactor) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const std::vector<float> logits = RandomLogits(random);
    const float temperature = std::uniform_real_distribution(0.05f, 2.f)(random);
    std::vector<Candidate> weights = Candidates(logits);
    ToWeights(weights, temperature);
    const double maximum = *std::max_element(logits.begin(), logits.end());
    for (size_t i = 0; i < logits.size(); ++i) {
      EXPECT_EQ(weights[i].token, static_cast<int32_t>(i));
      EXPECT_NEAR(weights[i].value, std::exp((logits[i] - maximum) / temperature), 1e-6);
    }
  }
}

TEST(ToWeightsTest, ExtremeTemperaturesAndLogitsStayFinite) {
  constexpr float kMax = std::numeric_limits<float>::max();
  for (float temperature : {std::numeric_limits<float>::denorm_min(), 1e-30f, 1.f, 2.f}) {
    std::vector<Candidate> weights = Candidates({-kMax, kMax, -kInfinity, 0, kMax});
    ToWeights(weights, temperature);
    std::vector<float> values;
    for (const Candidate& weight : weights) values.push_back(weight.value);
    EXPECT_THAT(values, ElementsAre(0, 1, 0, 0, 1));
  }
}

TEST(KeepTopKTest, EqualsSorting) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    std::vector<Candidate> weights = Candidates(RandomLogits(random));
    ToWeights(weights, 1);
    const int k = std::uniform_int_distribution(-1, 310)(random);
    std::vector<Candidate> expected = weights;
    if (k > 0 && k < static_cast<int>(weights.size())) {
      expected = Sorted(weights);
      expected.resize(k);
    }
    EXPECT_EQ(Tokens(KeepTopK(weights, k)), Tokens(expected)) << "k " << k;
  }
}

TEST(KeepTopPTest, EqualsSortingAndSumming) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<Candidate> weights = Candidates(RandomLogits(random));
    ToWeights(weights, 1);
    const float p = std::uniform_real_distribution(0.f, 1.f)(random);
    std::vector<Candidate> expected = Sorted(weights);
    double total = 0;
    for (const Candidate& weight : expected) total += weight.value;
    double reached = 0;
    size_t kept = 0;
    while (kept < expected.size() && (kept == 0 || reached < p * total)) {
      reached += expected[kept++].value;
    }
    expected.resize(kept);
    EXPECT_EQ(Tokens(KeepTopP(weights, p)), Tokens(expected)) << "p " << p;
  }
}

TEST(KeepTopPTest, TinyPKeepsTheBestAndOneKeepsAll) {
  std::vector<Candidate> weights = Candidates({0.5, 1, 1, 0.25});
  EXPECT_THAT(Tokens(KeepTopP(weights, 1)), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Tokens(KeepTopP(weights, 1e-9f)), ElementsAre(1));
}

TEST(KeepMinPTest, EqualsComparingWithTheGreatest) {
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    std::vector<Candidate> weights = Candidates(RandomLogits(random));
    ToWeights(weights, 1);
    const float min_p = round == 0 ? 0 : std::uniform_real_distribution(0.f, 1.f)(random);
    std::vector<int32_t> expected;
    for (const Candidate& weight : weights) {
      if (weight.value >= min_p) expected.push_back(weight.token);
    }
    EXPECT_EQ(Tokens(KeepMinP(weights, min_p)), expected) << "min_p " << min_p;
  }
}

TEST(KeepMinPTest, OneKeepsOnlyTheGreatest) {
  std::vector<Candidate> weights = Candidates({0.5, 1, 0.999999f, 1});
  EXPECT_THAT(Tokens(KeepMinP(weights, 1)), ElementsAre(1, 3));
}

TEST(FiltersTest, ChainedFiltersKeepWhatTheReferenceKeeps) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<Candidate> weights = Candidates(RandomLogits(random));
    ToWeights(weights, 0.8f);
    const int k = std::uniform_int_distribution(1, 100)(random);
    const float p = std::uniform_real_distribution(0.f, 1.f)(random);
    const float min_p = std::uniform_real_distribution(0.f, 0.5f)(random);
    std::vector<Candidate> reference = Sorted(weights);
    reference.resize(std::min<size_t>(k, reference.size()));
    double total = 0;
    for (const Candidate& weight : reference) total += weight.value;
    std::vector<int32_t> expected;
    double reached = 0;
    for (const Candidate& weight : reference) {
      if (!expected.empty() && reached >= p * total) break;
      reached += weight.value;
      if (weight.value >= min_p) expected.push_back(weight.token);
    }
    const auto kept = KeepMinP(KeepTopP(KeepTopK(weights, k), p), min_p);
    EXPECT_THAT(Tokens(kept), UnorderedElementsAreArray(expected));
  }
}

TEST(DrawTest, FollowsTheWeights) {
  const std::vector<float> values = {1, 0.5, 0, 0.25, 0.125, 0, 0.125};
  const std::vector<Candidate> weights = Candidates(values);
  std::mt19937_64 random(6);
  std::vector<int> counts(values.size(), 0);
  for (int i = 0; i < 40000; ++i) {
    ++counts[Draw(weights, static_cast<double>(random() >> 11) * 0x1p-53)];
  }
  EXPECT_EQ(counts[2], 0);
  EXPECT_EQ(counts[5], 0);
  const std::vector<int> positive = {counts[0], counts[1], counts[3], counts[4], counts[6]};
  const std::vector<double> expected = {0.5, 0.25, 0.125, 0.0625, 0.0625};
  EXPECT_LT(testing::ChiSquareScore(positive, expected), 4);
}

TEST(DrawTest, NeverDrawsWeightZeroAtTheEnds) {
  const std::vector<Candidate> weights = Candidates({0, 1, 1, 0});
  EXPECT_EQ(Draw(weights, 0), 1);
  EXPECT_EQ(Draw(weights, 1 - 0x1p-53), 2);
}

}  // namespace
}  // namespace annulus
