#include "engine/sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "tests/engine/sampling/chi_square.h"
#include "tests/engine/sampling/special_values.h"

namespace annulus {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  params.seed = 1;
  return params;
}

SamplingParams Seeded(uint64_t seed) {
  SamplingParams params;
  params.seed = seed;
  return params;
}

// One sampler for a vocabulary as large as the logits, with its workspace.
struct Sequence {
  Sequence(const SamplingParams& params, int32_t vocabulary, std::vector<int32_t> end_ids = {})
      : sampler(params, vocabulary, end_ids), workspace(vocabulary) {}

  absl::StatusOr<SampleResult> Try(const std::vector<float>& logits, int64_t position) {
    return sampler.Sample(logits, position, workspace);
  }
  int32_t Token(const std::vector<float>& logits, int64_t position = 0) {
    absl::StatusOr<SampleResult> result = Try(logits, position);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->token : -1;
  }

  Sampler sampler;
  std::vector<Candidate> workspace;
};

int32_t GreedyToken(const SamplingParams& params, const std::vector<float>& logits,
                    std::vector<int32_t> prompt = {}, std::vector<int32_t> answer = {}) {
  Sequence sequence(params, static_cast<int32_t>(logits.size()));
  sequence.sampler.ObservePrompt(prompt);
  for (int32_t token : answer) sequence.sampler.Observe(token);
  return sequence.Token(logits);
}

TEST(SamplerTest, GreedyTakesTheLowestIdAmongTheGreatest) {
  EXPECT_EQ(GreedyToken(Greedy(), {1, 3, 3, 2}), 1);
  EXPECT_EQ(GreedyToken(Greedy(), {-5, -5}), 0);
}

TEST(SamplerTest, GreedyIgnoresFiltersAndSeed) {
  SamplingParams params = Greedy();
  params.top_k = 1;
  params.top_p = 0.01f;
  params.min_p = 1;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    params.seed = seed;
    EXPECT_EQ(GreedyToken(params, {1, 3, 3, 2}), 1);
  }
}

TEST(SamplerTest, NanIsNeverChosenAndInfinityIsTheGreatest) {
  EXPECT_EQ(GreedyToken(Greedy(), {kNan, 1, -kInfinity}), 1);
  EXPECT_EQ(GreedyToken(Greedy(), {kNan, 1, kInfinity, kInfinity}), 2);
  Sequence drawn(Seeded(3), 4);
  for (int64_t position = 0; position < 100; ++position) {
    EXPECT_EQ(drawn.Token({kNan, -kInfinity, -1e30f, kNan}, position), 2);
    EXPECT_EQ(drawn.Token({kNan, -kInfinity, -1e30f, kInfinity}, position), 3);
  }
}

TEST(SamplerTest, NoUsableLogitIsAnInternalError) {
  for (SamplingParams params : {Greedy(), Seeded(1)}) {
    Sequence sequence(params, 3);
    const auto result = sequence.Try({kNan, -kInfinity, kNan}, 77);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("position 77"));
  }
}

TEST(SamplerTest, BiasMovesTheChoice) {
  SamplingParams params = Greedy();
  params.logit_bias = {{2, 1.5f}, {0, -100}};
  EXPECT_EQ(GreedyToken(params, {3, 2, 1, 0}), 2);
}

TEST(SamplerTest, RepetitionPenaltyCountsPromptAndAnswerOnce) {
  SamplingParams params = Greedy();
  params.repetition_penalty = 2;
  EXPECT_EQ(GreedyToken(params, {3, 2}, {0, 0, 0}), 1);  // 1.5 against 2
  EXPECT_EQ(GreedyToken(params, {3, 2}, {}, {0, 0}), 1);
  EXPECT_EQ(GreedyToken(params, {5, 2}, {0, 0}, {0}), 0);  // 2.5, once only
  EXPECT_EQ(GreedyToken(params, {-1, -1.5f}, {0}), 1);     // negative: multiplied
}

TEST(SamplerTest, FrequencyAndPresencePenaltiesCountTheAnswerOnly) {
  SamplingParams frequency = Greedy();
  frequency.frequency_penalty = 1;
  EXPECT_EQ(GreedyToken(frequency, {3, 0.5f}, {0, 0, 0, 0}), 0);
  EXPECT_EQ(GreedyToken(frequency, {3, 0.5f}, {}, {0, 0}), 0);
  EXPECT_EQ(GreedyToken(frequency, {3, 0.5f}, {}, {0, 0, 0}), 1);

  SamplingParams presence = Greedy();
  presence.presence_penalty = 1;
  EXPECT_EQ(GreedyToken(presence, {1.5f, 1}, {0}), 0);
  EXPECT_EQ(GreedyToken(presence, {1.5f, 1}, {}, {0}), 1);
  EXPECT_EQ(GreedyToken(presence, {2.5f, 1}, {}, {0, 0, 0}), 0);
}

// All adjustments together, against the formulas written plainly.
TEST(SamplerTest, AdjustmentsEqualTheReference) {
  std::mt19937 random(7);
  const auto between = [&](float low, float high) {
    return std::uniform_real_distribution(low, high)(random);
  };
  for (int round = 0; round < 300; ++round) {
    const int32_t vocabulary = 2 + static_cast<int32_t>(random() % 30);
    const auto any_token = [&] { return static_cast<int32_t>(random() % vocabulary); };
    SamplingParams params = Greedy();
    params.repetition_penalty = between(0.1f, 10);
    params.frequency_penalty = between(-2, 2);
    params.presence_penalty = between(-2, 2);
    for (int i = 0; i < 3; ++i) params.logit_bias[any_token()] = between(-5, 5);
    std::vector<float> logits(vocabulary);
    for (float& logit : logits) logit = between(-5, 5);
    std::vector<int32_t> prompt(random() % 10), answer(random() % 10);
    std::generate(prompt.begin(), prompt.end(), any_token);
    std::generate(answer.begin(), answer.end(), any_token);

    std::vector<float> expected = logits;
    for (int32_t token = 0; token < vocabulary; ++token) {
      float& value = expected[token];
      if (params.logit_bias.count(token) > 0) value += params.logit_bias[token];
      const auto count = std::count(answer.begin(), answer.end(), token);
      if (count + std::count(prompt.begin(), prompt.end(), token) > 0) {
        value = value > 0 ? value / params.repetition_penalty : value * params.repetition_penalty;
      }
      value -= params.frequency_penalty * static_cast<float>(count);
      value -= count > 0 ? params.presence_penalty : 0;
    }
    const auto best = std::max_element(expected.begin(), expected.end()) - expected.begin();
    EXPECT_EQ(GreedyToken(params, logits, prompt, answer), best) << "round " << round;
  }
}

TEST(SamplerTest, ExtremeAdjustmentsStayOrderedAndFinite) {
  constexpr float kMax = std::numeric_limits<float>::max();
  SamplingParams params = Greedy();
  params.repetition_penalty = 10;
  EXPECT_EQ(GreedyToken(params, {-kMax, -kMax}, {0, 1}), 0);
  params.repetition_penalty = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(GreedyToken(params, {1, kMax, kNan}, {0, 1, 2}), 0);
  params.logit_bias = {{0, 100}, {2, 100}};
  EXPECT_EQ(GreedyToken(params, {-kInfinity, -kMax, kNan}), 1);
}

TEST(SamplerTest, MinTokensHoldsBackEverythingThatEndsTheText) {
  SamplingParams params = Greedy();
  params.min_tokens = 2;
  params.stop_token_ids = {2};
  params.logit_bias = {{3, 100}};
  Sequence sequence(params, 4, {3});
  const std::vector<float> logits = {0, 1, 2, 3};
  EXPECT_FALSE(sequence.sampler.StopsAllowed());
  EXPECT_EQ(sequence.Token(logits), 1);
  sequence.sampler.Observe(1);
  EXPECT_EQ(sequence.Token(logits), 1);
  sequence.sampler.Observe(1);
  EXPECT_TRUE(sequence.sampler.StopsAllowed());
  EXPECT_EQ(sequence.Token(logits), 3);
  EXPECT_EQ(sequence.sampler.generated(), 2);
}

TEST(SamplerTest, MinTokensThatLeavesNothingIsTheClientsError) {
  SamplingParams params = Seeded(1);
  params.min_tokens = 1;
  params.stop_token_ids = {0, 1};
  Sequence sequence(params, 3, {2});
  EXPECT_EQ(sequence.Try({1, 2, 3}, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SamplerTest, IgnoreEosNeitherEndsNorBans) {
  SamplingParams params = Greedy();
  params.ignore_eos = true;
  params.min_tokens = 5;
  params.stop_token_ids = {1};
  Sequence sequence(params, 3, {2});
  EXPECT_EQ(sequence.Token({0, 1, 2}), 2);
  EXPECT_FALSE(sequence.sampler.EndsText(2));
  EXPECT_TRUE(sequence.sampler.EndsText(1));

  params.ignore_eos = false;
  Sampler ends(params, 3, std::vector<int32_t>{2, 0});
  EXPECT_TRUE(ends.EndsText(0) && ends.EndsText(1) && ends.EndsText(2));
}

std::vector<int> Histogram(const SamplingParams& params, const std::vector<float>& logits,
                           int draws) {
  Sequence sequence(params, static_cast<int32_t>(logits.size()));
  std::vector<int> counts(logits.size(), 0);
  for (int64_t position = 0; position < draws; ++position) {
    ++counts[sequence.Token(logits, position)];
  }
  return counts;
}

std::vector<double> Softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> probabilities;
  double total = 0;
  for (float logit : logits) {
    probabilities.push_back(std::exp(logit / temperature));
    total += probabilities.back();
  }
  for (double& probability : probabilities) probability /= total;
  return probabilities;
}

TEST(SamplerTest, DrawsFollowTheSoftmaxAtEveryTemperature) {
  const std::vector<float> logits = {1, 0.5f, -0.5f, 0, 1.5f, -1, 0.25f, 1};
  for (float temperature : {0.5f, 1.f, 2.f}) {
    SamplingParams params = Seeded(42);
    params.temperature = temperature;
    const std::vector<int> counts = Histogram(params, logits, 40000);
    EXPECT_LT(testing::ChiSquareScore(counts, Softmax(logits, temperature)), 4) << temperature;
  }
}

// The filtered draw is the softmax over the kept tokens only.
TEST(SamplerTest, DrawsFollowTheFilteredSoftmax) {
  const std::vector<float> logits = {2, 1.5f, 1, 0.5f, 0, -0.5f, -1, -1.5f};
  struct Case {
    int32_t top_k;
    float top_p, min_p;
    size_t kept;  // the first ones: logits descend
  };
  // Softmax: 0.40 0.25 0.15 0.09 0.05 0.03 0.02 0.01.
  for (const Case& c : {Case{3, 1, 0, 3}, Case{0, 0.7f, 0, 3}, Case{0, 1, 0.2f, 4},
                        Case{5, 0.9f, 0, 4}, Case{6, 0.99f, 0.5f, 2}}) {
    SamplingParams params = Seeded(9);
    params.top_k = c.top_k;
    params.top_p = c.top_p;
    params.min_p = c.min_p;
    std::vector<int> counts = Histogram(params, logits, 40000);
    for (size_t i = c.kept; i < counts.size(); ++i) EXPECT_EQ(counts[i], 0);
    counts.resize(c.kept);
    const std::vector<float> kept(logits.begin(), logits.begin() + c.kept);
    EXPECT_LT(testing::ChiSquareScore(counts, Softmax(kept, 1)), 4);
  }
}

TEST(SamplerTest, TinyTemperatureIsGreedy) {
  SamplingParams params = Seeded(5);
  params.temperature = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(Histogram(params, {0, 1, 0.999f}, 100)[1], 100);
}

// Sequences sampled alone, interleaved, in other orders and after other work give the same tokens.
TEST(SamplerTest, ResultsDoNotDependOnBatching) {
  constexpr int kSequences = 5, kTokens = 40, kVocabulary = 200;
  const auto logits_at = [](int sequence, int step) {
    std::mt19937 random(static_cast<uint32_t>(sequence * 1000 + step));
    std::vector<float> logits(kVocabulary);
    for (float& logit : logits) logit = std::normal_distribution(0.f, 2.f)(random);
    return logits;
  };
  const auto make = [](int sequence) {
    SamplingParams params = Seeded(sequence < 3 ? 1000 + sequence : 1000);
    params.top_k = sequence * 20;
    params.top_p = 0.95f;
    params.repetition_penalty = 1.2f;
    params.frequency_penalty = 0.1f;
    return Sequence(params, kVocabulary);
  };
  std::vector<std::vector<int32_t>> alone(kSequences), batched(kSequences);
  for (int s = 0; s < kSequences; ++s) {
    Sequence sequence = make(s);
    for (int step = 0; step < kTokens; ++step) {
      alone[s].push_back(sequence.Token(logits_at(s, step), 10 + step));
      sequence.sampler.Observe(alone[s].back());
    }
  }
  std::vector<Sequence> sequences;
  for (int s = 0; s < kSequences; ++s) sequences.push_back(make(s));
  std::vector<Candidate> shared(kVocabulary, {kNan, -1});
  for (int step = 0; step < kTokens; ++step) {
    for (int i = 0; i < kSequences; ++i) {
      const int s = (i * 3 + step) % kSequences;
      const auto result = sequences[s].sampler.Sample(logits_at(s, step), 10 + step, shared);
      ASSERT_TRUE(result.ok());
      batched[s].push_back(result->token);
      sequences[s].sampler.Observe(result->token);
    }
  }
  EXPECT_EQ(alone, batched);
}

TEST(SamplerTest, SeedsAndPositionsChangeTheDraw) {
  const std::vector<float> logits(1000, 0.f);
  Sequence one(Seeded(1), 1000), two(Seeded(2), 1000);
  int equal_seeds = 0, equal_positions = 0;
  for (int64_t position = 0; position < 200; ++position) {
    equal_seeds += one.Token(logits, position) == two.Token(logits, position);
    equal_positions += one.Token(logits, position) == one.Token(logits, position + 1);
    EXPECT_EQ(one.Token(logits, position), one.Token(logits, position));
  }
  EXPECT_LT(equal_seeds, 5);
  EXPECT_LT(equal_positions, 5);
}

TEST(SamplerTest, LogprobsAreOfTheRawLogits) {
  SamplingParams params = Greedy();
  params.logprobs = 2;
  params.logit_bias = {{2, 50}};
  params.repetition_penalty = 5;
  Sequence sequence(params, 3);
  sequence.sampler.ObservePrompt(std::vector<int32_t>{0, 1, 2});
  const auto result = sequence.Try({std::log(5.f), std::log(3.f), std::log(2.f)}, 0);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->token, 2);
  ASSERT_TRUE(result->logprob.has_value());
  EXPECT_EQ(result->logprob->token_id, 2);
  EXPECT_NEAR(result->logprob->logprob, std::log(0.2), 1e-6);
  EXPECT_THAT(result->logprob->alternatives,
              ElementsAre(Pair(0, FloatEq(std::log(0.5f))), Pair(1, FloatEq(std::log(0.3f)))));
}

TEST(SamplerTest, LogprobsOnlyWhenAskedFor) {
  Sequence without(Greedy(), 2);
  EXPECT_FALSE(without.Try({0, 1}, 0)->logprob.has_value());
  SamplingParams params = Greedy();
  params.logprobs = 0;
  Sequence with(params, 2);
  EXPECT_THAT(with.Try({0, 1}, 0)->logprob->alternatives, IsEmpty());
}

TEST(SamplerTest, SeveralPromptPartsCountAsOne) {
  SamplingParams params = Greedy();
  params.repetition_penalty = 3;
  Sequence sequence(params, 3);
  sequence.sampler.ObservePrompt(std::vector<int32_t>{0});
  sequence.sampler.ObservePrompt(std::vector<int32_t>{1, 0});
  EXPECT_EQ(sequence.Token({3, 3, 1.5f}), 2);
}

}  // namespace
}  // namespace annulus
