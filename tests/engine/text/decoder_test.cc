#include "engine/text/stages/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/json_node.h"

namespace annulus {
namespace {

absl::StatusOr<Decoder> Parse(absl::string_view json) {
  const auto document = JsonDocument::Parse(json, "f.json");
  EXPECT_TRUE(document.ok()) << document.status();
  return Decoder::Parse(document->root());
}

std::string DecodeWith(absl::string_view json, const std::vector<std::string>& tokens) {
  const auto decoder = Parse(json);
  EXPECT_TRUE(decoder.ok()) << decoder.status();
  std::string text;
  DecodeState state;
  for (const std::string& token : tokens) {
    decoder->Append(decoder->DecodeToken(token, state.before_tokens).value(), &state, &text);
  }
  return text;
}

constexpr char kLlama2[] = R"({"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";

TEST(Decoder, Llama2StripsOneSpaceAtTheStartOfTheText) {
  EXPECT_EQ(DecodeWith(kLlama2, {"▁Hello", "▁Hello"}), "Hello Hello");
  EXPECT_EQ(DecodeWith(kLlama2, {"▁▁", "a"}), " a");
  EXPECT_EQ(DecodeWith(kLlama2, {"▁", "▁", "a"}), " a");
  EXPECT_EQ(DecodeWith(kLlama2, {"a", "▁b"}), "a b");
  EXPECT_EQ(DecodeWith(kLlama2, {"<0x20>", "a"}), "a");
  EXPECT_EQ(DecodeWith(kLlama2, {}), "");
}

TEST(Decoder, ByteFallbackJoinsBytes) {
  EXPECT_EQ(DecodeWith(kLlama2, {"a", "<0xE4>", "<0xB8>", "<0xad>"}), "a中");
  EXPECT_EQ(DecodeWith(kLlama2, {"a", "<0xZZ>", "<0x1>", "<0x123>"}), "a<0xZZ><0x1><0x123>");
}

TEST(Decoder, ByteLevelMapsCharactersToBytes) {
  EXPECT_EQ(DecodeWith(R"({"type": "ByteLevel"})", {"Ġthe", "ä¸", "Ń", "Ċ", "<|end|>"}),
            " the中\n<|end|>");
  // Outside the alphabet, as in added tokens: taken as it stands.
  EXPECT_EQ(DecodeWith(R"({"type": "ByteLevel"})", {"a b", "｜"}), "a b｜");
}

TEST(Decoder, MetaspaceDropsTheSpacesOfTheFirstToken) {
  constexpr char kAlways[] = R"({"type": "Metaspace", "replacement": "▁"})";
  EXPECT_EQ(DecodeWith(kAlways, {"▁Hello", "▁you", "a▁b"}), "Hello youa b");
  EXPECT_EQ(DecodeWith(kAlways, {"▁a▁b", "▁▁c"}), "ab  c");
  EXPECT_EQ(DecodeWith(R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "never"})",
                       {"_Hello", "_you"}),
            " Hello you");
}

TEST(Decoder, StripInFrontOfFuseIsOfEveryToken) {
  EXPECT_EQ(DecodeWith(R"({"type": "Sequence", "decoders": [
                {"type": "Strip", "content": "·", "start": 1, "stop": 2}, {"type": "Fuse"}]})",
                       {"··a···", "·", "b·"}),
            "·a·b");
}

TEST(Decoder, RefusesOtherOrders) {
  for (const char* json :
       {R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]})",
        R"({"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "ByteFallback"}]})",
        R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"},
            {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}]})",
        R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 0, "stop": 1}]})",
        R"({"type": "WordPiece"})"}) {
    EXPECT_EQ(Parse(json).status().code(), absl::StatusCode::kUnimplemented) << json;
  }
}

}  // namespace
}  // namespace annulus
