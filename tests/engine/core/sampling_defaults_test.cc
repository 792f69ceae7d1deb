#include "engine/loading/sampling_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace annulus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SamplingDefaultsTest, TakesWhatTheFileSays) {
  const auto params = ParseSamplingDefaults(
      R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.05,
          "repetition_penalty": 1.05, "max_new_tokens": 9, "eos_token_id": [1, 2], "other": {}})",
      "f");
  ASSERT_TRUE(params.ok()) << params.status();
  EXPECT_EQ(params->params.temperature, 0.6f);
  EXPECT_EQ(params->params.top_p, 0.9f);
  EXPECT_EQ(params->params.top_k, 20);
  EXPECT_EQ(params->params.min_p, 0.05f);
  EXPECT_EQ(params->params.repetition_penalty, 1.05f);
  EXPECT_EQ(params->params.max_tokens, SamplingParams().max_tokens);
}

TEST(SamplingDefaultsTest, WithoutSamplingTheLikeliestTokenIsTaken) {
  EXPECT_EQ(
      ParseSamplingDefaults(R"({"do_sample": false, "temperature": 0.6})", "f")->params.temperature,
      0);
  EXPECT_EQ(ParseSamplingDefaults(R"({"do_sample": null, "top_k": null})", "f")->params.temperature,
            1);
  EXPECT_EQ(ParseSamplingDefaults("{}", "f")->params.temperature, 1);
}

// Publishers write what their own tools accept; the model is served with the nearest meaning.
TEST(SamplingDefaultsTest, TakesTheNearestOfWhatIsOutOfRangeAndSaysSo) {
  struct Case {
    const char* json;
    float SamplingParams::*field;
    float taken;
    const char* warning;
  };
  const float least = std::numeric_limits<float>::min();
  for (const Case& c :
       {Case{R"({"temperature": -0.1})", &SamplingParams::temperature, 0, "temperature is -0.1"},
        Case{R"({"temperature": 2.5})", &SamplingParams::temperature, 2, "temperature is 2.5"},
        Case{R"({"top_p": 0})", &SamplingParams::top_p, least, "top_p is 0"},
        Case{R"({"top_p": 1.5})", &SamplingParams::top_p, 1, "top_p is 1.5"},
        Case{R"({"min_p": 2})", &SamplingParams::min_p, 1, "min_p is 2"},
        Case{R"({"min_p": -1e300})", &SamplingParams::min_p, 0, "min_p is -1e+300"},
        Case{R"({"repetition_penalty": 0})", &SamplingParams::repetition_penalty, 0.1f,
             "repetition_penalty is 0"},
        Case{R"({"repetition_penalty": 11})", &SamplingParams::repetition_penalty, 10,
             "repetition_penalty is 11"}}) {
    const auto defaults = ParseSamplingDefaults(c.json, "dir/generation_config.json");
    ASSERT_TRUE(defaults.ok()) << c.json << defaults.status();
    EXPECT_EQ(defaults->params.*c.field, c.taken) << c.json;
    ASSERT_EQ(defaults->warnings.size(), 1u) << c.json;
    EXPECT_THAT(defaults->warnings[0], AllOf(HasSubstr("dir/generation_config.json: "),
                                             HasSubstr(c.warning), HasSubstr("out of range")));
  }
  for (const auto& [json, taken] :
       {std::pair(R"({"top_k": -1})", 0), std::pair(R"({"top_k": -9223372036854775808})", 0),
        std::pair(R"({"top_k": 3000000000})", std::numeric_limits<int32_t>::max())}) {
    const auto defaults = ParseSamplingDefaults(json, "f");
    ASSERT_TRUE(defaults.ok()) << defaults.status();
    EXPECT_EQ(defaults->params.top_k, taken) << json;
    EXPECT_EQ(defaults->warnings.size(), 1u) << json;
  }
  EXPECT_EQ(ParseSamplingDefaults(R"({"top_k": -1, "top_p": 0, "temperature": 2.5})", "f")
                ->warnings.size(),
            3u);
  EXPECT_TRUE(ParseSamplingDefaults(R"({"top_k": 0, "top_p": 1, "temperature": 2})", "f")
                  ->warnings.empty());
}

TEST(SamplingDefaultsTest, RefusesValuesOfAnotherTypeByFileAndKey) {
  for (const auto& [json, key] :
       {std::pair(R"({"temperature": "hot"})", "temperature"),
        std::pair(R"({"top_p": true})", "top_p"), std::pair(R"({"top_k": 1.5})", "top_k"),
        std::pair(R"({"min_p": []})", "min_p"), std::pair(R"({"do_sample": 1})", "do_sample")}) {
    const auto params = ParseSamplingDefaults(json, "dir/generation_config.json");
    ASSERT_EQ(params.status().code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_THAT(
        std::string(params.status().message()),
        AllOf(HasSubstr("dir/generation_config.json"), HasSubstr(key), HasSubstr("allowed")))
        << json;
  }
  EXPECT_FALSE(ParseSamplingDefaults("[]", "f").ok());
  EXPECT_FALSE(ParseSamplingDefaults("{", "f").ok());
}

}  // namespace
}  // namespace annulus
