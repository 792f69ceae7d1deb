#ifndef ANNULUS_TESTS_SUPPORT_SAMPLED_ANSWER_H_
#define ANNULUS_TESTS_SUPPORT_SAMPLED_ANSWER_H_

#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/api.h"
#include "tests/support/collecting_sink.h"

namespace annulus::testing {

// A seeded answer, for comparison bit for bit.
struct SampledAnswer {
  std::vector<int32_t> ids;
  std::vector<uint32_t> bits;  // of the log probabilities of each token and its alternatives
  int64_t cached = 0;
  int degree = 0;
};

// Asks for an answer of so many tokens, whatever they are.
inline std::shared_ptr<CollectingSink> AskSampled(Engine& engine,
                                                  const std::vector<int32_t>& prompt, int tokens) {
  RequestSpec spec;
  spec.prompt = prompt;
  spec.sampling.seed = 7;
  spec.sampling.temperature = 0.9f;
  spec.sampling.ignore_eos = true;
  spec.sampling.logprobs = 3;
  spec.sampling.max_tokens = tokens;
  auto sink = std::make_shared<CollectingSink>();
  EXPECT_TRUE(engine.Submit(std::move(spec), sink).ok());
  return sink;
}

// Waits for the end, which must be a good one.
inline SampledAnswer WaitSampled(CollectingSink& sink) {
  SampledAnswer answer;
  const auto done = sink.Wait();
  EXPECT_TRUE(done.has_value() && done->status.ok()) << (done ? done->status : absl::Status());
  if (!done.has_value()) return answer;
  answer.ids = sink.ids();
  answer.cached = done->usage.cached_tokens;
  answer.degree = done->attention.ring_degree;
  for (const TokenLogprob& each : sink.logprobs()) {
    answer.bits.push_back(std::bit_cast<uint32_t>(each.logprob));
    for (const auto& [id, logprob] : each.alternatives) {
      answer.bits.push_back(std::bit_cast<uint32_t>(logprob));
    }
  }
  return answer;
}

inline void ExpectSame(const SampledAnswer& answer, const SampledAnswer& expected,
                       const std::string& where) {
  EXPECT_EQ(answer.ids, expected.ids)
      << where << ", cached " << answer.cached << ", degree " << answer.degree;
  EXPECT_EQ(answer.bits, expected.bits)
      << where << ", cached " << answer.cached << ", degree " << answer.degree;
}

// Prompts of these lengths; every second begins with half of the one before it.
inline std::vector<std::vector<int32_t>> PromptsWithSharedStarts(
    int vocabulary, const std::vector<size_t>& lengths) {
  std::mt19937 random(11);
  std::uniform_int_distribution<int32_t> token(3, vocabulary - 1);
  std::vector<std::vector<int32_t>> prompts;
  for (const size_t length : lengths) {
    std::vector<int32_t> prompt;
    if (prompts.size() % 2 == 1) {
      const std::vector<int32_t>& before = prompts.back();
      prompt.assign(before.begin(), before.begin() + std::ssize(before) / 2);
    }
    while (prompt.size() < length) prompt.push_back(token(random));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_SAMPLED_ANSWER_H_
