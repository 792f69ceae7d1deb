#include "engine/sampling/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/engine/sampling/special_values.h"

namespace annulus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int32_t kVocabulary = 100;

using Change = std::function<void(SamplingParams&)>;

absl::Status Validate(const Change& change) {
  SamplingParams params;
  change(params);
  return ValidateSampling(params, kVocabulary);
}

void ExpectRefused(const std::string& field, const std::string& given, const std::string& allowed,
                   const Change& change) {
  const absl::Status status = Validate(change);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field << ": " << status;
  EXPECT_EQ(status.GetPayload(kFieldPayload).value_or(absl::Cord()), "sampling." + field) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(field), HasSubstr(given), HasSubstr(allowed)));
}

template <typename T>
Change Set(T SamplingParams::*member, T value) {
  return [member, value](SamplingParams& params) { params.*member = value; };
}

TEST(ValidateSamplingTest, DefaultsAndEveryLimitAreAccepted) {
  EXPECT_TRUE(Validate([](SamplingParams&) {}).ok());
  const Change least = [](SamplingParams& params) {
    params.max_tokens = 1;
    params.temperature = 0;
    params.top_p = std::numeric_limits<float>::denorm_min();
    params.frequency_penalty = params.presence_penalty = -2;
    params.repetition_penalty = std::numeric_limits<float>::denorm_min();
    params.stop = {"x"};
    params.stop_token_ids = {0};
    params.logprobs = 0;
    params.logit_bias = {{0, -100}};
  };
  const Change greatest = [](SamplingParams& params) {
    params.max_tokens = params.min_tokens = std::numeric_limits<int32_t>::max();
    params.temperature = 2;
    params.top_k = std::numeric_limits<int32_t>::max();
    params.min_p = 1;
    params.frequency_penalty = params.presence_penalty = 2;
    params.repetition_penalty = 10;
    params.seed = std::numeric_limits<uint64_t>::max();
    params.stop.assign(16, std::string(1024, 'x'));
    params.stop_token_ids.assign(1024, kVocabulary - 1);
    params.logprobs = 20;
    params.logit_bias = {{kVocabulary - 1, 100}};
  };
  EXPECT_EQ(Validate(least), absl::OkStatus());
  EXPECT_EQ(Validate(greatest), absl::OkStatus());
}

TEST(ValidateSamplingTest, AllViolationsAreNamed) {
  const absl::Status status = Validate([](SamplingParams& params) {
    params.max_tokens = -5;
    params.top_p = 2;
    params.stop = {"", "x", ""};
    params.prompt_logprobs = 21;
  });
  EXPECT_EQ(status.GetPayload(kFieldPayload).value_or(absl::Cord()),
            "sampling.max_tokens\nsampling.top_p\nsampling.stop[0]\nsampling.stop[2]\n"
            "sampling.prompt_logprobs");
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("max_tokens is -5"), HasSubstr("top_p is 2"), HasSubstr("0 to 20")));
  // Not more than anybody reads.
  const absl::Status many =
      Validate([](SamplingParams& params) { params.stop_token_ids.assign(1000, -1); });
  const std::string fields(many.GetPayload(kFieldPayload).value());
  EXPECT_EQ(std::count(fields.begin(), fields.end(), '\n'), 7);
}

TEST(ValidateSamplingTest, TokenCountsOutOfRange) {
  for (int32_t value : {0, -1, std::numeric_limits<int32_t>::min()}) {
    ExpectRefused("max_tokens", absl::StrCat(value), "1 or more",
                  Set(&SamplingParams::max_tokens, value));
  }
  for (int32_t value : {-1, 257, std::numeric_limits<int32_t>::max()}) {
    ExpectRefused("min_tokens", absl::StrCat(value), "0 to max_tokens (256)",
                  Set(&SamplingParams::min_tokens, value));
  }
}

TEST(ValidateSamplingTest, FractionsOutOfRange) {
  struct Case {
    std::string field;
    float SamplingParams::*member;
    std::vector<float> bad;
    std::string allowed;
  };
  const std::vector<Case> cases = {
      {"temperature", &SamplingParams::temperature, {-0.001f, 2.001f}, "0 (greedy) or up to 2"},
      {"top_p", &SamplingParams::top_p, {0, -0.5f, 1.001f}, "above 0, up to 1"},
      {"min_p", &SamplingParams::min_p, {-0.001f, 1.001f}, "0 (off) to 1"},
      {"frequency_penalty", &SamplingParams::frequency_penalty, {-2.001f, 2.001f}, "-2 to 2"},
      {"presence_penalty", &SamplingParams::presence_penalty, {-2.001f, 2.001f}, "-2 to 2"},
      {"repetition_penalty", &SamplingParams::repetition_penalty, {0, -1, 10.001f}, "up to 10"},
  };
  for (const Case& c : cases) {
    std::vector<float> values = c.bad;
    values.insert(values.end(), {kInfinity, -kInfinity});
    for (float value : values) {
      ExpectRefused(c.field, absl::StrCat(value), c.allowed, Set(c.member, value));
    }
    ExpectRefused(c.field, "nan", c.allowed, Set(c.member, kNan));
  }
}

TEST(ValidateSamplingTest, TopKAndLogprobsOutOfRange) {
  ExpectRefused("top_k", "-1", "0 (off) or more", Set(&SamplingParams::top_k, -1));
  for (int32_t value : {-1, 21, std::numeric_limits<int32_t>::max()}) {
    ExpectRefused("logprobs", absl::StrCat(value), "0 to 20",
                  Set(&SamplingParams::logprobs, std::optional<int32_t>(value)));
  }
}

TEST(ValidateSamplingTest, BadStops) {
  using Stops = std::vector<std::string>;
  ExpectRefused("stop", "17 strings", "at most 16", Set(&SamplingParams::stop, Stops(17, "x")));
  ExpectRefused("stop", "100000 strings", "at most 16",
                Set(&SamplingParams::stop, Stops(100000, "x")));
  // What is wrong with the members of a list that is too long is not said.
  ExpectRefused("stop", "17 strings", "at most 16", Set(&SamplingParams::stop, Stops(17, "")));
  ExpectRefused("stop[1]", "0 bytes", "1 to 1024", Set(&SamplingParams::stop, Stops{"x", ""}));
  ExpectRefused("stop[0]", "1025 bytes", "1 to 1024",
                Set(&SamplingParams::stop, Stops{std::string(1025, 'x')}));
  ExpectRefused("stop[0]", "no text from byte 2", "valid UTF-8",
                Set(&SamplingParams::stop, Stops{"ab\xC3"}));
}

TEST(ValidateSamplingTest, BadTokenIds) {
  using Ids = std::vector<int32_t>;
  using Bias = std::map<int32_t, float>;
  for (int32_t id : {-1, kVocabulary, std::numeric_limits<int32_t>::max(),
                     std::numeric_limits<int32_t>::min()}) {
    ExpectRefused("stop_token_ids[1]", absl::StrCat("id ", id), "0 to 99",
                  Set(&SamplingParams::stop_token_ids, Ids{0, id}));
    ExpectRefused("logit_bias", absl::StrCat("id ", id), "0 to 99",
                  Set(&SamplingParams::logit_bias, Bias{{id, 1.f}}));
  }
  ExpectRefused("stop_token_ids", "1025 ids", "at most 1024",
                Set(&SamplingParams::stop_token_ids, Ids(1025, 0)));
  ExpectRefused("stop_token_ids", "1025 ids", "at most 1024",
                Set(&SamplingParams::stop_token_ids, Ids(1025, -1)));
}

TEST(ValidateSamplingTest, BadBias) {
  using Bias = std::map<int32_t, float>;
  for (float value : {100.5f, -100.5f, kInfinity, -kInfinity, kNan}) {
    ExpectRefused("logit_bias[7]", absl::StrCat(value), "-100 to 100",
                  Set(&SamplingParams::logit_bias, Bias{{7, value}}));
  }
  Bias many;
  for (int32_t id = 0; id < 1025; ++id) many[id] = 0;
  ExpectRefused("logit_bias", "1025 entries", "at most 1024",
                Set(&SamplingParams::logit_bias, many));
}

}  // namespace
}  // namespace annulus
