// Answers that keep to an output constraint, whatever else the engine does meanwhile.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/api.h"
#include "engine/engine_seams.h"
#include "engine/text/answer/answer_format.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/engine/grammar/grammar_text.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/plain_options.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::ChoicesConstraint;
using testing::CollectingSink;
using ::testing::HasSubstr;
using testing::RegexConstraint;
using testing::SchemaConstraint;

constexpr char kPerson[] =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":8},)"
    R"("age":{"type":"integer","minimum":0,"maximum":150},"married":{"type":"boolean"},)"
    R"("children":{"type":"array","items":{"$ref":"#"},"maxItems":1}},"required":["name","age"]})";

class OutputTest : public ::testing::Test {
 protected:
  OutputTest() : backend_(CreateCpuBackend().value()) { RegisterCpuKernels(registry_); }

  std::unique_ptr<Engine> Make(const std::string& model, int ranks = 1) {
    EngineOptions options = testing::PlainOptions();
    options.model = model;
    options.ranks = ranks;
    options.threads = ranks;
    options.kv_memory_bytes = 64 << 20;
    options.page_tokens = 16;
    options.chunk_tokens = 64;
    options.tokens_per_rank = 40;
    auto engine = CreateEngineWith({.through_bytes = true}, options, *backend_, registry_);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  static RequestSpec Spec(const Engine& engine, const OutputConstraint& constraint,
                          uint64_t seed = 1) {
    RequestSpec spec;
    spec.prompt = engine.Tokenize("Lily likes to say: ", true, CancelFlag::Never()).value();
    auto output =
        engine.CompileOutput(TenantId(), constraint, CancelFlag::Never(), MemoryGrant::Unlimited());
    EXPECT_TRUE(output.ok()) << output.status();
    if (output.ok()) spec.output = *output;
    spec.sampling.temperature = 2;
    spec.sampling.seed = seed;
    spec.sampling.max_tokens = 120;
    spec.digest = true;
    return spec;
  }

  static std::shared_ptr<CollectingSink> Start(Engine& engine, RequestSpec spec) {
    auto sink = std::make_shared<CollectingSink>();
    const auto id = engine.Submit(std::move(spec), sink);
    EXPECT_TRUE(id.ok()) << id.status();
    return sink;
  }

  static Completion Ask(Engine& engine, RequestSpec spec, std::string* text = nullptr) {
    const auto sink = Start(engine, std::move(spec));
    const auto done = sink->Wait();
    EXPECT_TRUE(done.has_value());
    if (text != nullptr) *text = sink->text();
    return done.value_or(Completion());
  }

  static std::vector<std::string> Models() {
    std::vector<std::string> models = {"builtin:recall"};
    if (const auto trained = testing::TestData("models/stories260K"); trained.has_value()) {
      models.push_back(trained->string());
    }
    return models;
  }

  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
};

// Complete where the model ended it, else a beginning.
void CheckForm(const OutputConstraint& constraint, const Completion& done,
               const std::string& text) {
  ASSERT_TRUE(done.status.ok()) << done.status;
  const testing::SmallVocabulary bytes;
  GrammarMatcher matcher(testing::NewCache(constraint, bytes));
  const auto read = matcher.AdvanceBytes(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read) << text;
  if (done.finish_reason == FinishReason::kStop) {
    EXPECT_TRUE(matcher.may_end()) << text;
  }
}

TEST_F(OutputTest, AnswersKeepToTheirFormWithTheSameTokensHoweverTheyAreGuessed) {
  const std::vector<OutputConstraint> constraints = {
      SchemaConstraint(kPerson), testing::JsonObjectConstraint(),
      RegexConstraint("[a-z ]{3,40}(\\.[^x]*)?"), ChoicesConstraint({"yes", "yes, but", "no"})};
  int ended = 0;
  int64_t forced = 0;
  for (const std::string& model : Models()) {
    for (const OutputConstraint& constraint : constraints) {
      std::vector<std::string> digests;
      const std::vector<int> degrees = {1, 3};
      for (const int ranks : testing::ThinnedIfSanitized(degrees, 1)) {
        const auto engine = Make(model, ranks);
        for (const Speculation speculation : {Speculation::kOff, Speculation::kNgram}) {
          std::vector<std::shared_ptr<CollectingSink>> sinks;
          for (uint64_t seed = 1; seed <= 6; ++seed) {
            RequestSpec spec = Spec(*engine, constraint, seed);
            spec.speculation = speculation;
            if (seed == 2) spec.sampling.repetition_penalty = 1.3f;
            if (seed == 3) spec.sampling.top_k = 5;
            if (seed == 4) spec.sampling.temperature = 0;
            if (seed == 5) spec.sampling.logprobs = 2;
            sinks.push_back(Start(*engine, std::move(spec)));
          }
          std::string all;
          for (const auto& sink : sinks) {
            const auto done = sink->Wait();
            ASSERT_TRUE(done.has_value());
            CheckForm(constraint, *done, sink->text());
            all += done->digest;
            ended += done->finish_reason == FinishReason::kStop ? 1 : 0;
            forced += done->usage.accepted_tokens;
          }
          digests.push_back(all);
        }
      }
      for (const std::string& digest : digests) EXPECT_EQ(digest, digests.front()) << model;
    }
  }
  EXPECT_GT(ended, 20);
  EXPECT_GT(forced, 20);
}

TEST_F(OutputTest, ReasoningEndsAtItsBudgetWithTheSameTokensHoweverTheyAreGuessed) {
  constexpr char kMark[] = "</think>";
  std::vector<std::string> digests;
  for (const int ranks : {1, 3}) {
    const auto engine = Make("builtin:recall", ranks);
    OutputConstraint constraint = ChoicesConstraint({"yes, it is", "no, it is not"});
    constraint.answer =
        AnswerShape{.format = AnswerFormat::Make("hermes", [](absl::string_view) { return false; }),
                    .in_reasoning = true,
                    .reasoning_budget = 6,
                    .reasoning_end = engine->Tokenize(kMark, false, CancelFlag::Never()).value()};
    for (const Speculation speculation : {Speculation::kOff, Speculation::kNgram}) {
      RequestSpec spec = Spec(*engine, constraint);
      spec.speculation = speculation;
      std::string text;
      const Completion done = Ask(*engine, std::move(spec), &text);
      ASSERT_TRUE(done.status.ok()) << done.status;
      EXPECT_EQ(done.finish_reason, FinishReason::kStop) << text;
      const size_t mark = text.find(kMark);
      ASSERT_NE(mark, std::string::npos) << text;
      EXPECT_GE(mark, 6u);
      const std::string form = text.substr(mark + sizeof(kMark) - 1);
      EXPECT_THAT(form, ::testing::MatchesRegex("[ \t\n]*(yes, it is|no, it is not)"));
      digests.push_back(done.digest);
    }
  }
  EXPECT_THAT(digests, ::testing::Each(digests.front()));
}

TEST_F(OutputTest, TokensWithoutAlternativeComeInFewerSteps) {
  const auto engine = Make("builtin:recall");
  const OutputConstraint constraint =
      ChoicesConstraint({"the only answer that there is to this question"});
  RequestSpec spec = Spec(*engine, constraint);
  spec.speculation = Speculation::kNgram;
  std::string text;
  const Completion done = Ask(*engine, std::move(spec), &text);
  ASSERT_TRUE(done.status.ok()) << done.status;
  EXPECT_EQ(text, constraint.choices[0]);
  EXPECT_EQ(done.finish_reason, FinishReason::kStop);
  EXPECT_GT(done.usage.accepted_tokens, 30);
  EXPECT_EQ(done.usage.accepted_tokens, done.usage.drafted_tokens);
}

TEST_F(OutputTest, StopsAndTheLeastLengthCompose) {
  const auto engine = Make("builtin:recall");
  RequestSpec stopped = Spec(*engine, ChoicesConstraint({"one, two, three"}));
  stopped.sampling.stop = {", th"};
  std::string text;
  Completion done = Ask(*engine, std::move(stopped), &text);
  EXPECT_EQ(text, "one, two");
  EXPECT_EQ(done.matched_stop, ", th");
  EXPECT_FALSE(done.output_below_min_tokens);

  RequestSpec least = Spec(*engine, ChoicesConstraint({"one", "one, two"}));
  least.sampling.min_tokens = 60;
  done = Ask(*engine, std::move(least), &text);
  EXPECT_EQ(text, "one, two") << "it goes on as long as it can";
  EXPECT_EQ(done.finish_reason, FinishReason::kStop);
  EXPECT_TRUE(done.output_below_min_tokens);

  RequestSpec cut = Spec(*engine, ChoicesConstraint({"one, two, three"}));
  cut.sampling.max_tokens = 5;
  done = Ask(*engine, std::move(cut), &text);
  EXPECT_EQ(text, "one, ");
  EXPECT_EQ(done.finish_reason, FinishReason::kLength);
}

TEST_F(OutputTest, AConstraintThatIsTooAmbiguousEndsItsRequestAlone) {
  const auto engine = Make("builtin:recall");
  const OutputConstraint ambiguous = RegexConstraint("((a|aa){1,300}){1,300}((a|aa|aaa){1,300})*");
  RequestSpec fails = Spec(*engine, ambiguous);
  fails.sampling.max_tokens = 3000;
  fails.sampling.min_tokens = 3000;
  RequestSpec other = Spec(*engine, ambiguous, 2);
  other.sampling.max_tokens = 2;
  other.sampling.min_tokens = 2;
  const auto failing = Start(*engine, std::move(fails));
  for (int i = 0; i < 5; ++i) {
    std::string text;
    const Completion done = Ask(*engine, other, &text);
    EXPECT_TRUE(done.status.ok()) << done.status;
    EXPECT_EQ(text, "aa");
  }
  const auto done = failing->Wait();
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->status.code(), absl::StatusCode::kInvalidArgument) << done->status;
  EXPECT_THAT(std::string(done->status.message()), HasSubstr("in more than 1024 ways at once"));
}

TEST_F(OutputTest, WhatCannotBeServedIsRefused) {
  const auto engine = Make("builtin:recall");
  RequestSpec spec = Spec(*engine, ChoicesConstraint({"yes"}));
  spec.sampling.ignore_eos = true;
  const absl::Status status = engine->Validate(spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.GetPayload(kFieldPayload), absl::Cord("sampling.ignore_eos"));
  const auto refused =
      engine->CompileOutput(TenantId(), SchemaConstraint(R"({"properties":{"a":{"not":{}}}})"),
                            CancelFlag::Never(), MemoryGrant::Unlimited());
  EXPECT_EQ(refused.status().GetPayload(kFieldPayload), absl::Cord("output"));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("#/properties/a/not"));
  CancelFlag cancelled;
  cancelled.Cancel();
  EXPECT_EQ(
      engine->CompileOutput(TenantId(), SchemaConstraint("{}"), cancelled, MemoryGrant::Unlimited())
          .status()
          .code(),
      absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace annulus
