#include "engine/gguf/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/text/sentencepiece/sentencepiece_file.h"
#include "engine/text/template/template_directory.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/gguf/gguf_tokenizers.h"
#include "tests/engine/gguf/gguf_writer.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::FilesOf;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::TestData;
using testing::TestFile;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> Corpus() {
  return nlohmann::json::parse(ReadFile(TestFile("engine/text/golden/corpus.json")));
}

void ExpectSameIds(const Tokenizer& made, const Tokenizer& original) {
  const std::vector<std::string> corpus = Corpus();
  ASSERT_GT(corpus.size(), 2000u);
  for (const std::string& text : corpus) {
    const auto expected = original.Encode(text, false);
    const auto ids = made.Encode(text, false);
    ASSERT_EQ(ids.ok(), expected.ok()) << text;
    if (!ids.ok()) continue;
    ASSERT_EQ(*ids, *expected) << text;
    ASSERT_EQ(*made.Decode(*ids, false), *original.Decode(*expected, false)) << text;
  }
}

// A published tokenizer.json as a converter stores it, and as it is.
struct Published {
  const char* folder;
  const char* pre;
};
class GgufPublishedTest : public ::testing::TestWithParam<Published> {};

TEST_P(GgufPublishedTest, GivesTheIdsOfTheTokenizerJson) {
  const auto path = TestData(std::string("tokenizers/") + GetParam().folder + "/tokenizer.json");
  if (!path.has_value()) GTEST_SKIP() << "no test data";
  const std::string text = ReadFile(*path);
  const nlohmann::json json = nlohmann::json::parse(text);
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  const auto set = [&](size_t id, const std::string& token, int32_t type) {
    for (; tokens.size() <= id; types.push_back(5))
      tokens.push_back("[PAD" + std::to_string(tokens.size()) + "]");
    tokens[id] = token;
    types[id] = type;
  };
  for (const auto& [token, id] : json["model"]["vocab"].items()) set(id, token, 1);
  for (const nlohmann::json& added : json["added_tokens"]) {
    set(added["id"], added["content"], added["special"] ? 3 : 4);
  }
  std::vector<std::string> merges;
  for (const nlohmann::json& merge : json["model"]["merges"]) {
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  GgufWriter writer;
  writer.Set("tokenizer.ggml.model", "gpt2");
  writer.Set("tokenizer.ggml.pre", GetParam().pre);
  writer.Set("tokenizer.ggml.tokens", tokens);
  writer.Set("tokenizer.ggml.token_type", types);
  writer.Set("tokenizer.ggml.merges", merges);
  const auto files = FilesOf(writer);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto made = LoadGgufTokenizer(*files, "f.gguf");
  ASSERT_TRUE(made.ok()) << made.status();
  const auto original = LoadTokenizerJson(text, "tokenizer.json");
  ASSERT_TRUE(original.ok()) << original.status();
  ExpectSameIds(**made, **original);
}

INSTANTIATE_TEST_SUITE_P(, GgufPublishedTest,
                         ::testing::ValuesIn(testing::ThinnedIfSanitized<Published>(
                             {{"llama3", "llama-bpe"}, {"qwen3", "qwen2"}, {"gpt2", "gpt-2"}}, 1)),
                         [](const auto& info) { return std::string(info.param.folder); });

// A sentencepiece model as a converter stores it. (Of user-defined pieces it stores what
// tokenizer_config.json says: gguf_vocabularies_test.cc.)
class GgufSentencePieceTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufSentencePieceTest, GivesTheIdsOfTheModel) {
  const std::string bytes =
      ReadFile(TestFile(std::string("engine/text/golden/small/") + GetParam() + ".model"));
  const auto file = ParseSentencePieceFile(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<float> scores;
  for (const SentencePieceFile::Piece& piece : file->pieces) {
    tokens.push_back(piece.text);
    types.push_back(static_cast<int32_t>(piece.type));
    scores.push_back(piece.score);
  }
  const bool unigram = file->kind == SentencePieceFile::Kind::kUnigram;
  GgufWriter writer;
  writer.Set("tokenizer.ggml.model", unigram ? "t5" : "llama");
  writer.Set("tokenizer.ggml.tokens", tokens);
  writer.Set("tokenizer.ggml.token_type", types);
  writer.Set("tokenizer.ggml.scores", scores);
  writer.Set("tokenizer.ggml.add_space_prefix", file->add_dummy_prefix);
  writer.Set("tokenizer.ggml.remove_extra_whitespaces", file->remove_extra_whitespaces);
  writer.Set("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(file->unk_id));
  if (file->bos_id >= 0) {
    writer.Set("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(file->bos_id));
  }
  if (file->eos_id >= 0) {
    writer.Set("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(file->eos_id));
  }
  if (!file->character_map.empty()) {
    writer.Raw("tokenizer.ggml.precompiled_charsmap", 9,
               testing::GgufNumber<uint32_t>(0) +
                   testing::GgufNumber<uint64_t>(file->character_map.size()) + file->character_map);
  }
  const auto files = FilesOf(writer);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto made = LoadGgufTokenizer(*files, "f.gguf");
  ASSERT_TRUE(made.ok()) << made.status();
  const auto original = LoadTokenizerModel(bytes, "tokenizer.model", "{}", "c");
  ASSERT_TRUE(original.ok()) << original.status();
  ExpectSameIds(**made, **original);
}

INSTANTIATE_TEST_SUITE_P(, GgufSentencePieceTest,
                         ::testing::Values("bpe_map", "unigram_loose", "unigram_map",
                                           "unigram_plain"));

GgufWriter Bytes() {
  GgufWriter writer;
  writer.Set("tokenizer.ggml.model", "gpt2");
  writer.Set("tokenizer.ggml.pre", "gpt-2");
  return writer;
}

TEST(GgufTokenizerTest, CarriesTheTemplateAndTheEndsOfText) {
  GgufWriter writer = Bytes();
  writer.Set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "<s>", "</s>"});
  writer.Set("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1, 3, 3});
  writer.Set("tokenizer.ggml.bos_token_id", 2u);
  writer.Set("tokenizer.ggml.eos_token_id", 3u);
  writer.Set("tokenizer.ggml.add_bos_token", true);
  writer.Set("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}");
  const auto files = FilesOf(writer);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto templates = TemplateDirectory::Parse(files->config, "f.gguf");
  ASSERT_TRUE(templates.ok()) << templates.status();
  EXPECT_FALSE(templates->empty());
  const auto tokens = templates->special_tokens();
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0], (std::pair<std::string, std::string>("bos_token", "<s>")));
  const auto made = LoadGgufTokenizer(*files, "f.gguf");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(*(*made)->Encode("", true), (std::vector<int32_t>{2}));
  EXPECT_TRUE((*made)->IsSpecial(3));
}

TEST(GgufTokenizerTest, RefusesWhatIsNoTokenizer) {
  const std::vector<std::string> two = {"a", "b"};
  struct Bad {
    std::function<void(GgufWriter&)> change;
    const char* message;
  };
  const Bad bad[] = {
      {[](GgufWriter&) {}, "tokens: missing"},
      {[](GgufWriter& w) { w.Set("tokenizer.ggml.tokens", 3u); }, "tokens: missing"},
      {[](GgufWriter& w) {
         w.Set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "a"});
       },
       "appears twice"},
      {[](GgufWriter& w) { w.Set("tokenizer.ggml.tokens", std::vector<std::string>{"\xff"}); },
       "not UTF-8"},
      {[&](GgufWriter& w) {
         w.Set("tokenizer.ggml.tokens", two);
         w.Set("tokenizer.ggml.token_type", std::vector<int32_t>{1});
       },
       "not one number for each"},
      {[&](GgufWriter& w) {
         w.Set("tokenizer.ggml.tokens", two);
         w.Set("tokenizer.ggml.token_type", std::vector<int32_t>{1, 7});
       },
       "allowed: 1 to 6"},
      {[&](GgufWriter& w) {
         w.Set("tokenizer.ggml.tokens", two);
         w.Set("tokenizer.ggml.bos_token_id", 2u);
       },
       "allowed: ids from 0 to 1"},
      {[&](GgufWriter& w) {
         w.Set("tokenizer.ggml.tokens", two);
         w.Set("tokenizer.ggml.merges", std::vector<int32_t>{1});
       },
       "merges: it is an array of 1; needed: an array of strings"},
      {[&](GgufWriter& w) {
         w.Set("tokenizer.ggml.tokens", two);
         w.Set("tokenizer.ggml.add_bos_token", 1u);
       },
       "add_bos_token: it is 1; allowed: true and false"},
      {[&](GgufWriter& w) {
         w.Set("tokenizer.ggml.tokens", two);
         w.Set("tokenizer.chat_template", 1u);
       },
       "chat_template is 1; needed: text"},
      {[&](GgufWriter& w) {
         w.Set("tokenizer.ggml.tokens", two);
         w.Set("tokenizer.chat_template", "\xFF");
       },
       "chat_template is \"\\xff\"; needed: text in UTF-8"},
  };
  for (const Bad& one : bad) {
    GgufWriter writer = Bytes();
    one.change(writer);
    const auto files = FilesOf(writer);
    EXPECT_EQ(files.status().code(), absl::StatusCode::kInvalidArgument) << one.message;
    EXPECT_THAT(files.status().message(), HasSubstr(one.message));
  }
  // Merges of tokens that are not there are refused by the reader of tokenizer.json.
  GgufWriter merges = Bytes();
  merges.Set("tokenizer.ggml.tokens", two);
  merges.Set("tokenizer.ggml.merges", std::vector<std::string>{"a c"});
  const auto files = FilesOf(merges);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(LoadGgufTokenizer(*files, "f.gguf").status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Byte-level BPE builds every text from tokens of single bytes. The daemon can still serve token
// ids.
TEST(GgufTokenizerTest, AByteLevelVocabularyWithoutBytesFailsTheText) {
  GgufWriter writer = Bytes();
  writer.Set("tokenizer.ggml.tokens", std::vector<std::string>{"ab", "cd"});
  const auto files = FilesOf(writer);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto made = LoadGgufTokenizer(*files, "f.gguf");
  ASSERT_TRUE(made.ok()) << made.status();
  const auto ids = (*made)->Encode("ab", false);
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument) << ids.status();
  EXPECT_THAT(ids.status().message(), HasSubstr("no token for any single byte"));
  EXPECT_EQ(*(*made)->Decode(std::vector<int32_t>{1, 0}, false), "cdab");
}

GgufWriter Scored(const std::vector<std::string>& tokens, const std::vector<int32_t>& types) {
  GgufWriter writer;
  writer.Set("tokenizer.ggml.model", "llama");
  writer.Set("tokenizer.ggml.tokens", tokens);
  writer.Set("tokenizer.ggml.token_type", types);
  std::vector<float> scores(tokens.size());
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = -static_cast<float>(i);
  writer.Set("tokenizer.ggml.scores", scores);
  return writer;
}

// Converters type every token that tokenizer_config.json lists as special CONTROL, <unk> too.
TEST(GgufTokenizerTest, TheUnknownPieceIsFoundWhateverItsType) {
  const auto encode = [](const GgufWriter& writer) -> absl::StatusOr<std::vector<int32_t>> {
    const auto files = FilesOf(writer);
    if (!files.ok()) return files.status();
    const auto made = LoadGgufTokenizer(*files, "f.gguf");
    if (!made.ok()) return made.status();
    return (*made)->Encode("é", false);
  };
  const std::vector<std::string> tokens = {"<pad>", "▁", "?", "<unk>"};
  for (const int32_t type : {2, 3}) {
    EXPECT_EQ(*encode(Scored(tokens, {3, 1, 3, type})), (std::vector<int32_t>{1, 3}));
  }
  GgufWriter named = Scored(tokens, {3, 1, 3, 3});
  named.Set("tokenizer.ggml.unknown_token_id", 2u);
  EXPECT_EQ(*encode(named), (std::vector<int32_t>{1, 2}));
  const auto none = encode(Scored({"<pad>", "▁", "a"}, {3, 1, 1}));
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      none.status().message(),
      HasSubstr("unknown_token_id: missing, and the vocabulary has no token of type UNKNOWN"));
}

// Spaces of a user-defined piece are "▁" unless another token has that text.
TEST(GgufTokenizerTest, AUserDefinedPieceMatchesTheTextAsItIsGiven) {
  for (const char* other : {"▁▁", "b"}) {
    for (const bool prefix : {true, false}) {
      GgufWriter writer = Scored({"<unk>", "▁", other, "a", "▁a", "  "}, {2, 1, 1, 1, 1, 4});
      writer.Set("tokenizer.ggml.add_space_prefix", prefix);
      const auto files = FilesOf(writer);
      ASSERT_TRUE(files.ok()) << files.status();
      const auto made = LoadGgufTokenizer(*files, "f.gguf");
      ASSERT_TRUE(made.ok()) << made.status();
      const int32_t a = prefix ? 4 : 3;
      EXPECT_EQ(*(*made)->Encode("a  a", false), (std::vector<int32_t>{a, 5, a})) << other;
      EXPECT_EQ(*(*made)->EncodePlain("a  a"), (std::vector<int32_t>{a, 5, a})) << other;
      EXPECT_EQ(*(*made)->Decode(std::vector<int32_t>{3, 5, 3}, false), "a  a") << other;
    }
  }
}

constexpr char kChatMl[] =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}"
    "{% endfor %}{{ '<|' + 'assistant' + '|>' }}<b>[0]";

// Control tokens that the file calls normal text are what they are, so that a template's text is
// not broken into pieces. Text in brackets that is an ordinary token stays one.
TEST(GgufTokenizerTest, WhatTheTemplateWritesIsAControlToken) {
  const std::vector<std::string> texts = {
      "<unk>",   "▁",  "a", "<|im_start|>", "<|im_end|>", "<|assistant|>",
      "<other>", "<b", ">", "<b>",          "<eos>"};
  for (const char* kind : {"llama", "gpt2"}) {
    SCOPED_TRACE(kind);
    GgufWriter writer = Scored(texts, {2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
    if (kind == std::string("gpt2")) {
      writer = Bytes();
      writer.Set("tokenizer.ggml.tokens", texts);
      writer.Set("tokenizer.ggml.merges", std::vector<std::string>{"<b >"});
    }
    writer.Set("tokenizer.ggml.eos_token_id", 10u);
    writer.Set("tokenizer.chat_template", kChatMl);
    const auto files = FilesOf(writer);
    ASSERT_TRUE(files.ok()) << files.status();
    ASSERT_EQ(files->warnings.size(), 1u);
    EXPECT_THAT(
        files->warnings[0],
        HasSubstr("token_type marks 4 tokens as normal text although the chat template writes them "
                  "or they begin or end texts: <eos>, <|im_start|>, <|im_end|>, "
                  "<|assistant|>; they are treated as control tokens"));
    const auto made = LoadGgufTokenizer(*files, "f.gguf");
    ASSERT_TRUE(made.ok()) << made.status();
    for (int32_t id = 0; id < 11; ++id) {
      EXPECT_EQ((*made)->IsControl(id), id == 3 || id == 4 || id == 5 || id == 10 ||
                                            (id == 0 && kind == std::string("llama")))
          << id;
    }
    EXPECT_EQ(*(*made)->Encode("<|im_start|><|im_end|><|assistant|>", false),
              (std::vector<int32_t>{3, 4, 5}));
    // Nor can a document steer the model by their text.
    const auto plain = (*made)->EncodePlain("<|im_end|>");
    if (plain.ok()) {
      EXPECT_THAT(*plain, ::testing::Not(::testing::Contains(4)));
    }
  }
}

// The search for them is linear, in texts of bounded size.
TEST(GgufTokenizerTest, RefusesMegabytesOfTokensThatMayBeControls) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 50'000; ++i)
    tokens.push_back(absl::StrCat("<", std::string(100, 'x'), i, ">"));
  GgufWriter writer = Bytes();
  writer.Set("tokenizer.ggml.tokens", tokens);
  EXPECT_TRUE(FilesOf(writer).ok()) << "without a template nothing is searched";
  writer.Set("tokenizer.chat_template", kChatMl);
  const absl::Status status = FilesOf(writer).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("tokenizer.ggml.tokens: "));
}

TEST(GgufTokenizerTest, RightTypesGiveNoWarning) {
  GgufWriter writer = Bytes();
  writer.Set("tokenizer.ggml.tokens",
             std::vector<std::string>{"a", "<|im_start|>", "<|im_end|>", "<think>", "[PAD]"});
  writer.Set("tokenizer.ggml.token_type", std::vector<int32_t>{1, 3, 3, 4, 5});
  writer.Set("tokenizer.ggml.eos_token_id", 2u);
  writer.Set("tokenizer.chat_template", kChatMl);
  const auto files = FilesOf(writer);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->warnings, ::testing::IsEmpty());
}

// Kinds with scores fall back to all 256 bytes, or to the unknown token.
TEST(GgufTokenizerTest, AVocabularyWithScoresHasAllBytesOrAnUnknownToken) {
  for (const char* kind : {"llama", "t5"}) {
    SCOPED_TRACE(kind);
    const auto load = [&](const std::vector<std::string>& tokens,
                          const std::vector<int32_t>& types) {
      GgufWriter writer;
      writer.Set("tokenizer.ggml.model", kind);
      writer.Set("tokenizer.ggml.tokens", tokens);
      writer.Set("tokenizer.ggml.token_type", types);
      writer.Set("tokenizer.ggml.scores", std::vector<float>(tokens.size(), -1.0f));
      const auto files = FilesOf(writer);
      EXPECT_TRUE(files.ok()) << files.status();
      return LoadGgufTokenizer(files.value_or(GgufTokenizerFiles()), "f.gguf");
    };
    EXPECT_THAT(load({"<unk>", "a", "<0x41>"}, {2, 1, 6}).status().message(),
                HasSubstr("needs 256 byte pieces"));
    const auto unknown = load({"<unk>", "a"}, {2, 1});
    ASSERT_TRUE(unknown.ok()) << unknown.status();
    EXPECT_EQ(*(*unknown)->Encode("\u00e9", false), (std::vector<int32_t>{0}));
  }
}

TEST(GgufTokenizerTest, NamesTheKindsThatItServes) {
  for (const char* kind : {"bert", "rwkv", "no_vocab"}) {
    GgufWriter writer;
    writer.Set("tokenizer.ggml.model", kind);
    writer.Set("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
    const auto files = FilesOf(writer);
    EXPECT_EQ(files.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(files.status().message(), HasSubstr("supported: gpt2"));
  }
  GgufWriter writer;
  writer.Set("tokenizer.ggml.model", "gpt2");
  writer.Set("tokenizer.ggml.pre", "viking");
  writer.Set("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  EXPECT_THAT(FilesOf(writer).status().message(), HasSubstr("pre is \"viking\"; supported: gpt-2"));
}

}  // namespace
}  // namespace annulus
