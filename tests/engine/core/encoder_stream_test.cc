#include "engine/prompt/encoder_stream.h"

#include <gtest/gtest.h>

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
