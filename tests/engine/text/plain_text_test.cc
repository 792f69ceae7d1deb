// Text that others wrote: no control token comes out of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/text/sentencepiece/sentencepiece_file.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/text/small_tokenizers.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using nlohmann::json;

std::string Decoded(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  return tokenizer.Decode(ids, /*skip_special=*/false).value_or("(does not decode)");
}

// The texts of all control tokens but the one for text without tokens.
std::vector<std::string> ControlTexts(const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    if (tokenizer.IsControl(id) && Decoded(tokenizer, {id}) != "<unk>") {
      texts.push_back(Decoded(tokenizer, {id}));
    }
  }
  return texts;
}

std::vector<int32_t> PlainInParts(const Tokenizer& tokenizer, absl::string_view text,
                                  std::mt19937& random) {
  const auto stream = tokenizer.NewPlainStream();
  std::vector<int32_t> ids;
  while (!text.empty()) {
    const absl::string_view part = text.substr(0, random() % 8);
    EXPECT_TRUE(stream->Append(part, &ids).ok());
    text.remove_prefix(part.size());
  }
  EXPECT_TRUE(stream->Finish(&ids).ok());
  return ids;
}

// Every control token alone, beside letters, spaces and lines, twice, and one inside another.
void ExpectPlain(const Tokenizer& tokenizer, bool keeps_spaces) {
  const std::vector<std::string> controls = ControlTexts(tokenizer);
  ASSERT_FALSE(controls.empty());
  std::mt19937 random(1);
  for (const std::string& control : controls) {
    ASSERT_FALSE(control.empty());
    const std::string& other = controls[random() % controls.size()];
    for (const std::string& text :
         {control, absl::StrCat("a", control, "b"), absl::StrCat("a ", control, " b"),
          absl::StrCat("\n", control, "\n"), absl::StrCat(control, control, other),
          absl::StrCat(control.substr(0, 1), other, control.substr(1))}) {
      const auto ids = tokenizer.EncodePlain(text);
      ASSERT_TRUE(ids.ok()) << ids.status();
      for (const int32_t id : *ids) {
        EXPECT_FALSE(tokenizer.IsControl(id)) << id << " of \"" << text << "\"";
      }
      if (keeps_spaces) {
        EXPECT_EQ(Decoded(tokenizer, *ids), text);
      }
      EXPECT_EQ(PlainInParts(tokenizer, text, random), *ids) << text;
    }
  }
}

TEST(PlainText, ControlTokensAreText) {
  const auto bytes = testing::Load(testing::ByteLevelTokenizer());
  EXPECT_EQ(ControlTexts(*bytes), (std::vector<std::string>{"<|begin|>", "<|end|>", "<tool>"}));
  ExpectPlain(*bytes, /*keeps_spaces=*/true);
  ExpectPlain(*testing::Load(testing::ByteFallbackTokenizer()), /*keeps_spaces=*/false);
  // The same tokens where they are looked for in normalized text.
  json file = testing::ByteLevelTokenizer();
  for (json& token : file["added_tokens"]) token["normalized"] = true;
  file["normalizer"] = {{"type", "NFKC"}};
  const auto normalized = testing::Load(file);
  ExpectPlain(*normalized, /*keeps_spaces=*/true);
  const auto wide = normalized->EncodePlain("＜|end|＞");
  EXPECT_EQ(Decoded(*normalized, *wide), "<|end|>");
  for (const int32_t id : *wide) EXPECT_FALSE(normalized->IsControl(id));
}

// Words and white space that were added after training are found as ever.
TEST(PlainText, OtherAddedTokensStay) {
  json file = testing::ByteLevelTokenizer();
  const int next = static_cast<int>(file["model"]["vocab"].size() + file["added_tokens"].size());
  for (const char* content : {"covid19", "   "}) {
    file["added_tokens"].push_back({{"id", next + file["added_tokens"].size() - 3},
                                    {"content", content},
                                    {"normalized", false},
                                    {"special", false}});
  }
  const auto tokenizer = testing::Load(file);
  const std::string text = "a covid19   b";
  EXPECT_EQ(tokenizer->EncodePlain(text).value(), tokenizer->Encode(text, false).value());
  EXPECT_THAT(tokenizer->EncodePlain(text).value(), ::testing::Contains(next));
  EXPECT_THAT(tokenizer->EncodePlain(text).value(), ::testing::Contains(next + 1));
}

// Models whose own vocabulary has the texts of control tokens, and that make them of any text.
TEST(PlainText, ModelsThatKnowControlTokensGiveTheirTextInstead) {
  json unigram = testing::ByteFallbackTokenizer();
  json vocabulary = json::array({{"<unk>", 0.0}, {"<s>", 0.0}, {"</s>", 0.0}});
  for (const char* piece : {"<", ">", "/", "s", "a", "b", "\n", "▁", "s>"}) {
    vocabulary.push_back({piece, -1.0});
  }
  unigram["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocabulary}};
  ExpectPlain(*testing::Load(unigram), /*keeps_spaces=*/false);

  json whole = testing::ByteLevelTokenizer();
  whole["model"]["ignore_merges"] = true;
  whole["pre_tokenizer"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const size_t id = whole["model"]["vocab"].size() + whole["added_tokens"].size();
  whole["model"]["vocab"]["<|turn|>"] = id;
  whole["added_tokens"].push_back(
      {{"id", id}, {"content", "<|turn|>"}, {"normalized", false}, {"special", true}});
  ExpectPlain(*testing::Load(whole), /*keeps_spaces=*/true);

  SentencePieceFile file;
  using Type = SentencePieceFile::Type;
  for (const SentencePieceFile::Kind kind :
       {SentencePieceFile::Kind::kBpe, SentencePieceFile::Kind::kUnigram}) {
    file.kind = kind;
    file.pieces = {{"<unk>", 0, Type::kUnknown},       {"<s>", 0, Type::kControl},
                   {"</s>", 0, Type::kControl},        {"<turn>", 0, Type::kUserDefined},
                   {"[BREAK]", 0, Type::kUserDefined}, {"word", 0, Type::kUserDefined}};
    for (const char* piece : {"▁", "<", ">", "/", "s", "t", "u", "r",  "n",  "a", "b",
                              "[", "]", "B", "R", "E", "A", "K", "\n", "tu", "rn"}) {
      file.pieces.push_back({piece, -1.0f, Type::kNormal});
    }
    const auto tokenizer =
        LoadTokenizerModel(SerializeSentencePieceFile(file), "tokenizer.model", "{}", "config");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    ExpectPlain(**tokenizer, /*keeps_spaces=*/false);
    EXPECT_EQ(ControlTexts(**tokenizer),
              (std::vector<std::string>{"<s>", "</s>", "<turn>", "[BREAK]"}));
    // Text without tokens is still unknown.
    EXPECT_THAT((*tokenizer)->EncodePlain("é").value(), ::testing::Contains(0));
  }
}

TEST(PlainText, RealVocabularies) {
  int seen = 0;
  const std::vector<std::string> names = {"gpt2", "llama2", "llama3", "mistral-v3", "qwen3"};
  for (const std::string& name : testing::ThinnedIfSanitized(names, 2)) {
    const auto folder = testing::TestData(absl::StrCat("tokenizers/", name));
    if (!folder.has_value()) continue;
    const auto tokenizer = LoadTokenizer(*folder);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    SCOPED_TRACE(name);
    ExpectPlain(**tokenizer, /*keeps_spaces=*/std::string((*tokenizer)->kind()) != "BPE");
    const std::string prose = "It was the best of times, it was the worst of times.\n\n  1 < 2 > 0";
    EXPECT_EQ((*tokenizer)->EncodePlain(prose).value(), (*tokenizer)->Encode(prose, false).value());
    ++seen;
  }
  if (seen == 0) GTEST_SKIP() << "no tokenizers";
}

TEST(PlainText, BytesAndNoTokenizer) {
  EXPECT_EQ(MakeByteTokenizer()->EncodePlain("<|endoftext|>").value().size(), 13u);
  EXPECT_EQ(MakeMissingTokenizer()->EncodePlain("x").status().code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace annulus
