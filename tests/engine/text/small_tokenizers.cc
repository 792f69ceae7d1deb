#include "tests/engine/text/small_tokenizers.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/text/utf8.h"

namespace annulus::testing {
namespace {

using nlohmann::json;

constexpr char kLlama3Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

json AddedToken(int id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// Adds the merges and the tokens that they make.
void AddMerges(const std::vector<std::pair<std::string, std::string>>& merges, json* model) {
  json& vocabulary = (*model)["vocab"];
  for (const auto& [left, right] : merges) {
    const size_t next = vocabulary.size();
    vocabulary.emplace(left + right, next);
    (*model)["merges"].push_back(left + " " + right);
  }
}

json StartTemplate(const std::string& token, int id) {
  return {{"type", "TemplateProcessing"},
          {"single",
           {{{"SpecialToken", {{"id", token}, {"type_id", 0}}}},
            {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
          {"pair", json::array()},
          {"special_tokens", {{token, {{"id", token}, {"ids", {id}}, {"tokens", {token}}}}}}};
}

}  // namespace

std::string ByteLevelCharacter(int byte) {
  const auto prints = [](int b) {
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
  };
  std::string character;
  if (prints(byte)) {
    AppendUtf8(static_cast<char32_t>(byte), &character);
    return character;
  }
  char32_t code_point = 0x100;
  for (int b = 0; b < byte; ++b) code_point += prints(b) ? 0 : 1;
  AppendUtf8(code_point, &character);
  return character;
}

json ByteLevelTokenizer() {
  json model = {{"type", "BPE"},
                {"unk_token", nullptr},
                {"ignore_merges", false},
                {"vocab", json::object()},
                {"merges", json::array()}};
  for (int byte = 0; byte < 256; ++byte) model["vocab"][ByteLevelCharacter(byte)] = byte;
  AddMerges({{"Ġ", "t"},
             {"h", "e"},
             {"Ġt", "he"},
             {"a", "a"},
             {"aa", "aa"},
             {"aaaa", "aaaa"},
             {"Ġ", "Ġ"},
             {"ĠĠ", "ĠĠ"},
             {"ä", "¸"},
             {"ä¸", "Ń"},
             {"Ì", "ģ"},
             {"Ċ", "Ċ"}},
            &model);
  const int next = static_cast<int>(model["vocab"].size());
  return {{"version", "1.0"},
          {"added_tokens",
           {AddedToken(next, "<|begin|>", true), AddedToken(next + 1, "<|end|>", true),
            AddedToken(next + 2, "<tool>", false)}},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Split"},
               {"pattern", {{"Regex", kLlama3Pattern}}},
               {"behavior", "Isolated"},
               {"invert", false}},
              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}}},
          {"post_processor", StartTemplate("<|begin|>", next)},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", std::move(model)}};
}

json ByteFallbackTokenizer() {
  json model = {{"type", "BPE"},         {"unk_token", "<unk>"},    {"fuse_unk", true},
                {"byte_fallback", true}, {"vocab", json::object()}, {"merges", json::array()}};
  json& vocabulary = model["vocab"];
  vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) vocabulary[absl::StrFormat("<0x%02X>", byte)] = 3 + byte;
  for (const char* character : {"▁", "t", "h", "e", "a", "b", "l", "o", "H", "中", "é"}) {
    const size_t next = vocabulary.size();
    vocabulary[character] = next;
  }
  AddMerges({{"▁", "t"},
             {"h", "e"},
             {"▁t", "he"},
             {"a", "a"},
             {"aa", "aa"},
             {"▁", "▁"},
             {"▁▁", "▁▁"},
             {"l", "l"},
             {"H", "e"},
             {"中", "中"}},
            &model);
  return {{"version", "1.0"},
          {"added_tokens",
           {AddedToken(0, "<unk>", true), AddedToken(1, "<s>", true), AddedToken(2, "</s>", true)}},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", "▁"}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}}},
          {"pre_tokenizer", nullptr},
          {"post_processor", StartTemplate("<s>", 1)},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model", std::move(model)}};
}

std::unique_ptr<Tokenizer> Load(const nlohmann::json& value) {
  auto tokenizer = LoadTokenizerJson(value.dump(), "tokenizer.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : MakeByteTokenizer();
}

std::string RandomText(size_t length, std::mt19937* random) {
  const auto below = [&](uint32_t bound) { return static_cast<char32_t>((*random)() % bound); };
  std::string text;
  char32_t c = 'a';
  for (size_t i = 0; i < length; ++i) {
    switch (below(10)) {
      case 0:
        c = U" \n\r\t\u00a0\u3000\u2028"[below(7)];
        break;
      case 1:
        c = 0x300 + below(0x70);
        break;
      case 2:
        c = below(0xD800);
        break;
      case 3:
        c = 0xE000 + below(0x110000 - 0xE000);
        break;
      case 4:
      case 5:
        break;  // once more the same
      default:
        c = U"aaabthe H lo<|>'s123中é"[below(22)];
        break;
    }
    AppendUtf8(c, &text);
  }
  return text;
}

}  // namespace annulus::testing
