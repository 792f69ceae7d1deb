#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/text/text_file.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

// The strings of golden/corpus.json and what the Python package `tokenizers` makes of them with
// each tokenizer; see golden/README.md.

namespace annulus {
namespace {

const std::filesystem::path kFolder = "engine/text/golden";

const std::vector<std::string>& Corpus() {
  static const auto& strings = *new std::vector<std::string>([] {
    std::ifstream file(testing::TestFile(kFolder / "corpus.json"));
    return nlohmann::json::parse(file).get<std::vector<std::string>>();
  }());
  return strings;
}

std::vector<uint32_t> Expected(const std::string& name) {
  std::ifstream file(testing::TestFile(kFolder / "expected" / (name + ".txt")));
  std::vector<uint32_t> hashes;
  for (uint32_t hash; file >> std::hex >> hash;) hashes.push_back(hash);
  return hashes;
}

// FNV-1a.
uint32_t Hash(absl::string_view bytes, uint32_t hash) {
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x01000193u;
  return hash;
}

uint32_t Hash(const std::vector<int32_t>& ids, absl::string_view text) {
  uint32_t hash = 0x811C9DC5u;
  for (const int32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) {
      const char byte = static_cast<char>(static_cast<uint32_t>(id) >> shift);
      hash = Hash(absl::string_view(&byte, 1), hash);
    }
  }
  return Hash(text, hash);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadFile(const std::filesystem::path& path) {
  const auto json = ReadTextFile(path);
  if (!json.ok()) return json.status();
  return LoadTokenizerJson(*json, path.string());
}

std::string Decode(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string text;
  Utf8Sanitizer sanitizer;
  sanitizer.Append(tokenizer.Decode(ids, false).value(), &text);
  sanitizer.Finish(&text);
  return text;
}

void ExpectTheSameIdsAndText(const Tokenizer& tokenizer, const std::string& name) {
  const std::vector<uint32_t> expected = Expected(name);
  ASSERT_GE(expected.size(), 2000u);
  ASSERT_EQ(expected.size(), Corpus().size());
  int wrong = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto ids = tokenizer.Encode(Corpus()[i], true);
    ASSERT_TRUE(ids.ok()) << ids.status();
    const std::string text = Decode(tokenizer, *ids);
    if (Hash(*ids, text) == expected[i]) continue;
    if (++wrong <= 5) {
      ADD_FAILURE() << name << ", string " << i << " " << nlohmann::json(Corpus()[i]) << ": ids "
                    << absl::StrJoin(*ids, ", ") << ", back " << nlohmann::json(text);
    }
  }
  EXPECT_EQ(wrong, 0) << "of " << expected.size();
}

void ExpectTheSameIdsInParts(const Tokenizer& tokenizer) {
  std::mt19937 random(31);
  for (const std::string& text : Corpus()) {
    const auto stream = tokenizer.NewStream(true);
    std::vector<int32_t> ids;
    for (absl::string_view rest = text; !rest.empty();) {
      const absl::string_view part = rest.substr(0, 1 + random() % 9);
      ASSERT_TRUE(stream->Append(part, &ids).ok());
      rest.remove_prefix(part.size());
    }
    ASSERT_TRUE(stream->Finish(&ids).ok());
    ASSERT_EQ(ids, *tokenizer.Encode(text, true)) << nlohmann::json(text);
  }
}

class SmallTokenizer : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Tokenizer> Load() {
    auto tokenizer =
        LoadFile(testing::TestFile(kFolder / "small" / absl::StrCat(GetParam(), ".json")));
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
  }
};

TEST_P(SmallTokenizer, GivesTheIdsAndTheTextOfThePackage) {
  const auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  ExpectTheSameIdsAndText(*tokenizer, GetParam());
}

TEST_P(SmallTokenizer, IdsDoNotDependOnTheParts) {
  const auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  ExpectTheSameIdsInParts(*tokenizer);
}

TEST_P(SmallTokenizer, InvalidBytesAreNamed) {
  const auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  std::mt19937 random(32);
  for (const std::string& text : Corpus()) {
    const size_t at = TruncateUtf8(text, random() % (text.size() + 1)).size();
    std::string spoilt = text;
    spoilt.insert(at, 1, "\xFF\xC0\xF8\x80\xBF"[random() % 5]);
    EXPECT_EQ(tokenizer->Encode(spoilt, true).status(), InvalidUtf8Error(at));
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, SmallTokenizer,
                         ::testing::Values("byte_level", "metaspace_first", "replaced_spaces",
                                           "split_sequence", "unigram_bytes", "unigram_words",
                                           "whitespace_words", "behind_byte_level", "nested_class",
                                           "without_type"),
                         [](const auto& info) { return std::string(info.param); });

TEST(RealTokenizers, GiveTheIdsAndTheTextOfThePackage) {
  struct Case {
    const char* name;
    const char* file;
  };
  const std::vector<Case> cases = {
      {"gpt2", "tokenizers/gpt2"},     {"llama2", "tokenizers/llama2"},
      {"llama3", "tokenizers/llama3"}, {"mistral-v3", "tokenizers/mistral-v3"},
      {"qwen3", "tokenizers/qwen3"},   {"stories260K", "models/stories260K"},
  };
  for (const Case& c : testing::ThinnedIfSanitized(cases, 2)) {
    const auto file = testing::TestData(absl::StrCat(c.file, "/tokenizer.json"));
    if (!file.has_value()) GTEST_SKIP() << "no test data";
    const auto tokenizer = LoadFile(*file);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    ExpectTheSameIdsAndText(**tokenizer, c.name);
  }
}

std::unique_ptr<Tokenizer> LoadModel(const std::filesystem::path& path) {
  const auto bytes = ReadTextFile(path);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  auto tokenizer = LoadTokenizerModel(bytes.value_or(""), path.string(), "{}", "");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

// The text is that of the ids without special ones.
void ExpectTheIdsAndTextOfSentencepiece(const Tokenizer& tokenizer, const std::string& name) {
  const std::vector<uint32_t> expected = Expected(absl::StrCat(name, ".model"));
  ASSERT_EQ(expected.size(), Corpus().size());
  int wrong = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto ids = tokenizer.Encode(Corpus()[i], true);
    ASSERT_TRUE(ids.ok()) << ids.status();
    const std::string text = tokenizer.Decode(*ids, /*skip_special=*/true).value();
    if (Hash(*ids, text) == expected[i] || ++wrong > 5) continue;
    ADD_FAILURE() << name << ", string " << i << " " << nlohmann::json(Corpus()[i]) << ": ids "
                  << absl::StrJoin(*ids, ", ") << ", back " << nlohmann::json(text);
  }
  EXPECT_EQ(wrong, 0) << "of " << expected.size();
}

class SmallModel : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Tokenizer> Load() {
    return LoadModel(testing::TestFile(kFolder / "small" / absl::StrCat(GetParam(), ".model")));
  }
};

TEST_P(SmallModel, GivesTheIdsAndTheTextOfSentencepiece) {
  const auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  ExpectTheIdsAndTextOfSentencepiece(*tokenizer, GetParam());
}

TEST_P(SmallModel, IdsDoNotDependOnTheParts) {
  const auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  ExpectTheSameIdsInParts(*tokenizer);
}

INSTANTIATE_TEST_SUITE_P(Golden, SmallModel,
                         ::testing::Values("bpe_identity", "bpe_map", "bpe_user", "unigram_loose",
                                           "unigram_map", "unigram_plain", "unigram_user"),
                         [](const auto& info) { return std::string(info.param); });

// The same ids give the same text as with the tokenizer.json beside it.
TEST(RealTokenizers, TokenizerModelGivesTheIdsAndTheTextOfSentencepiece) {
  for (const auto& [name, folder] : {std::pair("stories260K", "models/stories260K"),
                                     std::pair("mistral-v3", "tokenizers/mistral-v3")}) {
    const auto file = testing::TestData(absl::StrCat(folder, "/tokenizer.model"));
    if (!file.has_value()) GTEST_SKIP() << "no test data";
    const auto tokenizer = LoadModel(*file);
    ASSERT_NE(tokenizer, nullptr);
    ExpectTheIdsAndTextOfSentencepiece(*tokenizer, name);
    const auto beside = LoadFile(*testing::TestData(absl::StrCat(folder, "/tokenizer.json")));
    ASSERT_TRUE(beside.ok()) << beside.status();
    for (const std::string& text : Corpus()) {
      const std::vector<int32_t> ids = tokenizer->Encode(text, true).value();
      EXPECT_EQ(tokenizer->Decode(ids, true), (*beside)->Decode(ids, true));
    }
  }
}

}  // namespace
}  // namespace annulus
