// A sampler with an output constraint: what it draws, and what else stays as it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/sampling/logprobs.h"
#include "engine/sampling/sampler.h"
#include "engine/text/answer/answer_format.h"
#include "tests/engine/grammar/grammar_text.h"

namespace annulus {
namespace {

using testing::ChoicesConstraint;
using ::testing::HasSubstr;
using testing::NewCache;
using testing::RegexConstraint;
using testing::SchemaConstraint;
using testing::SmallVocabulary;

constexpr char kPerson[] =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},)"
    R"("age":{"type":"integer","minimum":0,"maximum":150},"kind":{"enum":["a","ab","other"]},)"
    R"("friends":{"type":"array","items":{"$ref":"#"},"maxItems":2}},"required":["name","age"]})";

SamplingParams Params(uint64_t seed) {
  SamplingParams params;
  params.seed = seed;
  params.temperature = 2;
  params.max_tokens = 400;
  return params;
}

// An answer to random logits.
struct Answer {
  std::vector<int32_t> tokens;  // without the one that ended it
  std::string text;
  bool ended = false;
  absl::Status status;
};

class OutputTest : public ::testing::Test {
 protected:
  std::vector<float> Logits(uint64_t seed, int64_t position) const {
    std::mt19937_64 random(seed * 1'000'003 + static_cast<uint64_t>(position));
    std::normal_distribution<float> normal(0, 3);
    std::vector<float> logits(static_cast<size_t>(vocabulary_.end) + 1);
    for (float& logit : logits) logit = normal(random);
    return logits;
  }

  Sampler NewSampler(const SamplingParams& params, std::shared_ptr<GrammarCache> cache) const {
    return Sampler(params, vocabulary_.end + 1, std::vector<int32_t>{vocabulary_.end}, {},
                   GrammarMatcher(std::move(cache)));
  }

  Answer Draw(const SamplingParams& params, const std::shared_ptr<GrammarCache>& cache) const {
    Sampler sampler = NewSampler(params, cache);
    std::vector<Candidate> workspace(static_cast<size_t>(vocabulary_.end) + 1);
    Answer answer;
    while (std::ssize(answer.tokens) < params.max_tokens) {
      const auto position = std::ssize(answer.tokens);
      const auto result = sampler.Sample(Logits(*params.seed, position), position, workspace);
      if (!result.ok()) {
        answer.status = result.status();
        return answer;
      }
      sampler.Observe(result->token);
      if (sampler.EndsText(result->token)) {
        answer.ended = true;
        break;
      }
      answer.tokens.push_back(result->token);
      answer.text += vocabulary_.tokens[static_cast<size_t>(result->token)];
    }
    return answer;
  }

  const SmallVocabulary vocabulary_{{"\":", "{\"", "name", "\"age\"", "\",", "true", " \"", "ab",
                                     "xyz", "12", "0.5", "],", "}]", "\xC3\xA9t\xC3\xA9"}};
};

TEST_F(OutputTest, ReasoningEndsByItsMarkWhenItsTokensAreUsedUp) {
  const std::string mark = "</think>";
  OutputConstraint constraint = ChoicesConstraint({"yes", "no"});
  constraint.answer =
      AnswerShape{.format = AnswerFormat::Make("hermes", [](absl::string_view) { return false; }),
                  .in_reasoning = true,
                  .reasoning_end = std::vector<int32_t>(mark.begin(), mark.end())};
  for (const int32_t budget : {0, 1, 7}) {
    constraint.answer->reasoning_budget = budget;
    const Answer answer = Draw(Params(3), NewCache(constraint, vocabulary_));
    ASSERT_TRUE(answer.ended) << answer.status << answer.text;
    ASSERT_GT(std::ssize(answer.tokens), budget + std::ssize(mark));
    const auto begin = answer.tokens.begin() + budget;
    EXPECT_EQ(std::string(begin, begin + std::ssize(mark)), mark);
    const std::string text = answer.text.substr(answer.text.find(mark) + mark.size());
    EXPECT_THAT(text, ::testing::MatchesRegex("[ \t\n]*(yes|no)"));
  }
  // As far as the model thinks by itself.
  constraint.answer->reasoning_budget.reset();
  EXPECT_FALSE(Draw(Params(3), NewCache(constraint, vocabulary_)).ended);
}

TEST_F(OutputTest, LaterReasoningEndsWhereItBeginsOnceItsTokensAreUsedUp) {
  const std::string mark = "</think>";
  OutputConstraint constraint{.kind = OutputConstraint::Kind::kAnyText};
  constraint.answer =
      AnswerShape{.format = AnswerFormat::Make("hermes", [](absl::string_view) { return false; }),
                  .in_reasoning = true,
                  .may_think = true,
                  .reasoning_budget = 3,
                  .reasoning_end = std::vector<int32_t>(mark.begin(), mark.end())};
  Sampler sampler = NewSampler(Params(1), NewCache(constraint, vocabulary_));
  std::vector<Candidate> workspace(static_cast<size_t>(vocabulary_.end) + 1);
  int64_t position = 0;
  const auto drawn = [&] {
    std::string text;
    for (size_t i = 0; i < mark.size(); ++i) {
      ++position;
      const int32_t token = sampler.Sample(Logits(1, position), position, workspace)->token;
      sampler.Observe(token);
      text += vocabulary_.tokens[static_cast<size_t>(token)];
    }
    return text;
  };
  for (const char byte : std::string("Hm.")) sampler.Observe(byte);
  EXPECT_EQ(drawn(), mark);
  for (int turn = 0; turn < 2; ++turn) {
    for (const char byte : std::string("<think>")) sampler.Observe(byte);
    EXPECT_EQ(drawn(), mark);
  }
  EXPECT_NE(drawn(), mark);
}

TEST_F(OutputTest, AnswersAreCompleteWhereTheyEndAndBeginningsElse) {
  for (const OutputConstraint& constraint :
       {SchemaConstraint(kPerson), testing::JsonObjectConstraint(),
        RegexConstraint("[a-z ]{3,40}(\\.[^x]*)?"), ChoicesConstraint({"yes", "yes, but", "no"})}) {
    const auto cache = NewCache(constraint, vocabulary_);
    int ended = 0;
    for (uint64_t seed = 1; seed <= 30; ++seed) {
      const Answer answer = Draw(Params(seed), cache);
      ASSERT_TRUE(answer.status.ok()) << answer.status;
      GrammarMatcher matcher(cache);
      ASSERT_TRUE(*matcher.AdvanceBytes(answer.text)) << answer.text;
      if (answer.ended) {
        EXPECT_TRUE(matcher.may_end()) << answer.text;
      }
      ended += answer.ended ? 1 : 0;
    }
    EXPECT_GT(ended, 0) << constraint.text;
  }
}

TEST_F(OutputTest, FiltersPenaltiesAndBiasesChooseAmongWhatIsAllowed) {
  const auto cache = NewCache(SchemaConstraint(kPerson), vocabulary_);
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SamplingParams params = Params(seed);
    params.temperature = seed % 4 == 0 ? 0.0f : 1.5f;
    params.top_k = seed % 3 == 0 ? 2 : 0;
    params.top_p = seed % 3 == 1 ? 0.3f : 1.0f;
    params.min_p = seed % 5 == 0 ? 0.5f : 0.0f;
    params.repetition_penalty = 1.4f;
    params.frequency_penalty = 1.5f;
    // Never allowed at the beginning, and by far the likeliest; and one that is made unlikely.
    params.logit_bias = {{'z', 100.0f}, {'{', -100.0f}};
    const Answer answer = Draw(params, cache);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    GrammarMatcher matcher(cache);
    EXPECT_TRUE(*matcher.AdvanceBytes(answer.text)) << answer.text;
  }
}

TEST_F(OutputTest, RowsForTheOpChooseTheSameTokens) {
  const auto cache = NewCache(SchemaConstraint(kPerson), vocabulary_);
  SamplingParams params = Params(5);
  params.top_k = 3;
  Sampler one = NewSampler(params, cache);
  Sampler other = NewSampler(params, cache);
  EXPECT_TRUE(one.depends_on_answer());
  std::vector<Candidate> workspace(static_cast<size_t>(vocabulary_.end) + 1);
  for (int64_t position = 0; position < 100; ++position) {
    const std::vector<float> logits = Logits(5, position);
    const auto expected = one.Sample(logits, position, workspace);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const SampleRow row = other.RowAt(position);
    EXPECT_EQ(std::ssize(row.allowed), SeenWords(vocabulary_.end + 1));
    const auto result = other.ResultOf(ChooseFrom(logits, row, workspace), position);
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->token, expected->token) << position;
    one.Observe(expected->token);
    other.Observe(expected->token);
    if (one.EndsText(expected->token)) break;
  }
}

TEST_F(OutputTest, LogProbabilitiesAreTheModelsOwn) {
  const auto cache = NewCache(ChoicesConstraint({"yes", "no"}), vocabulary_);
  SamplingParams params = Params(3);
  params.logprobs = 4;
  Sampler sampler = NewSampler(params, cache);
  std::vector<Candidate> workspace(static_cast<size_t>(vocabulary_.end) + 1);
  const std::vector<float> logits = Logits(3, 0);
  const auto result = sampler.Sample(logits, 0, workspace);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->token == 'y' || result->token == 'n');
  EXPECT_EQ(result->logprob, LogprobOf(logits, result->token, 4));
}

// As after a preemption: a new sampler that is told the answer so far goes on in the same way.
TEST_F(OutputTest, ASamplerThatIsToldTheAnswerGoesOnAlike) {
  const auto cache = NewCache(SchemaConstraint(kPerson), vocabulary_);
  const Answer answer = Draw(Params(9), cache);
  ASSERT_GT(answer.tokens.size(), 4u);
  std::vector<Candidate> workspace(static_cast<size_t>(vocabulary_.end) + 1);
  for (size_t told = 0; told < answer.tokens.size(); told += 3) {
    Sampler sampler = NewSampler(Params(9), NewCache(SchemaConstraint(kPerson), vocabulary_));
    for (size_t i = 0; i < told; ++i) sampler.Observe(answer.tokens[i]);
    const auto position = static_cast<int64_t>(told);
    const auto next = sampler.Sample(Logits(9, position), position, workspace);
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(next->token, answer.tokens[told]) << told;
  }
}

TEST_F(OutputTest, ACompleteAnswerEndsBeforeMinTokens) {
  const auto cache = NewCache(ChoicesConstraint({"yes", "yes!"}), vocabulary_);
  SamplingParams params = Params(1);
  params.min_tokens = 50;
  Sampler sampler = NewSampler(params, cache);
  std::vector<Candidate> workspace(static_cast<size_t>(vocabulary_.end) + 1);
  std::string text;
  for (int64_t position = 0; position < 10; ++position) {
    const auto next = sampler.Sample(Logits(1, position), position, workspace);
    ASSERT_TRUE(next.ok()) << next.status();
    sampler.Observe(next->token);
    if (sampler.EndsText(next->token)) break;
    EXPECT_FALSE(sampler.StopsAllowed());
    text += vocabulary_.tokens[static_cast<size_t>(next->token)];
  }
  // It went on where it could, as min_tokens asks, and ended where it could not.
  EXPECT_EQ(text, "yes!");
  EXPECT_TRUE(sampler.StopsAllowed());
}

TEST_F(OutputTest, AConstraintThatFailsEndsItsOwnAnswerAlone) {
  const auto cache =
      NewCache(RegexConstraint("b{3}c|((a|aa){1,300}b?){1,300}((a|aa|aaa){1,300})*"), vocabulary_);
  Sampler fails = NewSampler(Params(1), cache);
  Sampler goes_on = NewSampler(Params(2), cache);
  std::vector<Candidate> workspace(static_cast<size_t>(vocabulary_.end) + 1);
  absl::Status status;
  for (int64_t position = 0; position < 5000 && status.ok(); ++position) {
    status = fails.Sample(Logits(1, position), position, workspace).status();
    fails.Observe('a');
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("output constraint"));
  // The op gets a row all the same, and its token is not used.
  EXPECT_EQ(fails.RowAt(0).allowed.size(), 0u);
  EXPECT_EQ(fails.ResultOf(5, 0).status(), status);
  for (int64_t position = 0; position < 3; ++position) {
    ASSERT_TRUE(goes_on.Sample(Logits(2, position), position, workspace).ok());
    goes_on.Observe('b');
  }
  const auto last = goes_on.Sample(Logits(2, 3), 3, workspace);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->token, 'c');
}

TEST_F(OutputTest, ATokenThatIsNotAllowedIsAnError) {
  Sampler sampler = NewSampler(Params(1), NewCache(ChoicesConstraint({"yes"}), vocabulary_));
  sampler.Observe('n');
  EXPECT_EQ(sampler.ResultOf('o', 1).status().code(), absl::StatusCode::kInternal);
}

TEST_F(OutputTest, AllowedTokensWithoutAUsableLogitAreTheModelsFault) {
  Sampler sampler = NewSampler(Params(1), NewCache(ChoicesConstraint({"yes", "no"}), vocabulary_));
  std::vector<float> logits(static_cast<size_t>(vocabulary_.end) + 1, 1.0f);
  logits['y'] = logits['n'] = std::nanf("");
  std::vector<Candidate> workspace(logits.size());
  const auto result = sampler.Sample(logits, 0, workspace);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("output constraint allows"));
}

}  // namespace
}  // namespace annulus
