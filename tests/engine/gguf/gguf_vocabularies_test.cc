// Vocabularies of published families of models as llama.cpp's converter writes them
// (golden/make_vocabularies.py). Their ids must be those that Transformers makes by the
// tokenizer.json of the same model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/gguf/gguf_file.h"
#include "engine/gguf/gguf_tokenizer.h"
#include "engine/text/text_file.h"
#include "engine/text/tokenizer.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

std::filesystem::path File(const std::string& name) {
  return testing::TestFile("engine/gguf/golden/vocabularies/" + name);
}

const std::vector<std::string>& Strings() {
  static const auto& strings = *new std::vector<std::string>(
      nlohmann::json::parse(ReadTextFile(File("strings.json")).value()));
  return strings;
}

std::vector<uint32_t> Expected(const std::string& name) {
  std::vector<uint32_t> hashes;
  std::ifstream file(File(name + ".txt"));
  for (std::string line; std::getline(file, line);) {
    hashes.push_back(static_cast<uint32_t>(std::stoul(line, nullptr, 16)));
  }
  return hashes;
}

// FNV-1a over the ids, little endian.
uint32_t Hash(const std::vector<int32_t>& ids) {
  uint32_t value = 0x811C9DC5;
  for (const int32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) {
      value = (value ^ (static_cast<uint32_t>(id) >> shift & 0xFF)) * 0x01000193;
    }
  }
  return value;
}

class GgufVocabulariesTest : public ::testing::TestWithParam<const char*> {
 protected:
  static absl::StatusOr<GgufTokenizerFiles> Files() {
    const auto file = GgufFile::Open(File(std::string(GetParam()) + ".gguf").string());
    if (!file.ok()) return file.status();
    return MakeGgufTokenizer(**file);
  }

  static void ExpectTheIds(const absl::StatusOr<std::unique_ptr<Tokenizer>>& tokenizer) {
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const std::vector<uint32_t> expected = Expected(GetParam());
    ASSERT_EQ(expected.size(), Strings().size());
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto ids = (*tokenizer)->Encode(Strings()[i], /*add_special=*/false);
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_EQ(Hash(*ids), expected[i]) << nlohmann::json(Strings()[i]);
    }
  }
};

TEST_P(GgufVocabulariesTest, HasTheIdsOfTransformers) {
  const auto files = Files();
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->warnings, ::testing::IsEmpty());
  ExpectTheIds(LoadGgufTokenizer(*files, "f.gguf"));
}

TEST_P(GgufVocabulariesTest, SoHasTheTokenizerJson) {
  const auto json = ReadTextFile(File(std::string(GetParam()) + ".json"));
  ASSERT_TRUE(json.ok()) << json.status();
  ExpectTheIds(LoadTokenizerJson(*json, "tokenizer.json"));
}

INSTANTIATE_TEST_SUITE_P(, GgufVocabulariesTest,
                         ::testing::ValuesIn(testing::ThinnedIfSanitized<const char*>(
                             {"gemma2", "gemma3", "gemma4", "gpt_oss", "llama2", "llama2_original",
                              "llama3", "mistral", "mistral_chatml", "mistral_nemo", "phi3",
                              "qwen2"},
                             4)),
                         [](const auto& info) { return std::string(info.param); });

// The text of a table or of code, in which runs of spaces are one piece each.
TEST(GgufSpacesTest, ARunIsOnePiece) {
  const auto file = GgufFile::Open(File("gemma2.gguf").string());
  ASSERT_TRUE(file.ok()) << file.status();
  const auto files = MakeGgufTokenizer(**file);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto tokenizer = LoadGgufTokenizer(*files, "f.gguf");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto ids = (*tokenizer)->Encode(absl::StrCat("a", std::string(10, ' '), "b"), false);
  ASSERT_TRUE(ids.ok()) << ids.status();
  ASSERT_EQ(ids->size(), 3u);
  EXPECT_EQ(*(*tokenizer)->Decode(std::vector<int32_t>{(*ids)[1]}, false), std::string(10, ' '));
}

}  // namespace
}  // namespace annulus
