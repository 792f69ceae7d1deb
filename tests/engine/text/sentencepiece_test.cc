#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/sentencepiece/sentencepiece_file.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/text/small_tokenizers.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Type = SentencePieceFile::Type;

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string Number(uint64_t field, uint64_t value) { return Varint(field << 3) + Varint(value); }

std::string Bytes(uint64_t field, const std::string& bytes) {
  return Varint(field << 3 | 2) + Varint(bytes.size()) + bytes;
}

std::string Piece(const std::string& text, float score, Type type) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &score, 4);
  return Bytes(1,
               Bytes(1, text) + Varint(2 << 3 | 5) + bits + Number(3, static_cast<uint64_t>(type)));
}

// <unk>, <s>, </s>, then normal pieces.
std::string Pieces(const std::vector<std::pair<std::string, float>>& normal) {
  std::string file = Piece("<unk>", 0, Type::kUnknown) + Piece("<s>", 0, Type::kControl) +
                     Piece("</s>", 0, Type::kControl);
  for (const auto& [text, score] : normal) file += Piece(text, score, Type::kNormal);
  return file;
}

// The pieces of the bytes, which may stand in files with byte fallback only.
std::string BytePieces() {
  std::string file;
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", byte);
    file += Piece(text, 0, Type::kByte);
  }
  return file;
}

const std::string kFallback = Number(35, 1);
const std::string kBpe = BytePieces() + Bytes(2, Number(3, 2) + kFallback);
const std::string kNormalizer = Bytes(3, Number(4, 0));  // keeps spaces
constexpr int32_t kFirst = 3;                            // of the normal pieces

absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& file,
                                                const std::string& config = "{}") {
  return LoadTokenizerModel(file, "tokenizer.model", config, "tokenizer_config.json");
}

std::vector<int32_t> Encode(const std::string& file, absl::string_view text,
                            const std::string& config = "{}") {
  const auto tokenizer = Load(file, config);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? (*tokenizer)->Encode(text, true).value() : std::vector<int32_t>();
}

const std::string kFile =
    Pieces({{"▁", -1}, {"a", -2}, {"b", -3}, {"ab", -4}, {"▁a", -4}, {"▁▁", -5}}) + kBpe +
    kNormalizer;
constexpr int32_t kBytes = kFirst + 6;  // of kFile's first byte

TEST(Sentencepiece, MergesByScoreThenFromTheLeft) {
  // "▁ab": both merges have one score; the left one comes first.
  EXPECT_THAT(Encode(kFile, "ab"), ElementsAre(1, kFirst + 4, kFirst + 2));
  EXPECT_THAT(Encode(kFile, "bab"), ElementsAre(1, kFirst, kFirst + 2, kFirst + 3));
  EXPECT_THAT(Encode(kFile, ""), ElementsAre(1));
}

TEST(Sentencepiece, BytesAndSpecialTokens) {
  EXPECT_THAT(Encode(kFile, "é"), ElementsAre(1, kFirst, kBytes + 0xC3, kBytes + 0xA9));
  EXPECT_THAT(Encode(kFile, "b</s> b"),
              ElementsAre(1, kFirst, kFirst + 2, 2, kFirst + 5, kFirst + 2));
  // Not legacy: only the start of the text gets a prefix.
  EXPECT_THAT(Encode(kFile, "b</s>b", R"({"legacy": false})"),
              ElementsAre(1, kFirst, kFirst + 2, 2, kFirst + 2));
  EXPECT_THAT(Encode(kFile, "b", R"({"add_bos_token": false, "add_eos_token": true,
                                     "eos_token": "</s>"})"),
              ElementsAre(kFirst, kFirst + 2, 2));
  const auto tokenizer = Load(kFile);
  EXPECT_EQ((*tokenizer)->bos(), 1);
  EXPECT_TRUE((*tokenizer)->IsSpecial(2));
  EXPECT_EQ(*(*tokenizer)->Decode(Encode(kFile, " ab é</s>"), true), " ab é");
}

TEST(Sentencepiece, IsReadWhereThereIsNoTokenizerJson) {
  const testing::TempDirectory directory;
  const std::filesystem::path& folder = directory.path();
  std::ofstream(folder / "tokenizer.model", std::ios::binary) << kFile;
  std::ofstream(folder / "tokenizer_config.json") << R"({"add_bos_token": false})";
  const auto tokenizer = LoadTokenizer(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(*(*tokenizer)->Encode("b", true), std::vector<int32_t>({kFirst, kFirst + 2}));
  std::ofstream(folder / "tokenizer.json") << "{}";
  EXPECT_THAT(std::string(LoadTokenizer(folder).status().message()), HasSubstr("tokenizer.json"));
}

TEST(Sentencepiece, WithoutByteFallbackUnknownCharactersFuse) {
  const std::string file = Pieces({{"▁", -1}, {"a", -2}}) + Bytes(2, Number(3, 2)) + kNormalizer;
  EXPECT_THAT(Encode(file, "éxa"), ElementsAre(1, kFirst, 0, kFirst + 1));
}

TEST(Sentencepiece, RemovesExtraWhitespace) {
  const std::string file = Pieces({{"▁", -1}, {"a", -2}}) + kBpe;
  EXPECT_THAT(Encode(file, "  a   a  "), ElementsAre(1, kFirst, kFirst + 1, kFirst, kFirst + 1));
  EXPECT_THAT(Encode(file, "   "), ElementsAre(1));
  EXPECT_THAT(Encode(file, "▁▁"), ElementsAre(1));
}

TEST(Sentencepiece, UserDefinedPiecesAreNeverCut) {
  const std::string file = kFile + Piece("ba", 0, Type::kUserDefined);
  EXPECT_THAT(Encode(file, "abab"), ElementsAre(1, kFirst + 4, kBytes + 256, kFirst + 2));
  // In Unigram their score is above that of any normal pieces.
  const std::string unigram = Pieces({{"▁", -1}, {"a", -2}, {"ab", -0.1f}}) +
                              Piece("ba", 0, Type::kUserDefined) + kNormalizer;
  EXPECT_THAT(Encode(unigram, "aba"), ElementsAre(1, kFirst, kFirst + 1, kFirst + 3));
}

// Fillers up to the embedding's size, as in a converted GGUF file. They have no text.
TEST(Sentencepiece, UnusedPiecesThatNoMergeMakesAreIdsWithoutAToken) {
  const std::string file = kFile + Piece("[PAD265]", -10000, Type::kUnused);
  EXPECT_EQ(Encode(file, "a[PAD265]"), Encode(kFile, "a[PAD265]"));
  const auto tokenizer = Load(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_FALSE((*tokenizer)->HasToken(kBytes + 256));
}

// As in Transformers: they are cut out of the text as it is given, before any space becomes "▁".
TEST(Sentencepiece, HonoursTheTokensThatTheConfigurationAdds) {
  const std::string config = R"({"added_tokens_decoder": {
      "300": {"content": "  ", "special": false}, "301": {"content": "<|x|>", "special": true,
      "rstrip": true}, "2": {"content": "</s>", "special": false}}})";
  EXPECT_THAT(Encode(kFile, "a  b", config), ElementsAre(1, kFirst + 4, 300, kFirst, kFirst + 2));
  EXPECT_THAT(Encode(kFile, "a<|x|> \n b", config),
              ElementsAre(1, kFirst + 4, 301, kFirst, kFirst + 2));
  const auto tokenizer = Load(kFile, config);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_TRUE((*tokenizer)->IsSpecial(301));
  EXPECT_TRUE((*tokenizer)->IsSpecial(2));  // a control piece stays one
  EXPECT_FALSE((*tokenizer)->IsControl(300));
  EXPECT_EQ(*(*tokenizer)->Decode(std::vector<int32_t>{kFirst + 1, 300, 301}, false), "a  <|x|>");
  const auto plain = (*tokenizer)->EncodePlain("a<|x|>  b");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(std::count(plain->begin(), plain->end(), 301), 0);
  EXPECT_EQ(std::count(plain->begin(), plain->end(), 300), 1);
  const std::pair<const char*, const char*> bad[] = {
      {R"({"added_tokens_decoder": {"x": {"content": "y"}}})", "the key must be an id from 0 to"},
      {R"({"added_tokens_decoder": {"-1": {"content": "y"}}})", "the key must be an id from 0 to"},
      {R"({"added_tokens_decoder": {"300": {}}})", "300"},
      {R"({"added_tokens_decoder": {"300": {"content": ""}}})", "the token is empty"},
      {R"({"added_tokens_decoder": {"300": {"content": "a"}}})", "has two ids"},
      {R"({"added_tokens_decoder": 1})", "added_tokens_decoder"},
  };
  for (const auto& [text, says] : bad) {
    const absl::Status status = Load(kFile, text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  }
}

TEST(Sentencepiece, RefusesWhatItDoesNotSupport) {
  const std::string pieces = Pieces({{"▁", -1}, {"a", -2}});
  const std::pair<std::string, const char*> cases[] = {
      {pieces + Bytes(2, Number(3, 3)) + kNormalizer, "model_type"},
      {pieces + Bytes(2, Number(3, 4)) + kNormalizer, "model_type"},
      {pieces + Bytes(2, Number(3, 2) + Number(24, 1)) + kNormalizer, "whitespace_as_suffix"},
      {pieces + Piece("b", 0, Type::kUnused) + kBpe + kNormalizer, "UNUSED"},
      {pieces + Piece("bb", 0, Type::kUnused) + kBpe + kNormalizer, "UNUSED"},
  };
  for (const auto& [file, says] : cases) {
    const absl::Status status = Load(file).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
    EXPECT_THAT(std::string(status.message()), HasSubstr("tokenizer.model: "));
  }
}

// The likeliest division, where "ab" alone would be less likely than "a" and "b".
TEST(Sentencepiece, UnigramDividesByScores) {
  const std::string file =
      Pieces({{"▁", -1}, {"a", -2}, {"b", -3}, {"ab", -6}, {"ba", -4}, {"▁a", -4}}) + kNormalizer;
  EXPECT_THAT(Encode(file, "abb"), ElementsAre(1, kFirst, kFirst + 1, kFirst + 2, kFirst + 2));
  EXPECT_THAT(Encode(file, "ba"), ElementsAre(1, kFirst, kFirst + 4));
  EXPECT_THAT(Encode(file, "bé漢b"), ElementsAre(1, kFirst, kFirst + 2, 0, kFirst + 2));
  // Pieces that are not used count as unknown.
  EXPECT_THAT(Encode(file + Piece("c", 0, Type::kUnused), "ca"),
              ElementsAre(1, kFirst, 0, kFirst + 1));
  EXPECT_THAT(Encode(file + BytePieces() + Bytes(2, kFallback), "é"),
              ElementsAre(1, kFirst, kFirst + 6 + 0xC3, kFirst + 6 + 0xA9));
}

TEST(Sentencepiece, RefusesMalformedFiles) {
  const std::string pieces = Pieces({{"▁", -1}, {"a", -2}});
  std::string nested = pieces;
  for (size_t size = 1; size <= 65; ++size) {
    nested += Piece(std::string(size, 'x'), 0, Type::kUserDefined);
  }
  const std::pair<std::string, const char*> cases[] = {
      {"", "no pieces"},
      {"PHRva2Vu 0\n", "not a sentencepiece model"},
      {pieces + Piece("a", 0, Type::kNormal) + kBpe, "two ids"},
      {pieces + Piece("", 0, Type::kNormal) + kBpe, "empty"},
      {pieces + Piece("\xFF", 0, Type::kNormal) + kBpe, "not UTF-8"},
      {pieces + Piece("b", NAN, Type::kNormal) + kBpe, "not finite"},
      {pieces + Piece(std::string("b\0", 2), 0, Type::kNormal) + kBpe, "zero byte"},
      {pieces + Piece("b", 0, Type::kUnknown) + kBpe, "is unknown, as 0 is"},
      {Piece("a", 0, Type::kNormal) + kNormalizer, "no piece of type UNKNOWN"},
      {Piece("<unk>", 0, Type::kUnknown) + kNormalizer, "no piece of type NORMAL"},
      {pieces + BytePieces() + kNormalizer, "`byte_fallback` is false"},
      {pieces + Bytes(2, kFallback), "needs 256 byte pieces"},
      {nested + kBpe, "begins with 65 of them"},
      {pieces + Piece("b", 0, static_cast<Type>(7)) + kBpe, "type 7"},
      {pieces + Piece(std::string(2000, 'b'), 0, Type::kNormal) + kBpe, "2000 bytes"},
      {pieces + Bytes(2, Number(3, 9)), "model_type is 9"},
      {pieces + Bytes(2, Number(3, 2) + Number(40, 100'000)) + kNormalizer, "unk_id 100000"},
      {pieces + std::string("\x12\x7F", 2), "goes beyond the end"},
      {pieces + std::string(12, '\xFF'), "more than 10 bytes"},
  };
  for (const auto& [file, says] : cases) {
    const absl::Status status = Load(file).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  }
}

// The character "é" is no piece, but what begins with it is.
TEST(Sentencepiece, PiecesOfUnknownCharacters) {
  const std::string file =
      Pieces({{"▁", -1}, {"a", -2}, {"éa", -3}}) + Bytes(2, Number(3, 2)) + kNormalizer;
  EXPECT_THAT(Encode(file, "éaé"), ElementsAre(1, kFirst, kFirst + 2, 0));
}

// Cut short or with a byte changed: an answer, never a crash.
TEST(Sentencepiece, SpoiltFiles) {
  for (size_t size = 0; size < kFile.size(); size += 1 + size / 30) {
    const auto tokenizer = Load(kFile.substr(0, size));
    if (!tokenizer.ok()) continue;
    EXPECT_TRUE((*tokenizer)->Encode("ab é", true).ok());
  }
  std::mt19937 random(41);
  for (int round = 0; round < 1000; ++round) {
    std::string file = kFile;
    file[random() % file.size()] = static_cast<char>(random());
    const auto tokenizer = Load(file);
    if (!tokenizer.ok()) continue;
    EXPECT_TRUE((*tokenizer)->Encode("ab é", true).ok());
  }
}

}  // namespace
}  // namespace annulus
