#include "engine/sampling_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_directory.h"

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
  EXPECT_EQ(params->temperature, 0.6f);
  EXPECT_EQ(params->top_p, 0.9f);
  EXPECT_EQ(params->top_k, 20);
  EXPECT_EQ(params->min_p, 0.05f);
  EXPECT_EQ(params->repetition_penalty, 1.05f);
  EXPECT_EQ(params->max_tokens, SamplingParams().max_tokens);
}

TEST(SamplingDefaultsTest, WithoutSamplingTheLikeliestTokenIsTaken) {
  EXPECT_EQ(ParseSamplingDefaults(R"({"do_sample": false, "temperature": 0.6})", "f")->temperature,
            0);
  EXPECT_EQ(ParseSamplingDefaults(R"({"do_sample": null, "top_k": null})", "f")->temperature, 1);
  EXPECT_EQ(ParseSamplingDefaults("{}", "f")->temperature, 1);
}

TEST(SamplingDefaultsTest, RefusesWhatIsOutOfRangeByFileAndKey) {
  for (const auto& [json, key] :
       {std::pair(R"({"temperature": -0.1})", "temperature"),
        std::pair(R"({"temperature": 2.5})", "temperature"),
        std::pair(R"({"temperature": "hot"})", "temperature"),
        std::pair(R"({"top_p": 0})", "top_p"), std::pair(R"({"top_p": 1.5})", "top_p"),
        std::pair(R"({"top_k": -1})", "top_k"), std::pair(R"({"top_k": 1.5})", "top_k"),
        std::pair(R"({"min_p": 2})", "min_p"),
        std::pair(R"({"repetition_penalty": 0})", "repetition_penalty"),
        std::pair(R"({"repetition_penalty": 11})", "repetition_penalty"),
        std::pair(R"({"do_sample": 1})", "do_sample")}) {
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

TEST(SamplingDefaultsTest, TheFileMayBeAbsent) {
  const testing::TempDirectory directory;
  EXPECT_EQ(LoadSamplingDefaults(directory.path())->temperature, 1);
  directory.Write("generation_config.json", R"({"temperature": 0.25})");
  EXPECT_EQ(LoadSamplingDefaults(directory.path())->temperature, 0.25f);
}

}  // namespace
}  // namespace annulus
