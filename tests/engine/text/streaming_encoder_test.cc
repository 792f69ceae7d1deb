#include "engine/text/streaming_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/text/stages/text_stage.h"
#include "engine/text/tokenizer.h"
#include "kernels/base/sanitizers.h"
#include "tests/engine/text/small_tokenizers.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Encodes `text` in parts of random sizes of at most `largest` bytes.
absl::StatusOr<std::vector<int32_t>> EncodeInParts(const Tokenizer& tokenizer,
                                                   absl::string_view text, bool add_special,
                                                   size_t largest, std::mt19937* random) {
  const auto stream = tokenizer.NewStream(add_special);
  std::vector<int32_t> ids;
  while (!text.empty()) {
    const absl::string_view part = text.substr(0, (*random)() % (largest + 1));
    const absl::Status status = stream->Append(part, &ids);
    if (!status.ok()) return status;
    text.remove_prefix(part.size());
  }
  const absl::Status status = stream->Finish(&ids);
  if (!status.ok()) return status;
  return ids;
}

std::vector<int32_t> EncodeWhole(const Tokenizer& tokenizer, absl::string_view text, bool special) {
  const auto ids = tokenizer.Encode(text, special);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.value_or(std::vector<int32_t>());
}

void AddToken(json* file, const std::string& content, const char* flag) {
  const size_t id = (*file)["model"]["vocab"].size() + (*file)["added_tokens"].size();
  (*file)["added_tokens"].push_back({{"id", id}, {"content", content}, {"normalized", false}});
  if (flag != nullptr) (*file)["added_tokens"].back()[flag] = true;
}

// Tokenizers that between them have every stage and flag.
std::vector<std::pair<std::string, json>> Files() {
  std::vector<std::pair<std::string, json>> files;
  files.emplace_back("byte level", testing::ByteLevelTokenizer());
  files.emplace_back("byte fallback", testing::ByteFallbackTokenizer());
  json added = testing::ByteLevelTokenizer();
  AddToken(&added, "<l>", "lstrip");
  AddToken(&added, "<r>", "rstrip");
  AddToken(&added, "the", "single_word");
  AddToken(&added, " <x", nullptr);
  AddToken(&added, "caf\u00e9", "normalized");
  AddToken(&added, "a\u0301", "normalized");
  AddToken(&added, "<|begin|>aaa", nullptr);
  files.emplace_back("added tokens", added);
  json behaviors = testing::ByteLevelTokenizer();
  for (const char* behavior :
       {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}) {
    json& stages = behaviors["pre_tokenizer"]["pretokenizers"];
    stages[0]["pattern"] = {{"Regex", R"(\s|aa(?=h)|(?<=t)h+)"}};
    stages[0]["behavior"] = behavior;
    files.emplace_back(behavior, behaviors);
    stages[0]["pattern"] = {{"String", "中"}};
    stages[0]["invert"] = true;
    files.emplace_back(absl::StrCat(behavior, " inverted"), behaviors);
    stages[0]["invert"] = false;
  }
  json replacing = testing::ByteFallbackTokenizer();
  replacing["normalizer"]["normalizers"].push_back(
      {{"type", "Replace"}, {"pattern", {{"Regex", "a+b?"}}}, {"content", "he中"}});
  replacing["normalizer"]["normalizers"].push_back({{"type", "NFC"}});
  replacing["model"]["ignore_merges"] = true;
  files.emplace_back("replacing", replacing);
  json prefixed = testing::ByteLevelTokenizer();
  prefixed["pre_tokenizer"] = {{"type", "ByteLevel"}};
  prefixed["model"]["ignore_merges"] = true;
  files.emplace_back("prefix space", prefixed);
  return files;
}

std::string TextWithTokens(std::mt19937* random) {
  static constexpr const char* kParts[] = {
      "<|begin|>", "<|end|>", "<tool>",        "<l>",       " <l> ",      "<r>  ", "<r>",
      "the",       " the ",   " <x",           "caf\u00e9", "cafe\u0301", "<s>",   "aaaaaa",
      "      ",    "<|beg",   "a\u0301\u0323", "\n\n",      "aah",        "thh"};
  std::string text;
  for (size_t i = (*random)() % 12; i > 0; --i) {
    text += (*random)() % 3 == 0 ? testing::RandomText((*random)() % 20, random)
                                 : kParts[(*random)() % std::size(kParts)];
  }
  return text;
}

TEST(StreamingEncoder, IdsDoNotDependOnTheParts) {
  for (const auto& [name, file] : Files()) {
    const auto tokenizer = testing::Load(file);
    std::mt19937 random(21);
    for (int round = 0; round < 400; ++round) {
      const std::string text = TextWithTokens(&random);
      const bool special = round % 2 == 0;
      const auto whole = EncodeWhole(*tokenizer, text, special);
      for (const size_t largest : {1, 5, 40}) {
        const auto parts = EncodeInParts(*tokenizer, text, special, largest, &random);
        ASSERT_TRUE(parts.ok()) << parts.status();
        ASSERT_EQ(*parts, whole) << name << ", round " << round << ": " << text;
      }
    }
  }
}

// Encode itself works in slices: texts around their size, with no cut in sight.
TEST(StreamingEncoder, LongStretches) {
  std::mt19937 random(22);
  for (const auto& file : {testing::ByteLevelTokenizer(), testing::ByteFallbackTokenizer()}) {
    const auto tokenizer = testing::Load(file);
    for (const char* unit : {"a", " ", "中", "e\u0301\u0323", "\u0301", "the "}) {
      std::string text;
      while (text.size() < (150 << 10)) text += unit;
      const auto whole = EncodeWhole(*tokenizer, text, false);
      const auto parts = EncodeInParts(*tokenizer, text, false, 10'000, &random);
      ASSERT_TRUE(parts.ok()) << parts.status();
      EXPECT_EQ(*parts, whole) << unit;
    }
  }
}

TEST(StreamingEncoder, GivesIdsEarly) {
  for (const auto& file : {testing::ByteLevelTokenizer(), testing::ByteFallbackTokenizer()}) {
    const auto tokenizer = testing::Load(file);
    const auto stream = tokenizer->NewStream(true);
    std::string text;
    std::vector<int32_t> ids;
    size_t most_held = 0;
    for (int i = 0; i < (kSanitized ? 500 : 2000); ++i) {
      ASSERT_TRUE(stream->Append("the Hello, ", &ids).ok());
      text += "the Hello, ";
      const std::string so_far = tokenizer->Decode(ids, true).value();
      most_held = std::max(most_held, text.size() - so_far.size());
    }
    EXPECT_LE(most_held, 64u);
    ASSERT_TRUE(stream->Finish(&ids).ok());
    EXPECT_EQ(ids, EncodeWhole(*tokenizer, text, true));
  }
}

TEST(StreamingEncoder, NamesTheFirstBadByteOfTheWholeText) {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(MakeByteTokenizer());
  for (const auto& [name, file] : Files()) tokenizers.push_back(testing::Load(file));
  std::mt19937 random(23);
  const std::string good = "aé中\U0001F600 the ";
  for (const auto& tokenizer : tokenizers) {
    for (const std::string bad : {"\xFF", "\xC3", "\xE4\xB8", "\xF0\x9F\x98", "\xE4\xB8z", "\x80",
                                  "\xED\xA0\x80", "\xC0\x80", "\xF5"}) {
      for (const std::string& behind : {std::string(), good}) {
        const absl::Status status =
            EncodeInParts(*tokenizer, good + good + bad + behind, true, 3, &random).status();
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
        EXPECT_THAT(std::string(status.message()),
                    HasSubstr(absl::StrCat("offset ", 2 * good.size())));
        EXPECT_EQ(tokenizer->Encode(good + good + bad + behind, true).status(), status);
      }
    }
  }
}

TEST(StreamingEncoder, AnErrorStaysAndTheEndIsTheEnd) {
  const auto tokenizer = testing::Load(testing::ByteLevelTokenizer());
  std::vector<int32_t> ids;
  const auto failed = tokenizer->NewStream(false);
  const absl::Status status = failed->Append("a\xFF", &ids);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(failed->Append("a", &ids), status);
  EXPECT_EQ(failed->Finish(&ids), status);
  const auto ended = tokenizer->NewStream(false);
  EXPECT_TRUE(ended->Finish(&ids).ok());
  EXPECT_EQ(ended->Append("a", &ids).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ended->Finish(&ids).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(StreamingEncoder, AStretchWithoutCutsIsLimited) {
  const std::string part(1 << 20, 'a');
  const std::vector<json> files = {testing::ByteLevelTokenizer(), testing::ByteFallbackTokenizer()};
  for (const json& file : testing::ThinnedIfSanitized(files, 1)) {
    const auto tokenizer = testing::Load(file);
    const auto stream = tokenizer->NewStream(false);
    std::vector<int32_t> ids;
    absl::Status status;
    size_t given = 0;
    for (; status.ok() && given < 3 * kMaxUncutBytes; given += part.size()) {
      status = stream->Append(part, &ids);
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("bytes without a place to split"));
    EXPECT_GT(given, kMaxUncutBytes);
    EXPECT_LE(given, kMaxUncutBytes + 2 * part.size());
  }
}

class RealTokenizerStream : public ::testing::TestWithParam<const char*> {};

TEST_P(RealTokenizerStream, IdsDoNotDependOnTheParts) {
  const auto folder = testing::TestData(absl::StrCat("tokenizers/", GetParam()));
  if (!folder.has_value()) GTEST_SKIP() << "no test data";
  const auto tokenizer = LoadTokenizer(*folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::mt19937 random(24);
  for (const char* name : {"war_and_peace.txt", "moby_dick_utf8.txt"}) {
    std::ifstream file(*testing::TestData(absl::StrCat("texts/", name)), std::ios::binary);
    const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const std::string text = all.substr(0, 300'000);
    const auto whole = EncodeWhole(**tokenizer, text, true);
    for (const size_t largest : {7, 3000, 200'000}) {
      const auto parts = EncodeInParts(**tokenizer, text, true, largest, &random);
      ASSERT_TRUE(parts.ok()) << parts.status();
      EXPECT_EQ(*parts, whole) << name << " in parts of up to " << largest;
    }
  }
  for (int round = 0; round < 300; ++round) {
    const std::string text = TextWithTokens(&random);
    const auto parts = EncodeInParts(**tokenizer, text, true, 6, &random);
    ASSERT_TRUE(parts.ok()) << parts.status();
    EXPECT_EQ(*parts, EncodeWhole(**tokenizer, text, true)) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Real, RealTokenizerStream,
                         ::testing::ValuesIn(testing::ThinnedIfSanitized<const char*>(
                             {"gpt2", "llama2", "llama3", "mistral-v3", "qwen3"}, 2)),
                         [](const auto& info) {
                           std::string name = info.param;
                           name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
                           return name;
                         });

}  // namespace
}  // namespace annulus
