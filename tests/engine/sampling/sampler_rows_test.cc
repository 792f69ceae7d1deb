// What the op `sample` is given of a sequence, and what is made of its answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "engine/sampling/sampler.h"
#include "tests/engine/sampling/special_values.h"

namespace annulus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SamplingParams Plain() {
  SamplingParams params;
  params.seed = 1;
  return params;
}

MATCHER_P3(Edit, token, count, bias, "") {
  return arg.token == token && arg.count == count && arg.bias == bias;
}

std::vector<int32_t> TokensSeen(const SampleRow& row) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < static_cast<int32_t>(32 * row.seen.size()); ++i) {
    if ((row.seen[i / 32] >> i % 32 & 1) != 0) tokens.push_back(i);
  }
  return tokens;
}

// A token is in one of the two lists at most; the prompt's alone take no edits.
TEST(SamplerRowsTest, RowsSayWhatIsDoneToWhichLogit) {
  SamplingParams params = Plain();
  params.top_k = 4;
  params.repetition_penalty = 1.5f;
  params.presence_penalty = 0.5f;
  params.logit_bias = {{5, 2.5f}, {64, -1}, {50, 0}};
  params.stop_token_ids = {5, 64, 7};
  params.min_tokens = 2;
  Sampler sampler(params, 70, std::vector<int32_t>{7, 3});
  EXPECT_THAT(sampler.RowAt(0).seen, IsEmpty());
  sampler.ObservePrompt(std::vector<int32_t>{69, 5, 40, 0, 31, 32});
  sampler.ObservePrompt(std::vector<int32_t>{40, 3});
  const SampleRow first = sampler.RowAt(9);
  EXPECT_EQ(first.top_k, 4);
  EXPECT_EQ(first.penalties.repetition, 1.5f);
  EXPECT_EQ(first.penalties.frequency, 0);
  EXPECT_EQ(first.penalties.presence, 0.5f);
  EXPECT_THAT(first.edits,
              ElementsAre(Edit(3, 0, -kInfinity), Edit(5, 0, -kInfinity), Edit(7, -1, -kInfinity),
                          Edit(50, -1, 0), Edit(64, -1, -kInfinity)));
  EXPECT_THAT(TokensSeen(first), ElementsAre(0, 31, 32, 40, 69));

  sampler.Observe(40);
  EXPECT_THAT(TokensSeen(sampler.RowAt(10)), ElementsAre(0, 31, 32, 69));
  sampler.ObservePrompt(std::vector<int32_t>{40});
  EXPECT_THAT(TokensSeen(sampler.RowAt(10)), ElementsAre(0, 31, 32, 69));
  EXPECT_THAT(sampler.RowAt(10).edits,
              ElementsAre(Edit(3, 0, -kInfinity), Edit(5, 0, -kInfinity), Edit(7, -1, -kInfinity),
                          Edit(40, 1, 0), Edit(50, -1, 0), Edit(64, -1, -kInfinity)));
  sampler.Observe(40);  // the second: stops are allowed
  EXPECT_THAT(sampler.RowAt(11).edits,
              ElementsAre(Edit(3, 0, 0), Edit(5, 0, 2.5f), Edit(40, 2, 0), Edit(64, -1, -1)));
  sampler.Observe(68);
  EXPECT_THAT(sampler.RowAt(12).edits, ElementsAre(Edit(3, 0, 0), Edit(5, 0, 2.5f), Edit(40, 2, 0),
                                                   Edit(64, -1, -1), Edit(68, 1, 0)));
}

// What a step copies is that of the answer and a bit for each of the vocabulary.
TEST(SamplerRowsTest, RowsDoNotGrowWithThePrompt) {
  constexpr int32_t kVocabulary = 150001;
  SamplingParams params = Plain();
  params.repetition_penalty = 1.1f;
  Sampler sampler(params, kVocabulary, {});
  std::vector<int32_t> prompt(100000);
  std::iota(prompt.begin(), prompt.end(), 17);
  sampler.ObservePrompt(prompt);
  for (int32_t token = 0; token < 300; ++token) sampler.Observe(token);
  const SampleRow row = sampler.RowAt(0);
  EXPECT_EQ(row.edits.size_bytes(), 300 * 12);
  EXPECT_EQ(row.seen.size_bytes(), (kVocabulary + 31) / 32 * 4);
  EXPECT_EQ(TokensSeen(row).size(), prompt.size() - (300 - 17));
}

TEST(SamplerRowsTest, WithoutAdjustmentsRowsHaveNoLists) {
  SamplingParams params = Plain();
  params.min_tokens = 1;
  Sampler sampler(params, 9, {});  // nothing ends the text
  sampler.ObservePrompt(std::vector<int32_t>{1, 2});
  sampler.Observe(3);
  EXPECT_THAT(sampler.RowAt(3).edits, IsEmpty());
  EXPECT_THAT(sampler.RowAt(3).seen, IsEmpty());
}

TEST(SamplerRowsTest, OnlyLogprobsWantLogits) {
  SamplingParams params = Plain();
  params.repetition_penalty = 2;
  EXPECT_FALSE(Sampler(params, 9, {}).wants_logits());
  params.logprobs = 0;
  EXPECT_TRUE(Sampler(params, 9, {}).wants_logits());
}

TEST(SamplerRowsTest, ResultsOfTheOpAreThoseOfSample) {
  std::vector<Candidate> workspace(2);
  Sampler plain(Plain(), 2, {});
  EXPECT_EQ(plain.ResultOf(7, 3)->token, 7);
  EXPECT_FALSE(plain.ResultOf(7, 3)->logprob.has_value());
  EXPECT_EQ(plain.ResultOf(kNoUsableLogit, 5).status(),
            plain.Sample(std::vector{kNan, -kInfinity}, 5, workspace).status());
  SamplingParams params = Plain();
  params.min_tokens = 4;
  params.stop_token_ids = {0, 1};
  Sampler held(params, 2, {});
  const absl::Status status = held.ResultOf(kAllExcluded, 5).status();
  EXPECT_EQ(status, held.Sample(std::vector{1.0f, 2.0f}, 5, workspace).status());
  EXPECT_THAT(std::string(status.message()), HasSubstr("0 of at least 4"));
}

}  // namespace
}  // namespace annulus
