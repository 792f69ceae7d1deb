#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "engine/text/tokenizer.h"
#include "tests/engine/text/small_tokenizers.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LoadTokenizerTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }

  const testing::TempDirectory directory_;
  const std::filesystem::path& folder_ = directory_.path();
};

TEST_F(LoadTokenizerTest, WithoutTokenizerJson) {
  const absl::Status status = LoadTokenizer(folder_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tokenizer.json"));
  EXPECT_EQ(LoadTokenizer(folder_ / "absent").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(LoadTokenizerTest, AMissingTokenizerSaysSo) {
  const auto tokenizer = MakeMissingTokenizer();
  const std::vector<int32_t> ids = {1};
  std::vector<int32_t> more;
  for (const absl::Status& status :
       {tokenizer->Encode("a", false).status(), tokenizer->Decode(ids, false).status(),
        tokenizer->NewStream(true)->Finish("a", &more), tokenizer->usable()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()), HasSubstr("send token_ids"));
  }
  std::string text;
  DecodeState state;
  tokenizer->DecodeNext(1, &state, &text);
  EXPECT_EQ(text, "");
}

TEST_F(LoadTokenizerTest, TheTemplateBeatsTheConfig) {
  Write("tokenizer.json", testing::ByteFallbackTokenizer().dump());
  Write("tokenizer_config.json",
        R"({"add_bos_token": false, "add_eos_token": true, "bos_token": "</s>"})");
  const auto tokenizer = LoadTokenizer(folder_);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->bos(), 2);
  EXPECT_THAT(*(*tokenizer)->Encode("", true), ElementsAre(1));
}

TEST_F(LoadTokenizerTest, TheConfigSaysWhatIsAddedWithoutATemplate) {
  json value = testing::ByteFallbackTokenizer();
  value["post_processor"] = nullptr;
  Write("tokenizer.json", value.dump());
  ASSERT_TRUE(LoadTokenizer(folder_).ok());
  EXPECT_THAT(*(*LoadTokenizer(folder_))->Encode("", true), ElementsAre());

  Write("tokenizer_config.json", R"({"add_bos_token": true, "add_eos_token": true,
      "bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>"})");
  const auto tokenizer = LoadTokenizer(folder_);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->bos(), 1);
  EXPECT_THAT(*(*tokenizer)->Encode("", true), ElementsAre(1, 2));
}

TEST_F(LoadTokenizerTest, BadConfigs) {
  json value = testing::ByteFallbackTokenizer();
  value["post_processor"] = nullptr;
  Write("tokenizer.json", value.dump());
  for (const char* config :
       {"", "[]", R"({"add_bos_token": 1})", R"({"add_bos_token": true})",
        R"({"add_eos_token": true, "eos_token": null})", R"({"bos_token": "absent"})",
        R"({"bos_token": 5})", R"({"bos_token": {}})"}) {
    Write("tokenizer_config.json", config);
    const absl::Status status = LoadTokenizer(folder_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << config;
    EXPECT_THAT(std::string(status.message()), HasSubstr("tokenizer_config.json")) << config;
  }
}

}  // namespace
}  // namespace annulus
