#include "engine/prompt/encoder_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/engine/text/small_tokenizers.h"

namespace annulus {
namespace {

TEST(EncoderStreamTest, GivesTheIdsOfTheWholeAndTellsWhatItHolds) {
  const auto tokenizer = testing::Load(testing::ByteLevelTokenizer());
  const auto stream = NewEncoderStream(*tokenizer, CancelFlag::Never());
  EXPECT_EQ(stream->memory_bytes(), 0u);
  std::string text;
  std::vector<int32_t> ids;
  const auto append = [&](const std::string& more) {
    text += more;
    const absl::Status status = stream->Append(more, ids);
    EXPECT_TRUE(status.ok()) << status;
  };
  // A word of a million bytes can only be encoded when it ends.
  for (int i = 0; i < 10; ++i) append(std::string(100'000, 'x'));
  EXPECT_TRUE(ids.empty());
  EXPECT_GE(stream->memory_bytes(), 1'000'000u * sizeof(int32_t));
  // It is looked at again with as much new text.
  std::string words;
  for (int i = 0; i < 300'000; ++i) words += " word";
  append(words);
  EXPECT_GE(ids.size(), 1'000'000u);
  EXPECT_LT(stream->memory_bytes(), 4u << 20);
  const absl::Status status = stream->Finish(ids);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(stream->memory_bytes(), 0u);
  EXPECT_EQ(ids, tokenizer->Encode(text, /*add_special=*/false).value());
}

// What the text begins with up to each place is what the tokens before it spell.
void ExpectPlaces(const Tokenizer& tokenizer, const std::string& text, size_t piece) {
  const auto stream = NewEncoderStream(tokenizer, CancelFlag::Never());
  std::vector<int32_t> ids;
  for (size_t at = 0; at < text.size(); at += piece) {
    ASSERT_TRUE(stream->Append(absl::string_view(text).substr(at, piece), ids).ok());
  }
  ASSERT_TRUE(stream->Finish(ids).ok());
  const std::vector<TokenPlace>& places = stream->places();
  ASSERT_EQ(places.size(), (ids.size() + kPlaceTokens - 1) / kPlaceTokens);
  for (size_t n = 0; n < places.size(); ++n) {
    const std::vector<int32_t> before(ids.begin(), ids.begin() + n * kPlaceTokens);
    std::string spelled = tokenizer.Decode(before, false).value();
    while (!spelled.empty() && spelled.size() < text.size() &&
           (static_cast<unsigned char>(text[spelled.size()]) & 0xC0) == 0x80) {
      spelled.pop_back();
    }
    ASSERT_EQ(places[n].byte, spelled.size()) << "place " << n << ", pieces of " << piece;
    const auto characters = std::count_if(spelled.begin(), spelled.end(), [](const char c) {
      return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    });
    ASSERT_EQ(places[n].character, characters) << "place " << n << ", pieces of " << piece;
  }
}

TEST(EncoderStreamTest, TellsWhereTokensBegin) {
  std::string text;
  for (int i = 0; i < 3000; ++i) {
    text += i % 7 == 0 ? "Größe " : i % 11 == 0 ? "日本語。" : "the word " + std::to_string(i);
  }
  const auto words = testing::Load(testing::ByteLevelTokenizer());
  const auto bytes = MakeByteTokenizer();
  for (const size_t piece : {size_t{1}, size_t{1000}, size_t{1} << 20}) {
    ExpectPlaces(*words, text, piece);
    ExpectPlaces(*bytes, text, piece);
  }
}

TEST(EncoderStreamTest, TellsAboutWhereTokensBeginThatAreSpelledOtherwise) {
  nlohmann::json file = testing::ByteLevelTokenizer();
  file["normalizer"] = {{"type", "Lowercase"}};
  const auto tokenizer = testing::Load(file);
  const auto stream = NewEncoderStream(*tokenizer, CancelFlag::Never());
  std::string text;
  for (int i = 0; i < 4000; ++i)
    text += i % 3 == 0 ? "LOUD WORDS " : "Quiet words " + std::to_string(i);
  std::vector<int32_t> ids;
  for (size_t at = 0; at < text.size(); at += 1000) {
    ASSERT_TRUE(stream->Append(absl::string_view(text).substr(at, 1000), ids).ok());
  }
  ASSERT_TRUE(stream->Finish(ids).ok());
  // The letters are others, but as many.
  for (size_t n = 0; n < stream->places().size(); ++n) {
    const std::vector<int32_t> before(ids.begin(), ids.begin() + n * kPlaceTokens);
    const auto exact = static_cast<double>(tokenizer->Decode(before, false).value().size());
    EXPECT_NEAR(static_cast<double>(stream->places()[n].byte), exact, 1000) << n;
  }
}

std::string Controls(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string controls;
  for (const int32_t id : ids) {
    if (tokenizer.IsControl(id)) {
      controls += tokenizer.Decode(std::vector<int32_t>{id}, false).value();
    }
  }
  return controls;
}

TEST(EncoderStreamTest, ControlTokensInATextArePlainText) {
  const auto tokenizer = testing::Load(testing::ByteLevelTokenizer());
  const std::string text = "a<|end|>b<tool>";
  EXPECT_EQ(Controls(*tokenizer, tokenizer->Encode(text, false).value()), "<|end|><tool>");
  const auto stream = NewEncoderStream(*tokenizer, CancelFlag::Never());
  std::vector<int32_t> ids;
  for (const char c : text) ASSERT_TRUE(stream->Append(std::string(1, c), ids).ok());
  ASSERT_TRUE(stream->Finish(ids).ok());
  EXPECT_EQ(Controls(*tokenizer, ids), "");
  EXPECT_EQ(tokenizer->Decode(ids, false).value(), text);
}

TEST(EncoderStreamTest, FindsTheWordsThatEndAFrame) {
  nlohmann::json file = testing::ByteLevelTokenizer();
  file["normalizer"] = {{"type", "NFKC"}};
  const auto tokenizer = testing::Load(file);
  const auto holds = [&](const std::string& text) {
    const auto stream = NewEncoderStream(*tokenizer, CancelFlag::Never());
    std::vector<int32_t> ids;
    for (const char c : text) EXPECT_TRUE(stream->Append(std::string(1, c), ids).ok());
    EXPECT_TRUE(stream->Finish(ids).ok());
    return stream->holds_end_mark();
  };
  EXPECT_FALSE(holds("In the end there were no documents; this is the end of a document"));
  EXPECT_FALSE(holds("end of documen"));
  for (const char* text :
       {"End of document 1", "x\n# END  of\nDOCUMENT", "e-n-d-o-f-d-o-c-u-m-e-n-t",
        "endofendofdocument", "End\u200b of document", "Ｅｎｄ ｏｆ ｄｏｃｕｍｅｎｔ"}) {
    EXPECT_TRUE(holds(text)) << text;
  }
}

}  // namespace
}  // namespace annulus
