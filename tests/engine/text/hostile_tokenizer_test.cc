#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "engine/text/tokenizer.h"
#include "kernels/base/sanitizers.h"
#include "tests/engine/text/small_tokenizers.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

absl::Status LoadStatus(const json& value) {
  return LoadTokenizerJson(value.dump(), "tokenizer.json").status();
}

struct BadFile {
  const char* name;
  std::function<void(json*)> spoil;  // a good ByteFallbackTokenizer
  absl::StatusCode code;
  std::vector<std::string> says;  // parts of the message
};

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnsupported = absl::StatusCode::kUnimplemented;

json& Vocabulary(json* j) { return (*j)["model"]["vocab"]; }
json& Merges(json* j) { return (*j)["model"]["merges"]; }
json& Added(json* j, size_t i) { return (*j)["added_tokens"][i]; }

const std::vector<BadFile>& BadVocabularies() {
  static const auto& cases = *new std::vector<BadFile>{
      {"DuplicateId",
       [](json* j) { Vocabulary(j)["a"] = Vocabulary(j)["b"]; },
       kInvalid,
       {"model.vocab", "two tokens have the id"}},
      {"NegativeId",
       [](json* j) { Vocabulary(j)["a"] = -1; },
       kInvalid,
       {"model.vocab[\"a\"]", "is -1; allowed: a whole number from 0 to 4194303"}},
      {"HugeId",
       [](json* j) { Vocabulary(j)["a"] = 2147483647; },
       kInvalid,
       {"model.vocab[\"a\"]", "is 2147483647; allowed"}},
      {"IdBeyond64Bits",
       [](json* j) { Vocabulary(j)["a"] = UINT64_MAX; },
       kInvalid,
       {"model.vocab[\"a\"]", "is 18446744073709551615; allowed"}},
      {"FractionalId",
       [](json* j) { Vocabulary(j)["a"] = 1.5; },
       kInvalid,
       {"model.vocab[\"a\"]", "is 1.5; allowed: a whole number"}},
      {"TextId",
       [](json* j) { Vocabulary(j)["a"] = "5"; },
       kInvalid,
       {"model.vocab[\"a\"]", "is \"5\"; allowed: a whole number"}},
      {"EmptyToken",
       [](json* j) { Vocabulary(j)[""] = 400; },
       kInvalid,
       {"model.vocab", "is empty"}},
      {"AbsentUnknownToken",
       [](json* j) { (*j)["model"]["unk_token"] = "<nope>"; },
       kInvalid,
       {"model.vocab", "<nope>"}},
      {"NoVocabulary",
       [](json* j) { (*j)["model"].erase("vocab"); },
       kInvalid,
       {"model.vocab is missing"}},
      {"NoMerges",
       [](json* j) { (*j)["model"].erase("merges"); },
       kInvalid,
       {"model.merges is missing"}},
      {"MergeOfAbsentToken",
       [](json* j) { Merges(j).push_back("a zz"); },
       kInvalid,
       {"model.merges[10]", "\"zz\" is not in the vocabulary"}},
      {"MergeIntoAbsentToken",
       [](json* j) { Merges(j).push_back("a b"); },
       kInvalid,
       {"model.merges[10]", "\"ab\" is not in the vocabulary"}},
      {"MergeOfOneToken",
       [](json* j) { Merges(j).push_back("aa"); },
       kInvalid,
       {"model.merges[10]", "not two tokens"}},
      {"MergeOfNothing", [](json* j) { Merges(j).push_back(" "); }, kInvalid, {"model.merges[10]"}},
      {"MergeOfSpaces",
       [](json* j) { Merges(j).push_back(std::string(100, ' ')); },
       kInvalid,
       {"model.merges[10]", "too many spaces"}},
      {"MergeOfThree",
       [](json* j) {
         Merges(j).push_back({"a", "a", "a"});
       },
       kInvalid,
       {"model.merges[10]", "two tokens"}},
      {"MergeOfNumbers",
       [](json* j) {
         Merges(j).push_back({1, 2});
       },
       kInvalid,
       {"model.merges[10][0]", "is 1; allowed: a string"}},
      {"Dropout",
       [](json* j) { (*j)["model"]["dropout"] = 0.1; },
       kUnsupported,
       {"model.dropout", "0.1"}},
      {"SubwordPrefix",
       [](json* j) { (*j)["model"]["continuing_subword_prefix"] = "##"; },
       kUnsupported,
       {"model.continuing_subword_prefix", "##"}},
  };
  return cases;
}

const std::vector<BadFile>& BadAddedTokens() {
  static const auto& cases = *new std::vector<BadFile>{
      // <s> is 1 and </s> 2 for the model; the list says the reverse.
      {"CyclicAddedTokens",
       [](json* j) { std::swap(Added(j, 1)["id"], Added(j, 2)["id"]); },
       kInvalid,
       {"added_tokens[1]", "two ids, 1 and 2"}},
      {"AddedIdOfAnotherToken",
       [](json* j) { Added(j, 1)["content"] = "<new>"; },
       kInvalid,
       {"added_tokens[1]", "two tokens have the id 1", "<new>"}},
      {"AddedTwice",
       [](json* j) { (*j)["added_tokens"].push_back(Added(j, 1)); },
       kInvalid,
       {"added_tokens[3]", "listed twice"}},
      {"EmptyAddedToken",
       [](json* j) {
         Added(j, 1)["content"] = "";
         Added(j, 1)["id"] = 400;
       },
       kInvalid,
       {"added_tokens[1]", "is empty"}},
      {"AddedIdOutOfRange",
       [](json* j) {
         Added(j, 1)["content"] = "<new>";
         Added(j, 1)["id"] = 1 << 22;
       },
       kInvalid,
       {"added_tokens[1].id", "is 4194304; allowed"}},
      {"AddedIdMissing",
       [](json* j) { Added(j, 1).erase("id"); },
       kInvalid,
       {"added_tokens[1].id is missing"}},
      {"AddedFlagOfWrongType",
       [](json* j) { Added(j, 1)["lstrip"] = "yes"; },
       kInvalid,
       {"added_tokens[1].lstrip", "true or false"}},
      {"AddedTokenNormalizedAway",
       [](json* j) {
         (*j)["normalizer"] = {
             {"type", "Replace"}, {"pattern", {{"String", "<s>"}}}, {"content", ""}};
         Added(j, 1)["normalized"] = true;
       },
       kInvalid,
       {"added_tokens[1].content", "empty"}},
      {"AddedTokensNormalizedAlike",
       [](json* j) {
         (*j)["normalizer"] = {
             {"type", "Replace"}, {"pattern", {{"String", "/"}}}, {"content", ""}};
         Added(j, 1)["normalized"] = true;
         Added(j, 2)["normalized"] = true;
       },
       kInvalid,
       {"added_tokens[2].content", "given twice"}},
      {"TemplateOfAbsentToken",
       [](json* j) { (*j)["post_processor"]["special_tokens"].erase("<s>"); },
       kInvalid,
       {"post_processor.special_tokens.<s> is missing"}},
      {"TemplateOfAbsentId",
       [](json* j) { (*j)["post_processor"]["special_tokens"]["<s>"]["ids"][0] = 4000; },
       kInvalid,
       {"post_processor.special_tokens.<s>.ids[0]", "no token has the id 4000"}},
      {"TemplateWithoutText",
       [](json* j) { (*j)["post_processor"]["single"].erase(1); },
       kInvalid,
       {"post_processor.single", "0 times"}},
      {"TemplateOfPairs",
       [](json* j) { (*j)["post_processor"]["single"][1]["Sequence"]["id"] = "B"; },
       kInvalid,
       {"post_processor.single[1]", "sequence A"}},
  };
  return cases;
}

const std::vector<BadFile>& BadStages() {
  static const auto& cases = *new std::vector<BadFile>{
      {"UnknownModel",
       [](json* j) { (*j)["model"]["type"] = "WordPiece"; },
       kUnsupported,
       {"model.type", "WordPiece", "supported: BPE, Unigram"}},
      {"UnknownNormalizer",
       [](json* j) { (*j)["normalizer"]["normalizers"][1]["type"] = "Odd"; },
       kUnsupported,
       {"normalizer.normalizers[1].type", "Odd", "Precompiled, Prepend, Replace"}},
      {"UnknownPreTokenizer",
       [](json* j) {
         (*j)["pre_tokenizer"] = {{"type", "Odd"}};
       },
       kUnsupported,
       {"pre_tokenizer.type", "Odd", "Split, ByteLevel"}},
      {"UnknownDecoder",
       [](json* j) { (*j)["decoder"]["decoders"][1]["type"] = "Odd"; },
       kUnsupported,
       {"decoder.decoders[1].type", "Odd", "ByteFallback"}},
      {"UnknownPostProcessor",
       [](json* j) { (*j)["post_processor"]["type"] = "Odd"; },
       kUnsupported,
       {"post_processor.type", "Odd", "TemplateProcessing"}},
      {"UnknownVersion",
       [](json* j) { (*j)["version"] = "2.0"; },
       kUnsupported,
       {"version", "2.0", "1.0"}},
      {"UnknownSplitBehaviour",
       [](json* j) {
         (*j)["pre_tokenizer"] = {
             {"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Odd"}};
       },
       kUnsupported,
       {"pre_tokenizer.behavior", "Odd", "Isolated"}},
      {"NoDecoder", [](json* j) { (*j)["decoder"] = nullptr; }, kInvalid, {"decoder"}},
      {"NoModel", [](json* j) { j->erase("model"); }, kInvalid, {"model is missing"}},
      {"BrokenPattern",
       [](json* j) {
         (*j)["pre_tokenizer"] = {
             {"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}};
       },
       kInvalid,
       {"pre_tokenizer.pattern.Regex", "does not compile"}},
      {"EmptyLiteral",
       [](json* j) { (*j)["normalizer"]["normalizers"][1]["pattern"]["String"] = ""; },
       kInvalid,
       {"normalizer.normalizers[1].pattern.String"}},
      {"NoPattern",
       [](json* j) { (*j)["normalizer"]["normalizers"][1]["pattern"] = json::object(); },
       kInvalid,
       {"normalizer.normalizers[1].pattern", "Regex"}},
      {"ByteLevelFirst",
       [](json* j) {
         (*j)["pre_tokenizer"] = {
             {"type", "Sequence"},
             {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "ByteLevel"}}}}};
       },
       absl::StatusCode::kUnimplemented,
       {"pre_tokenizer.pretokenizers[1]", "after ByteLevel"}},
  };
  return cases;
}

json Unigram(const json& vocabulary) {
  return {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocabulary}};
}

const std::vector<BadFile>& BadUnigrams() {
  static const json good = json::array({{"<unk>", 0.0}, {"<s>", 0.0}, {"</s>", 0.0}, {"a", -1.5}});
  static const auto with = [](size_t row, size_t column, const json& value) {
    return [=](json* j) {
      json vocabulary = good;
      vocabulary[row][column] = value;
      (*j)["model"] = Unigram(vocabulary);
    };
  };
  static const auto& cases = *new std::vector<BadFile>{
      {"DuplicateToken", with(3, 0, "<s>"), kInvalid, {"model.vocab[3]", "two ids"}},
      {"EmptyToken", with(3, 0, ""), kInvalid, {"model.vocab[3]", "empty"}},
      {"LargeToken", with(3, 0, std::string(2000, 'a')), kInvalid, {"at most 1024", "2000"}},
      {"TokenOfWrongType", with(3, 0, 5), kInvalid, {"model.vocab[3][0]", "a string"}},
      {"ScoreOfWrongType", with(3, 1, "1"), kInvalid, {"model.vocab[3][1]", "a number"}},
      {"NoTokens", [](json* j) { (*j)["model"] = Unigram(json::array()); }, kInvalid, {"empty"}},
      {"UnknownIdOutOfRange",
       [](json* j) {
         (*j)["model"] = Unigram(good);
         (*j)["model"]["unk_id"] = 4;
       },
       kInvalid,
       {"model.unk_id", "4"}},
      {"BehindByteLevel",
       [](json* j) {
         (*j)["model"] = Unigram(good);
         (*j)["pre_tokenizer"] = {{"type", "ByteLevel"}};
       },
       kUnsupported,
       {"model.type", "Unigram", "ByteLevel"}},
  };
  return cases;
}

const std::vector<BadFile>& BadFilters() {
  static const auto normalizer = [](const json& value) {
    return [=](json* j) { (*j)["normalizer"] = value; };
  };
  static const auto pre_tokenizer = [](const json& value) {
    return [=](json* j) { (*j)["pre_tokenizer"] = value; };
  };
  static const auto map = [](const char* base64) {
    return normalizer({{"type", "Precompiled"}, {"precompiled_charsmap", base64}});
  };
  static const auto& cases = *new std::vector<BadFile>{
      {"MapMissing", normalizer({{"type", "Precompiled"}}), kInvalid, {"precompiled_charsmap"}},
      {"MapNotBase64", map("?"), kInvalid, {"precompiled_charsmap", "base 64"}},
      {"MapEmpty", map(""), kInvalid, {"no character map"}},
      {"MapTrieTooLong", map("/////w=="), kInvalid, {"no character map"}},
      {"MapTrieOfOddSize", map("AwAAAAAAAAA="), kInvalid, {"no character map"}},
      {"MapReplacementsNotUtf8", map("BAAAAAAAAAD/"), kInvalid, {"no character map"}},
      {"StripFlag", normalizer({{"type", "Strip"}, {"strip_left", 1}}), kInvalid, {"strip_left"}},
      {"MetaspaceMissing", pre_tokenizer({{"type", "Metaspace"}}), kInvalid, {"replacement"}},
      {"MetaspaceTwoCharacters",
       pre_tokenizer({{"type", "Metaspace"}, {"replacement", "ab"}}),
       kInvalid,
       {"pre_tokenizer.replacement", "one character"}},
      {"MetaspaceScheme",
       pre_tokenizer(
           {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "sometimes"}}),
       kUnsupported,
       {"pre_tokenizer.prepend_scheme", "sometimes", "always, first, never"}},
      {"PunctuationBehaviour",
       pre_tokenizer({{"type", "Punctuation"}, {"behavior", "Odd"}}),
       kUnsupported,
       {"pre_tokenizer.behavior", "Odd"}},
      {"DigitsFlag",
       pre_tokenizer({{"type", "Digits"}, {"individual_digits", "no"}}),
       kInvalid,
       {"individual_digits"}},
  };
  return cases;
}

void ExpectRefused(const BadFile& bad) {
  json value = testing::ByteFallbackTokenizer();
  bad.spoil(&value);
  const absl::Status status = LoadStatus(value);
  EXPECT_EQ(status.code(), bad.code) << bad.name << ": " << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("tokenizer.json")) << bad.name;
  for (const std::string& part : bad.says) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part)) << bad.name;
  }
}

TEST(HostileTokenizer, BadVocabularies) {
  for (const BadFile& bad : BadVocabularies()) ExpectRefused(bad);
}
TEST(HostileTokenizer, BadAddedTokens) {
  for (const BadFile& bad : BadAddedTokens()) ExpectRefused(bad);
}
TEST(HostileTokenizer, BadStages) {
  for (const BadFile& bad : BadStages()) ExpectRefused(bad);
}

TEST(HostileTokenizer, BadUnigrams) {
  for (const BadFile& bad : BadUnigrams()) ExpectRefused(bad);
}
TEST(HostileTokenizer, BadFilters) {
  for (const BadFile& bad : BadFilters()) ExpectRefused(bad);
}

// Any bytes that pass for a character map: every step of a look-up stays inside it.
TEST(HostileTokenizer, RandomCharacterMaps) {
  std::mt19937 random(51);
  for (int round = 0; round < 200; ++round) {
    std::string bytes(4 + 4 * 64, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    bytes[0] = bytes[1] = bytes[2] = bytes[3] = 0;
    bytes[1] = 1;  // 256 bytes of trie
    bytes.append("x\0yz\0", 5);
    json value = testing::ByteFallbackTokenizer();
    value["normalizer"] = {{"type", "Precompiled"},
                           {"precompiled_charsmap", absl::Base64Escape(bytes)}};
    const auto tokenizer = testing::Load(value);
    EXPECT_TRUE(tokenizer->Encode(testing::RandomText(200, &random), false).ok());
  }
}

TEST(HostileTokenizer, AUnigramWithoutUnknownTokenFailsTheText) {
  json value = testing::ByteFallbackTokenizer();
  value["model"] =
      Unigram(json::array({{"<unk>", 0.0}, {"<s>", 0.0}, {"</s>", 0.0}, {"▁", -1.0}, {"a", -2.0}}));
  value["model"].erase("unk_id");
  const auto tokenizer = testing::Load(value);
  EXPECT_TRUE(tokenizer->Encode("aa a", false).ok());
  const absl::Status status = tokenizer->Encode("ab", false).status();
  EXPECT_EQ(status.code(), kInvalid);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no token for \"b\""));
}

TEST(HostileTokenizer, TruncatedAnywhere) {
  json value = testing::ByteFallbackTokenizer();
  const std::string text = value.dump();
  for (size_t size = 0; size < text.size(); size += 1 + size / 50) {
    const absl::Status status =
        LoadTokenizerJson(absl::string_view(text).substr(0, size), "tokenizer.json").status();
    EXPECT_EQ(status.code(), kInvalid) << size;
  }
}

// Every value of a file in turn replaced by one of every type: an answer, never a crash.
TEST(HostileTokenizer, WrongTypesEverywhere) {
  const std::vector<json> files = {testing::ByteFallbackTokenizer(), testing::ByteLevelTokenizer()};
  for (json value : testing::ThinnedIfSanitized(files, 1)) {
    json& vocabulary = value["model"]["vocab"];
    const json full = vocabulary;
    std::vector<json::json_pointer> places;
    const std::function<void(const json&, const json::json_pointer&)> collect =
        [&](const json& node, const json::json_pointer& place) {
          places.push_back(place);
          if (place == json::json_pointer("/model/vocab")) return;
          for (const auto& [key, member] : node.items()) {
            if (node.is_object()) collect(member, place / key);
            if (node.is_array()) collect(member, place / static_cast<size_t>(std::stoul(key)));
          }
        };
    collect(value, json::json_pointer());
    const json replacements[] = {
        nullptr, true, -1, 1.5, "", "x", json::array(), {{"type", "x"}}, {nullptr}, json::object()};
    int refused = 0;
    for (const auto& place : places) {
      const json kept = value[place];
      for (const json& replacement : replacements) {
        value[place] = replacement;
        refused += LoadStatus(value).ok() ? 0 : 1;
      }
      value[place] = kept;
    }
    EXPECT_GT(refused, static_cast<int>(5 * places.size()));
    EXPECT_TRUE(LoadStatus(value).ok());
  }
}

TEST(HostileTokenizer, DeepNesting) {
  json value = testing::ByteFallbackTokenizer();
  for (int depth = 0; depth < 40; ++depth) {
    value["normalizer"] = {{"type", "Sequence"}, {"normalizers", {value["normalizer"]}}};
  }
  EXPECT_THAT(std::string(LoadStatus(value).message()), HasSubstr("nested more than 64 levels"));
}

TEST(HostileTokenizer, AnExplodingPatternFailsTheText) {
  json value = testing::ByteLevelTokenizer();
  value["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a+)+[bc]";
  const auto tokenizer = testing::Load(value);
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = tokenizer->Encode(std::string(1000, 'a'), false).status();
  EXPECT_EQ(status.code(), kInvalid);
  EXPECT_THAT(std::string(status.message()), HasSubstr("(a+)+[bc]"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_TRUE(tokenizer->Encode("harmless", false).ok());
}

TEST(HostileTokenizer, AnExplodingNormalizerFailsTheText) {
  json value = testing::ByteFallbackTokenizer();
  json stages = json::array();
  for (int i = 0; i < 40; ++i) {
    stages.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  }
  value["normalizer"]["normalizers"] = stages;
  const auto tokenizer = testing::Load(value);
  const absl::Status status = tokenizer->Encode("a", false).status();
  EXPECT_EQ(status.code(), kInvalid);
  EXPECT_THAT(std::string(status.message()), HasSubstr("normalizer"));
}

TEST(HostileTokenizer, MegabyteTokens) {
  const std::string large(kSanitized ? 1 << 18 : 1 << 20, 'a');
  json value = testing::ByteLevelTokenizer();
  const size_t next = value["model"]["vocab"].size() + value["added_tokens"].size();
  value["model"]["vocab"][large] = next;
  value["added_tokens"].push_back(
      {{"id", next + 1}, {"content", large + "!"}, {"normalized", false}, {"special", false}});
  const auto tokenizer = testing::Load(value);
  EXPECT_EQ(*tokenizer->Encode(large + "!", false),
            std::vector<int32_t>{static_cast<int32_t>(next + 1)});
  EXPECT_EQ(tokenizer->Encode(large, false)->size(), large.size() / 8);
  EXPECT_EQ(*tokenizer->Decode(std::vector<int32_t>{static_cast<int32_t>(next)}, false), large);
}

// Ids need not be dense: those in the holes have no token.
TEST(HostileTokenizer, Holes) {
  json value = testing::ByteFallbackTokenizer();
  value["model"]["vocab"]["far"] = 4'000'000;
  const auto tokenizer = testing::Load(value);
  EXPECT_EQ(tokenizer->vocabulary_size(), 4'000'001);
  EXPECT_FALSE(tokenizer->HasToken(3'999'999));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{3'999'999}, true).status().code(), kInvalid);
}

}  // namespace
}  // namespace annulus
