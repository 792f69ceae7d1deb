// How each kind of `tokenizer.ggml.pre` splits a text before BPE.
//
// Expected pieces follow by hand from the split pattern in a publisher's tokenizer.json:
//   gpt2    openai-community/gpt2: ByteLevel with GPT-2's own pattern (Radford et al. 2019,
//   encoder.py) digits  HuggingFaceTB/SmolLM2-135M, bigcode/starcoder2-3b: Digits, one by one, then
//   the same llama3  meta-llama/Meta-Llama-3-8B qwen2   Qwen/Qwen2-7B tekken
//   mistralai/Mistral-Nemo-Instruct-2407 gpt4o   openai/gpt-oss-20b seed
//   ByteDance-Seed/Seed-OSS-36B-Instruct hunyuan   tencent/Hunyuan-7B-Instruct
// The package `tokenizers` makes the same pieces of these patterns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/gguf/gguf_tokenizer.h"
#include "engine/text/models/byte_alphabet.h"
#include "engine/text/text_file.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/gguf/gguf_tokenizers.h"
#include "tests/engine/gguf/gguf_writer.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using nlohmann::json;
using testing::FilesOf;
using testing::GgufWriter;
using ::testing::HasSubstr;
using Pieces = std::vector<std::string>;

// A text, and its pieces by each pattern.
struct SplitText {
  std::string text;
  Pieces gpt2, digits, llama3, qwen2, tekken, gpt4o, seed, hunyuan;
};

std::vector<SplitText> SplitTexts() {
  return {
      // Numbers: whole, in groups of three, one by one; a fraction is a number too.
      {.text = "x 1234½",
       .gpt2 = {"x", " 1234½"},
       .digits = {"x", " ", "1", "2", "3", "4", "½"},
       .llama3 = {"x", " ", "123", "4½"},
       .qwen2 = {"x", " ", "1", "2", "3", "4", "½"},
       .tekken = {"x", " ", "1", "2", "3", "4", "½"},
       .gpt4o = {"x", " ", "123", "4½"},
       .seed = {"x", " ", "1", "2", "3", "4", "½"},
       .hunyuan = {"x", " ", "123", "4½"}},
      // Contractions: apart, in small letters only or in any, no contractions, or with their word.
      {.text = "I'LL don'ts",
       .gpt2 = {"I", "'", "LL", " don", "'t", "s"},
       .digits = {"I", "'", "LL", " don", "'t", "s"},
       .llama3 = {"I", "'LL", " don", "'t", "s"},
       .qwen2 = {"I", "'LL", " don", "'t", "s"},
       .tekken = {"I", "'LL", " don", "'ts"},
       .gpt4o = {"I'LL", " don't", "s"},
       .seed = {"I", "'LL", " don", "'t", "s"},
       .hunyuan = {"I", "'LL", " don", "'ts"}},
      // Capital letters inside of words; letters without case go with both.
      {.text = "ab好Cd，是",
       .gpt2 = {"ab好Cd", "，", "是"},
       .digits = {"ab好Cd", "，", "是"},
       .llama3 = {"ab好Cd", "，是"},
       .qwen2 = {"ab好Cd", "，是"},
       .tekken = {"ab好", "Cd", "，是"},
       .gpt4o = {"ab好", "Cd", "，是"},
       .seed = {"ab好Cd", "，是"},
       .hunyuan = {"ab", "好", "Cd", "，", "是"}},
      // A letter with a mark that no normal form joins to it.
      {.text = "x\u0301y",
       .gpt2 = {"x", "\u0301", "y"},
       .digits = {"x", "\u0301", "y"},
       .llama3 = {"x", "\u0301y"},
       .qwen2 = {"x", "\u0301y"},
       .tekken = {"x\u0301y"},
       .gpt4o = {"x\u0301y"},
       .seed = {"x", "\u0301y"},
       .hunyuan = {"x\u0301y"}},
      // White space, with and without line breaks.
      {.text = "a \n\n  b\n",
       .gpt2 = {"a", " \n\n ", " b", "\n"},
       .digits = {"a", " \n\n ", " b", "\n"},
       .llama3 = {"a", " \n\n", " ", " b", "\n"},
       .qwen2 = {"a", " \n\n", " ", " b", "\n"},
       .tekken = {"a", " \n\n", " ", " b", "\n"},
       .gpt4o = {"a", " \n\n", " ", " b", "\n"},
       .seed = {"a", " \n\n", " ", " b", "\n"},
       .hunyuan = {"a", " \n\n", " ", " b", "\n"}},
      // Line breaks and slashes behind other marks.
      {.text = "!//\n/x",
       .gpt2 = {"!//", "\n", "/", "x"},
       .digits = {"!//", "\n", "/", "x"},
       .llama3 = {"!//\n", "/x"},
       .qwen2 = {"!//\n", "/x"},
       .tekken = {"!//\n/", "x"},
       .gpt4o = {"!//\n/", "x"},
       .seed = {"!//", "\n", "/x"},
       .hunyuan = {"!//\n", "/x"}},
  };
}

struct PreTokenizerKind {
  const char* name;  // tokenizer.ggml.pre
  Pieces SplitText::*pieces;
  bool composes = false;            // normal form C first
  bool takes_whole_tokens = false;  // a piece that is a token is not merged
  bool adds_bos = false;            // if the file does not say
};

std::ostream& operator<<(std::ostream& out, const PreTokenizerKind& kind) {
  return out << kind.name;
}

constexpr PreTokenizerKind kPreTokenizerKinds[] = {
    {.name = "gpt-2", .pieces = &SplitText::gpt2},
    {.name = "olmo", .pieces = &SplitText::gpt2, .composes = true},
    {.name = "phi-2", .pieces = &SplitText::gpt2},
    {.name = "smollm", .pieces = &SplitText::digits},
    {.name = "starcoder", .pieces = &SplitText::digits},
    {.name = "refact", .pieces = &SplitText::digits},
    {.name = "command-r", .pieces = &SplitText::digits, .composes = true},
    {.name = "llama-bpe",
     .pieces = &SplitText::llama3,
     .takes_whole_tokens = true,
     .adds_bos = true},
    {.name = "llama3", .pieces = &SplitText::llama3, .takes_whole_tokens = true, .adds_bos = true},
    {.name = "llama-v3",
     .pieces = &SplitText::llama3,
     .takes_whole_tokens = true,
     .adds_bos = true},
    {.name = "dbrx", .pieces = &SplitText::llama3},
    {.name = "qwen2", .pieces = &SplitText::qwen2, .composes = true},
    {.name = "deepseek-r1-qwen", .pieces = &SplitText::qwen2, .composes = true},
    {.name = "megrez", .pieces = &SplitText::qwen2, .composes = true},
    {.name = "tekken", .pieces = &SplitText::tekken, .takes_whole_tokens = true, .adds_bos = true},
    {.name = "gpt-4o", .pieces = &SplitText::gpt4o},
    {.name = "llama4", .pieces = &SplitText::gpt4o},
    {.name = "minimax-m2", .pieces = &SplitText::gpt4o},
    {.name = "glm4", .pieces = &SplitText::llama3},
    {.name = "chatglm-bpe", .pieces = &SplitText::llama3},
    {.name = "exaone4", .pieces = &SplitText::gpt2},
    {.name = "seed-coder", .pieces = &SplitText::seed},
    {.name = "hunyuan", .pieces = &SplitText::qwen2},
    {.name = "hunyuan-dense", .pieces = &SplitText::hunyuan},
};

GgufWriter ByteLevelFile(const char* pre, const Pieces& tokens, const Pieces& merges) {
  GgufWriter writer;
  writer.Set("tokenizer.ggml.model", "gpt2");
  writer.Set("tokenizer.ggml.pre", pre);
  writer.Set("tokenizer.ggml.tokens", tokens);
  writer.Set("tokenizer.ggml.merges", merges);
  return writer;
}

// Any two neighbouring parts of `text` merge, so each piece of it becomes one token.
GgufTokenizerFiles FilesThatShowPieces(const char* pre, const std::string& text) {
  std::set<std::string> tokens, merges;
  const auto part = [&](size_t begin, size_t end) {
    return ToByteAlphabet(absl::string_view(text).substr(begin, end - begin));
  };
  for (size_t begin = 0; begin < text.size(); ++begin) {
    for (size_t end = begin + 1; end <= text.size(); ++end) {
      tokens.insert(part(begin, end));
      for (size_t middle = begin + 1; middle < end; ++middle) {
        merges.insert(absl::StrCat(part(begin, middle), " ", part(middle, end)));
      }
    }
  }
  const auto files = FilesOf(ByteLevelFile(pre, Pieces(tokens.begin(), tokens.end()),
                                           Pieces(merges.begin(), merges.end())));
  EXPECT_TRUE(files.ok()) << files.status();
  return files.value_or(GgufTokenizerFiles());
}

Pieces PiecesOf(const GgufTokenizerFiles& files, const std::string& text) {
  const auto tokenizer = LoadGgufTokenizer(files, "f.gguf");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  if (!tokenizer.ok()) return {};
  const auto ids = (*tokenizer)->Encode(text, /*add_special=*/false);
  EXPECT_TRUE(ids.ok()) << ids.status();
  if (!ids.ok()) return {};
  Pieces pieces;
  for (const int32_t id : *ids) {
    pieces.push_back((*tokenizer)->Decode(std::span(&id, 1), /*skip_special=*/false).value());
  }
  return pieces;
}

class GgufPreTokenizerTest : public ::testing::TestWithParam<PreTokenizerKind> {};

TEST_P(GgufPreTokenizerTest, SplitsByThePublishedPattern) {
  for (const SplitText& row : SplitTexts()) {
    const GgufTokenizerFiles files = FilesThatShowPieces(GetParam().name, row.text);
    EXPECT_EQ(PiecesOf(files, row.text), row.*GetParam().pieces) << row.text;
  }
}

TEST_P(GgufPreTokenizerTest, ComposesCharactersWhereTheModelDid) {
  const std::string apart = "e\u0301", composed = "\u00e9";
  const GgufTokenizerFiles files = FilesThatShowPieces(GetParam().name, apart + composed);
  EXPECT_EQ(absl::StrJoin(PiecesOf(files, apart), ""), GetParam().composes ? composed : apart);
}

TEST_P(GgufPreTokenizerTest, TakesWholeTokensWhereTheModelDid) {
  const auto files = FilesOf(ByteLevelFile(GetParam().name, {"a", "b", "ab"}, {}));
  ASSERT_TRUE(files.ok()) << files.status();
  const Pieces expected = GetParam().takes_whole_tokens ? Pieces{"ab"} : Pieces{"a", "b"};
  EXPECT_EQ(PiecesOf(*files, "ab"), expected);
}

TEST_P(GgufPreTokenizerTest, AddsTheBeginningWhereTheFileDoesNotSay) {
  for (const std::optional<bool> said :
       {std::optional<bool>(), std::optional(true), std::optional(false)}) {
    GgufWriter writer = ByteLevelFile(GetParam().name, {"a", "<s>"}, {});
    writer.Set("tokenizer.ggml.bos_token_id", 1u);
    if (said.has_value()) writer.Set("tokenizer.ggml.add_bos_token", *said);
    const auto files = FilesOf(writer);
    ASSERT_TRUE(files.ok()) << files.status();
    const auto tokenizer = LoadGgufTokenizer(*files, "f.gguf");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const std::vector<int32_t> begun = {1, 0}, plain = {0};
    EXPECT_EQ(*(*tokenizer)->Encode("a", /*add_special=*/true),
              said.value_or(GetParam().adds_bos) ? begun : plain);
  }
}

INSTANTIATE_TEST_SUITE_P(, GgufPreTokenizerTest, ::testing::ValuesIn(kPreTokenizerKinds),
                         [](const auto& info) {
                           return absl::StrReplaceAll(info.param.name, {{"-", "_"}});
                         });

// A kind that is added needs a row above.
TEST(GgufPreTokenizersTest, AllAreTested) {
  std::vector<std::string> names;
  for (const PreTokenizerKind& kind : kPreTokenizerKinds) names.push_back(kind.name);
  const auto files = FilesOf(ByteLevelFile("none", {"a"}, {}));
  EXPECT_THAT(files.status().message(),
              HasSubstr(absl::StrCat("supported: ", absl::StrJoin(names, ", "), ". Serve")));
}

// A published tokenizer.json, and the kinds that stand for it.
struct PublishedPattern {
  std::string folder;
  std::vector<const char*> kinds;
};

std::ostream& operator<<(std::ostream& out, const PublishedPattern& published) {
  return out << published.folder;
}

class GgufPublishedPatternTest : public ::testing::TestWithParam<PublishedPattern> {};

TEST_P(GgufPublishedPatternTest, SplitsAsTheTokenizerJson) {
  const auto path =
      testing::TestData(absl::StrCat("tokenizers/", GetParam().folder, "/tokenizer.json"));
  if (!path.has_value()) GTEST_SKIP() << "no test data";
  // The vocabulary, nearly all of the file, is not needed.
  const json published = json::parse(
      ReadTextFile(*path).value(), [](int depth, json::parse_event_t event, const json& value) {
        return depth != 1 || event != json::parse_event_t::key || value != "model";
      });
  for (const char* kind : GetParam().kinds) {
    for (const SplitText& row : SplitTexts()) {
      const GgufTokenizerFiles made = FilesThatShowPieces(kind, row.text);
      GgufTokenizerFiles original = made;
      json whole = json::parse(made.tokenizer_json);
      whole["pre_tokenizer"] = published.at("pre_tokenizer");
      whole["normalizer"] = published.at("normalizer");
      original.tokenizer_json = whole.dump();
      EXPECT_EQ(PiecesOf(made, row.text), PiecesOf(original, row.text)) << kind << ": " << row.text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, GgufPublishedPatternTest,
                         ::testing::ValuesIn(testing::ThinnedIfSanitized<PublishedPattern>(
                             {{"gpt2", {"gpt-2", "phi-2"}},
                              {"llama3", {"llama-bpe", "llama3", "llama-v3", "dbrx"}},
                              {"qwen3", {"qwen2", "deepseek-r1-qwen", "megrez"}}},
                             1)),
                         [](const auto& info) { return info.param.folder; });

}  // namespace
}  // namespace annulus
