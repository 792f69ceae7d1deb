#include "engine/text/incremental_detokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "engine/text/utf8.h"
#include "tests/engine/text/small_tokenizers.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

std::string Sanitized(absl::string_view bytes) {
  std::string text;
  Utf8Sanitizer sanitizer;
  sanitizer.Append(bytes, &text);
  sanitizer.Finish(&text);
  return text;
}

// The contract: valid pieces that add up to Decode, with what is ill-formed replaced.
void ExpectSameAsDecode(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip) {
  const auto bytes = tokenizer.Decode(ids, skip);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  IncrementalDetokenizer detokenizer(&tokenizer, skip);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = detokenizer.Push(id);
    ASSERT_FALSE(FirstInvalidUtf8(piece).has_value());
    text += piece;
  }
  text += detokenizer.Flush();
  ASSERT_EQ(text, Sanitized(*bytes));
}

void ExpectSameAsDecodeForRandomIds(const Tokenizer& tokenizer, int rounds) {
  std::mt19937 random(5);
  for (int round = 0; round < rounds; ++round) {
    std::vector<int32_t> ids;
    while (ids.size() < 1 + random() % 40) {
      // Small ids are bytes in most vocabularies: many broken characters.
      const auto bound = static_cast<uint32_t>(tokenizer.vocabulary_size());
      const auto id = static_cast<int32_t>(random() % (random() % 2 == 0 ? bound : 300) % bound);
      if (tokenizer.HasToken(id)) ids.push_back(id);
    }
    ExpectSameAsDecode(tokenizer, ids, round % 2 == 0);
  }
}

TEST(IncrementalDetokenizer, AddsUpToDecodeForRandomIds) {
  ExpectSameAsDecodeForRandomIds(*testing::Load(testing::ByteLevelTokenizer()), 2000);
  ExpectSameAsDecodeForRandomIds(*testing::Load(testing::ByteFallbackTokenizer()), 2000);
  ExpectSameAsDecodeForRandomIds(*MakeByteTokenizer(), 2000);
}

// One byte of a character is U+FFFD, and a special token is its content.
TEST(TokenText, IsOfTheTokenAlone) {
  const auto bytes = MakeByteTokenizer();
  EXPECT_EQ(TokenText(*bytes, 'a'), "a");
  EXPECT_EQ(TokenText(*bytes, 0xc3), "\uFFFD");
  EXPECT_EQ(TokenText(*bytes, kByteTokenizerEndOfText), "<|endoftext|>");
  EXPECT_EQ(TokenText(*bytes, 5000), "");
  EXPECT_EQ(TokenText(*MakeMissingTokenizer(), 3), "");
  const auto level = testing::Load(testing::ByteLevelTokenizer());
  for (int32_t id = 0; id < level->vocabulary_size(); ++id) {
    if (!level->HasToken(id)) continue;
    EXPECT_EQ(TokenText(*level, id), Sanitized(level->Decode(std::span(&id, 1), false).value()));
    EXPECT_EQ(TokenBytes(*level, id), level->Decode(std::span(&id, 1), false).value());
  }
}

TEST(TokenBytes, OfAPartOfACharacterAreExact) {
  EXPECT_EQ(TokenBytes(*MakeByteTokenizer(), 0xc3), "\xc3");
}

TEST(IncrementalDetokenizer, AddsUpToDecodeForRealTokenizers) {
  for (const char* name : {"tokenizers/gpt2", "tokenizers/llama2", "models/stories260K"}) {
    const auto folder = testing::TestData(name);
    if (!folder.has_value()) GTEST_SKIP() << "no test data";
    const auto tokenizer = LoadTokenizer(*folder);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    ExpectSameAsDecodeForRandomIds(**tokenizer, 300);
  }
}

TEST(IncrementalDetokenizer, AddsUpToTheTextForEncodedText) {
  std::mt19937 random(6);
  for (const auto& json : {testing::ByteLevelTokenizer(), testing::ByteFallbackTokenizer()}) {
    const auto tokenizer = testing::Load(json);
    for (int round = 0; round < 300; ++round) {
      const auto ids = tokenizer->Encode(testing::RandomText(random() % 30, &random), true);
      ASSERT_TRUE(ids.ok()) << ids.status();
      ExpectSameAsDecode(*tokenizer, *ids, true);
    }
  }
}

TEST(IncrementalDetokenizer, NeverEmitsHalfACharacterAndHoldsNoLostByte) {
  const std::string lost = kReplacementCharacter;
  const auto tokenizer = MakeByteTokenizer();
  IncrementalDetokenizer detokenizer(tokenizer.get());
  EXPECT_EQ(detokenizer.Push(0xF0), "");
  EXPECT_EQ(detokenizer.Push(0x9F), "");
  EXPECT_EQ(detokenizer.Push(0x98), "");
  EXPECT_EQ(detokenizer.Push(0x80), "\U0001F600");
  EXPECT_EQ(detokenizer.Push(0xE4), "");
  EXPECT_EQ(detokenizer.Push('a'), lost + "a");
  EXPECT_EQ(detokenizer.Push(0xC0), lost);
  EXPECT_EQ(detokenizer.Push(0xE4), "");
  EXPECT_EQ(detokenizer.Push(kByteTokenizerEndOfText), "");  // special: left out
  EXPECT_EQ(detokenizer.Push(0xB8), "");
  EXPECT_EQ(detokenizer.Push(0xAD), "\u4e2d");
  EXPECT_EQ(detokenizer.Push(0xE4), "");
  EXPECT_EQ(detokenizer.Flush(), lost);
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(IncrementalDetokenizer, StripsOnlyTheFirstSpaceOfAText) {
  const auto tokenizer = testing::Load(testing::ByteFallbackTokenizer());
  const auto ids = tokenizer->Encode("the the", true);  // <s>, ▁the, ▁the
  ASSERT_TRUE(ids.ok());
  ASSERT_EQ(ids->size(), 3u);
  IncrementalDetokenizer detokenizer(tokenizer.get());
  for (int text = 0; text < 2; ++text) {  // Flush starts a new text
    EXPECT_EQ(detokenizer.Push((*ids)[0]), "");
    EXPECT_EQ(detokenizer.Push((*ids)[1]), "the");
    EXPECT_EQ(detokenizer.Push((*ids)[2]), " the");
    EXPECT_EQ(detokenizer.Flush(), "");
  }
}

TEST(IncrementalDetokenizer, IdsWithoutATokenAddNothing) {
  const auto tokenizer = testing::Load(testing::ByteLevelTokenizer());
  IncrementalDetokenizer detokenizer(tokenizer.get());
  EXPECT_EQ(detokenizer.Push(0xE4), "");
  EXPECT_EQ(detokenizer.Push(tokenizer->vocabulary_size()), "");
  EXPECT_EQ(detokenizer.Push(-1), "");
  EXPECT_EQ(detokenizer.Push(0xB8), "");
  EXPECT_EQ(detokenizer.Push(0xAD), "\u4e2d");
}

}  // namespace
}  // namespace annulus
