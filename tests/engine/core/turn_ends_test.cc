#include "engine/loading/turn_ends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/loading/loaded_model.h"
#include "engine/model/families.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/plain_options.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<std::string>& Controls() {
  static const auto& texts = *new std::vector<std::string>{
      "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>",         "<|return|>",
      "<|call|>",   "</s>",       "<|other|>",  "<turn|>",       "<|tool_response>"};
  return texts;
}

// Controls() have the ids from 0 on.
std::string TokenizerJson() {
  nlohmann::json added = nlohmann::json::array();
  for (const std::string& text : Controls()) {
    added.push_back({{"id", added.size()}, {"content", text}, {"special", true}});
  }
  const size_t first = added.size();
  nlohmann::json vocabulary = {{"a", first}, {"<", first + 1}, {"plain", first + 2}};
  return nlohmann::json{
      {"added_tokens", added},
      {"decoder", {{"type", "Fuse"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}}
      .dump();
}

int32_t IdOf(absl::string_view text) {
  const auto found = std::find(Controls().begin(), Controls().end(), text);
  EXPECT_NE(found, Controls().end()) << text;
  return static_cast<int32_t>(found - Controls().begin());
}

std::vector<int32_t> EndsOf(const std::string& model_type, std::vector<int32_t> named,
                            const std::string& eos = "", const std::string& json = TokenizerJson(),
                            int32_t vocabulary = 100) {
  const auto tokenizer = LoadTokenizerJson(json, "t");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  ModelConfig config;
  config.model_type = model_type;
  config.vocabulary = vocabulary;
  config.eos_ids = std::move(named);
  std::vector<std::pair<std::string, std::string>> special = {{"bos_token", "<|other|>"}};
  if (!eos.empty()) special.emplace_back("eos_token", eos);
  AddTurnEnds(**tokenizer, special, config);
  return config.eos_ids;
}

TEST(TurnEndsTest, EveryFamilyHasItsOwn) {
  const int32_t end = IdOf("</s>");
  const int32_t im_end = IdOf("<|im_end|>");
  for (const Family& family : Families()) {
    SCOPED_TRACE(family.model_type);
    std::vector<int32_t> expected = {end};
    const std::string type(family.model_type);
    if (type == "llama" || type == "mistral" || type == "mixtral" || type == "ministral3") {
      expected.insert(expected.end(), {IdOf("<|eot_id|>"), IdOf("<|eom_id|>")});
    }
    if (type.starts_with("phi")) expected.push_back(IdOf("<|end|>"));
    if (type == "gemma4_text") {
      expected.insert(expected.end(), {IdOf("<turn|>"), IdOf("<|tool_response>")});
    } else if (type.starts_with("gemma")) {
      expected.push_back(IdOf("<end_of_turn>"));
    }
    if (type == "gpt_oss") {
      expected.insert(expected.end(), {IdOf("<|return|>"), IdOf("<|call|>")});
    } else {
      expected.push_back(im_end);
    }
    EXPECT_EQ(EndsOf(type, {end}), expected);
  }
}

TEST(TurnEndsTest, TheEndThatTheTokenizerNamesCountsToo) {
  EXPECT_THAT(EndsOf("qwen3", {IdOf("<|im_end|>")}, "<|other|>"),
              ElementsAre(IdOf("<|im_end|>"), IdOf("<|other|>")));
  EXPECT_THAT(EndsOf("qwen3", {IdOf("<|im_end|>")}, "<|im_end|>"), ElementsAre(IdOf("<|im_end|>")));
}

// In gpt-oss an answer is several messages, and that is the end of each.
TEST(TurnEndsTest, TheEndOfAMessageIsNeverTheEndOfAnAnswer) {
  const int32_t message_end = IdOf("<|end|>");
  EXPECT_THAT(EndsOf("gpt_oss", {message_end}, "<|end|>"),
              ElementsAre(IdOf("<|return|>"), IdOf("<|call|>")));
  EXPECT_THAT(EndsOf("phi3", {message_end}), ElementsAre(message_end, IdOf("<|im_end|>")));
}

TEST(TurnEndsTest, OnlyAControlTokenOfTheVocabularyCounts) {
  // Texts of several tokens, of one that is no control token, and none at all.
  const std::string without = R"({"added_tokens": [{"id": 3, "content": "<|im_end|>x"}],
      "decoder": {"type": "Fuse"}, "model": {"type": "BPE", "merges": [],
      "vocab": {"<": 0, "|": 1, "end": 2}}})";
  EXPECT_THAT(EndsOf("qwen2", {}, "end", without), IsEmpty());
  EXPECT_THAT(EndsOf("qwen2", {}, "<", without), IsEmpty());
  EXPECT_THAT(EndsOf("qwen2", {}, "plain"), ElementsAre(IdOf("<|im_end|>")));
  // Beyond the embedding no token can be sampled.
  EXPECT_THAT(EndsOf("gemma2", {}, "", TokenizerJson(), IdOf("<end_of_turn>")),
              ElementsAre(IdOf("<|im_end|>")));
  ModelConfig config;
  config.model_type = "qwen2";
  config.vocabulary = 100;
  AddTurnEnds(*MakeMissingTokenizer(), {}, config);
  EXPECT_THAT(config.eos_ids, IsEmpty());
}

// config.json and generation_config.json name the end of a text alone.
TEST(TurnEndsTest, ADirectoryIsServedWithThem) {
  const testing::TempDirectory directory;
  const std::filesystem::path golden = testing::TestFile("golden/llama_mha");
  for (const char* file : {"config.json", "model.safetensors"}) {
    std::filesystem::copy(golden / file, directory.path() / file);
  }
  directory.Write("tokenizer.json", TokenizerJson());
  directory.Write("tokenizer_config.json", R"({"eos_token": "<|other|>"})");
  directory.Write("chat_template.jinja", "{{ messages[0].content }}<|im_end|>");
  directory.Write("generation_config.json",
                  absl::StrCat(R"({"eos_token_id": )", IdOf("</s>"), "}"));
  KernelRegistry kernels;
  RegisterCpuKernels(kernels);
  const auto backend = CreateCpuBackend();
  ASSERT_TRUE(backend.ok()) << backend.status();
  EngineOptions options = testing::PlainOptions();
  options.model = directory.path().string();
  const auto loaded = LoadModel(options, **backend, kernels);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::vector<int32_t> expected = {IdOf("</s>"), IdOf("<|eot_id|>"), IdOf("<|eom_id|>"),
                                         IdOf("<|im_end|>"), IdOf("<|other|>")};
  EXPECT_EQ(loaded->info.end_of_text_ids, expected);
  EXPECT_EQ(loaded->ranks.config.eos_ids, expected);
}

}  // namespace
}  // namespace annulus
