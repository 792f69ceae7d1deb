#include "engine/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/text/unicode.h"
#include "tests/engine/text/small_tokenizers.h"

namespace annulus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<int32_t> Encode(const Tokenizer& tokenizer, absl::string_view text,
                            bool add_special = false) {
  const auto ids = tokenizer.Encode(text, add_special);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.value_or(std::vector<int32_t>());
}

// The tokens, each as it decodes by itself.
std::vector<std::string> Tokens(const Tokenizer& tokenizer, absl::string_view text) {
  std::vector<std::string> tokens;
  for (const int32_t id : Encode(tokenizer, text)) {
    tokens.push_back(tokenizer.Decode(std::vector<int32_t>{id}, false).value());
  }
  return tokens;
}

nlohmann::json& AddToken(nlohmann::json* json, const std::string& content) {
  const size_t id = (*json)["model"]["vocab"].size() + (*json)["added_tokens"].size();
  (*json)["added_tokens"].push_back({{"id", id},
                                     {"content", content},
                                     {"single_word", false},
                                     {"lstrip", false},
                                     {"rstrip", false},
                                     {"normalized", false},
                                     {"special", false}});
  return (*json)["added_tokens"].back();
}

TEST(ByteTokenizer, IdsAreBytes) {
  const auto tokenizer = MakeByteTokenizer();
  EXPECT_THAT(Encode(*tokenizer, "aé\n", true), ElementsAre(97, 0xC3, 0xA9, 10));
  EXPECT_EQ(tokenizer->vocabulary_size(), 257);
  EXPECT_TRUE(tokenizer->IsSpecial(256));
  EXPECT_FALSE(tokenizer->IsSpecial(255));
  EXPECT_FALSE(tokenizer->HasToken(257));
  EXPECT_EQ(tokenizer->bos(), std::nullopt);
  EXPECT_STREQ(tokenizer->kind(), "bytes");
  const std::vector<int32_t> ids = {104, 105, 256};
  EXPECT_EQ(*tokenizer->Decode(ids, true), "hi");
  EXPECT_EQ(*tokenizer->Decode(ids, false), "hi<|endoftext|>");
}

TEST(Tokenizer, BadTextAndBadIdsAreNamed) {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(MakeByteTokenizer());
  tokenizers.push_back(testing::Load(testing::ByteLevelTokenizer()));
  tokenizers.push_back(testing::Load(testing::ByteFallbackTokenizer()));
  for (const auto& tokenizer : tokenizers) {
    const absl::Status text = tokenizer->Encode("abc\xFF", false).status();
    EXPECT_EQ(text.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(text.message()), HasSubstr("offset 3"));
    for (const int32_t bad : {-1, tokenizer->vocabulary_size(), INT32_MAX, INT32_MIN}) {
      const absl::Status ids = tokenizer->Decode(std::vector<int32_t>{5, bad}, false).status();
      EXPECT_EQ(ids.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(ids.message()), HasSubstr(std::to_string(bad)));
      EXPECT_THAT(std::string(ids.message()),
                  HasSubstr(std::to_string(tokenizer->vocabulary_size() - 1)));
    }
  }
}

TEST(Tokenizer, ByteLevelMergesWithinPieces) {
  const auto tokenizer = testing::Load(testing::ByteLevelTokenizer());
  EXPECT_STREQ(tokenizer->kind(), "byte-level BPE");
  EXPECT_THAT(Tokens(*tokenizer, "the the"), ElementsAre("t", "he", " the"));
  EXPECT_THAT(Tokens(*tokenizer, "aaaaaaa"), ElementsAre("aaaa", "aa", "a"));
  EXPECT_THAT(Tokens(*tokenizer, "中"), ElementsAre("中"));
  EXPECT_THAT(Tokens(*tokenizer, ""), IsEmpty());
}

TEST(Tokenizer, ByteFallbackPrefixesASpaceAndSpellsUnknownCharacters) {
  const auto tokenizer = testing::Load(testing::ByteFallbackTokenizer());
  EXPECT_STREQ(tokenizer->kind(), "BPE");
  EXPECT_THAT(Encode(*tokenizer, ""), IsEmpty());
  EXPECT_THAT(Tokens(*tokenizer, "the the"), ElementsAre("the", "the"));  // each decoded alone
  const auto ids = Encode(*tokenizer, "z");
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_EQ(ids[1], 3 + 'z');
  EXPECT_EQ(*tokenizer->Decode(Encode(*tokenizer, "the Hello, 中文"), true), "the Hello, 中文");
}

TEST(Tokenizer, SpecialTokensAreFoundInText) {
  const auto tokenizer = testing::Load(testing::ByteLevelTokenizer());
  const int32_t begin = tokenizer->bos().value();
  EXPECT_THAT(Encode(*tokenizer, "a<|end|>b", true), ElementsAre(begin, 'a', begin + 1, 'b'));
  EXPECT_THAT(Encode(*tokenizer, "<|end|><|end|>"), ElementsAre(begin + 1, begin + 1));
  EXPECT_THAT(Encode(*tokenizer, "<|en"), ElementsAre('<', '|', 'e', 'n'));
  EXPECT_TRUE(tokenizer->IsSpecial(begin));
  EXPECT_FALSE(tokenizer->IsSpecial(begin + 2));  // <tool>
  const std::vector<int32_t> ids = {begin, 'a', begin + 2, begin + 1};
  EXPECT_EQ(*tokenizer->Decode(ids, true), "a<tool>");
  EXPECT_EQ(*tokenizer->Decode(ids, false), "<|begin|>a<tool><|end|>");
}

TEST(Tokenizer, AddedTokensStripAndStandAlone) {
  auto json = testing::ByteLevelTokenizer();
  AddToken(&json, "<l>")["lstrip"] = true;
  AddToken(&json, "<r>")["rstrip"] = true;
  AddToken(&json, "word")["single_word"] = true;
  const auto tokenizer = testing::Load(json);
  const int32_t r = tokenizer->vocabulary_size() - 2;
  EXPECT_THAT(Encode(*tokenizer, "x \u3000<l> y"), ElementsAre('x', r - 1, ' ', 'y'));
  EXPECT_THAT(Encode(*tokenizer, "x <r>\n\u3000y"), ElementsAre('x', ' ', r, 'y'));
  EXPECT_THAT(Encode(*tokenizer, "<r>  <l>"), ElementsAre(r, r - 1));
  EXPECT_THAT(Encode(*tokenizer, "word words"), ElementsAre(r + 1, ' ', 'w', 'o', 'r', 'd', 's'));
  EXPECT_THAT(Encode(*tokenizer, "(word)"), ElementsAre('(', r + 1, ')'));
  EXPECT_EQ(Encode(*tokenizer, "\u00e9word").back(), 'd');
}

TEST(Tokenizer, NormalizedAddedTokensAreFoundInNormalizedText) {
  auto json = testing::ByteLevelTokenizer();
  AddToken(&json, "caf\u00e9")["normalized"] = true;
  AddToken(&json, "raw\u00e9");
  const auto tokenizer = testing::Load(json);
  const int32_t raw = tokenizer->vocabulary_size() - 1;
  EXPECT_THAT(Encode(*tokenizer, "cafe\u0301"), ElementsAre(raw - 1));
  EXPECT_THAT(Encode(*tokenizer, "raw\u00e9"), ElementsAre(raw));
  EXPECT_EQ(Encode(*tokenizer, "rawe\u0301").size(), 5u);

  // In the manner of Llama 2, where the normalizer puts "▁" in front of the token as well.
  auto llama = testing::ByteFallbackTokenizer();
  llama["added_tokens"][1]["normalized"] = true;
  const auto tokenizer2 = testing::Load(llama);
  EXPECT_EQ(Encode(*tokenizer2, "<s>a").front(), 1);
  EXPECT_THAT(Encode(*tokenizer2, "a <s>a"), ::testing::Contains(1));
  EXPECT_THAT(Encode(*tokenizer2, "a<s>a"), ::testing::Not(::testing::Contains(1)));
  EXPECT_EQ(*tokenizer2->Decode(Encode(*tokenizer2, "a <s>a"), false), "a <s>a");
}

TEST(Tokenizer, RandomTextComesBack) {
  std::mt19937 random(7);
  const auto byte_level = testing::Load(testing::ByteLevelTokenizer());
  const auto byte_fallback = testing::Load(testing::ByteFallbackTokenizer());
  const auto bytes = MakeByteTokenizer();
  for (int round = 0; round < 1000; ++round) {
    std::string text = testing::RandomText(random() % 60, &random);
    EXPECT_EQ(*bytes->Decode(Encode(*bytes, text), false), text);
    // "▁" itself comes back as a space, and text behind <s> with one more in front.
    if (text.find("▁") == std::string::npos && text.find("<s>") == std::string::npos) {
      EXPECT_EQ(*byte_fallback->Decode(Encode(*byte_fallback, text), false), text);
    }
    std::string normal = text;
    Normalize(NormalForm::kNfc, &normal);
    EXPECT_EQ(*byte_level->Decode(Encode(*byte_level, text), false), normal);
  }
}

TEST(Tokenizer, ManyThreadsShareOne) {
  const auto tokenizer = testing::Load(testing::ByteLevelTokenizer());
  std::mt19937 random(8);
  const std::string text = testing::RandomText(3000, &random);
  const std::vector<int32_t> expected = Encode(*tokenizer, text);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) EXPECT_EQ(Encode(*tokenizer, text), expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Tokenizer, TheTemplateSaysWhatIsAdded) {
  auto json = testing::ByteLevelTokenizer();
  auto& single = json["post_processor"]["single"];
  single.push_back(single[0]);
  json["post_processor"] = {{"type", "Sequence"},
                            {"processors", {{{"type", "ByteLevel"}}, json["post_processor"]}}};
  const auto tokenizer = testing::Load(json);
  const int32_t begin = tokenizer->bos().value();
  EXPECT_THAT(Encode(*tokenizer, "a", true), ElementsAre(begin, 'a', begin));
  EXPECT_THAT(Encode(*tokenizer, "", true), ElementsAre(begin, begin));
  EXPECT_THAT(Encode(*tokenizer, "a", false), ElementsAre('a'));
}

}  // namespace
}  // namespace annulus
