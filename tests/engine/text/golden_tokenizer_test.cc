#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"
#include "engine/text/unicode.h"
#include "tests/engine/text/small_tokenizers.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

class GoldenTokenizerTest : public ::testing::TestWithParam<const char*> {};

std::unique_ptr<Tokenizer> LoadReal(const std::filesystem::path& folder) {
  auto tokenizer = LoadTokenizer(folder);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

TEST_P(GoldenTokenizerTest, GivesTheExpectedIds) {
  const std::string name = GetParam();
  const auto folder = testing::TestData("tokenizers/" + name);
  const auto golden = testing::TestData("tokenizers/golden/" + name + ".json");
  if (!folder.has_value() || !golden.has_value()) GTEST_SKIP() << "no test data";
  const auto tokenizer = LoadReal(*folder);
  ASSERT_NE(tokenizer, nullptr);
  std::ifstream file(*golden);
  const nlohmann::json cases = nlohmann::json::parse(file, nullptr, false);
  ASSERT_EQ(cases.size(), 47u);
  for (const auto& expected : cases) {
    const std::string text = expected["text"];
    const auto ids = tokenizer->Encode(text, false);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, expected["ids"].get<std::vector<int32_t>>()) << text;
  }
}

TEST_P(GoldenTokenizerTest, RandomTextComesBack) {
  const std::string name = GetParam();
  const auto folder = testing::TestData("tokenizers/" + name);
  if (!folder.has_value()) GTEST_SKIP() << "no test data";
  const auto tokenizer = LoadReal(*folder);
  ASSERT_NE(tokenizer, nullptr);
  std::mt19937 random(9);
  for (int round = 0; round < 300; ++round) {
    std::string text = testing::RandomText(random() % 80, &random);
    if (name == "llama2" && text.find("▁") != std::string::npos) continue;  // comes back as a space
    const auto ids = tokenizer->Encode(text, false);
    ASSERT_TRUE(ids.ok()) << ids.status();
    if (name == "qwen3") Normalize(NormalForm::kNfc, &text);
    EXPECT_EQ(*tokenizer->Decode(*ids, false), text);
  }
}

INSTANTIATE_TEST_SUITE_P(Real, GoldenTokenizerTest,
                         ::testing::ValuesIn(testing::ThinnedIfSanitized<const char*>(
                             {"gpt2", "llama2", "llama3", "qwen3"}, 2)),
                         [](const auto& info) { return std::string(info.param); });

TEST(RealTokenizer, KindsAndFirstTokens) {
  struct Case {
    const char* folder;
    const char* kind;
    int32_t size;
    std::optional<int32_t> bos;
    std::vector<int32_t> empty;  // ids of the empty text with special tokens
  };
  const std::vector<Case> cases = {
      {"tokenizers/llama3", "byte-level BPE", 128256, 128000, {128000}},
      {"tokenizers/mistral-v3", "BPE", 32768, 1, {1}},
      {"models/stories260K", "BPE", 512, 1, {1}},
  };
  for (const Case& c : testing::ThinnedIfSanitized(cases, 1)) {
    const auto folder = testing::TestData(c.folder);
    if (!folder.has_value()) GTEST_SKIP() << "no test data";
    const auto tokenizer = LoadReal(*folder);
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_STREQ(tokenizer->kind(), c.kind);
    EXPECT_EQ(tokenizer->vocabulary_size(), c.size);
    EXPECT_EQ(tokenizer->bos(), c.bos);
    EXPECT_EQ(*tokenizer->Encode("", true), c.empty);
  }
}

}  // namespace
}  // namespace annulus
