#include "engine/text/models/bpe_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json_node.h"
#include "engine/text/utf8.h"

namespace annulus {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Loaded {
 public:
  explicit Loaded(const json& value, bool byte_level = false) {
    auto document = JsonDocument::Parse(value.dump(), "f.json");
    EXPECT_TRUE(document.ok()) << document.status();
    auto model = BpeModel::Parse(document->root(), byte_level, &vocabulary_);
    EXPECT_TRUE(model.ok()) << model.status();
    if (model.ok()) model_ = *std::move(model);
  }

  std::vector<std::string> Tokens(absl::string_view piece) const {
    std::vector<int32_t> ids;
    EXPECT_TRUE(Push(piece, &ids).ok());
    std::vector<std::string> tokens;
    for (const int32_t id : ids) tokens.emplace_back(*vocabulary_.Token(id));
    return tokens;
  }

  absl::Status Push(absl::string_view piece) const {
    std::vector<int32_t> ids;
    return Push(piece, &ids);
  }

 private:
  absl::Status Push(absl::string_view piece, std::vector<int32_t>* ids) const {
    WorkMeter work("the text", 1 << 30, CancelFlag::Never());
    EncodeState state(&work);
    state.ids = ids;
    return model_->NewStage(&state)->Push(piece, true);
  }

  Vocabulary vocabulary_;
  std::unique_ptr<Model> model_;
};

// The definition: join the leftmost pair of the lowest rank until there is none.
std::vector<std::string> MergeNaively(absl::string_view piece, const json& merges) {
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (const auto& merge : merges) ranks.emplace(std::pair(merge[0], merge[1]), ranks.size());
  std::vector<std::string> tokens;
  for (size_t at = 0; at < piece.size();) {
    const size_t begin = at;
    NextCodePoint(piece, &at);
    tokens.emplace_back(piece.substr(begin, at - begin));
  }
  while (true) {
    size_t best_rank = ranks.size();
    size_t best = 0;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto rank = ranks.find({tokens[i], tokens[i + 1]});
      if (rank != ranks.end() && rank->second < best_rank) {
        best_rank = rank->second;
        best = i;
      }
    }
    if (best_rank == ranks.size()) return tokens;
    tokens[best] += tokens[best + 1];
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

json RandomModel(std::mt19937* random) {
  const std::vector<std::string> alphabet = {"a", "b", "c", "é", "中"};
  std::vector<std::string> tokens = alphabet;
  json model = {{"vocab", json::object()}, {"merges", json::array()}};
  for (const std::string& token : tokens) {
    const size_t next = model["vocab"].size();
    model["vocab"][token] = next;
  }
  for (int i = 0; i < 12; ++i) {
    const std::string left = tokens[(*random)() % tokens.size()];
    const std::string right = tokens[(*random)() % tokens.size()];
    const json merge = {left, right};
    if (std::find(model["merges"].begin(), model["merges"].end(), merge) != model["merges"].end()) {
      continue;
    }
    model["merges"].push_back(merge);
    const size_t next = model["vocab"].size();
    if (model["vocab"].emplace(left + right, next).second) tokens.push_back(left + right);
  }
  return model;
}

TEST(BpeModel, MergesAsTheDefinitionSays) {
  std::mt19937 random(4);
  const std::vector<std::string> alphabet = {"a", "b", "c", "é", "中"};
  for (int round = 0; round < 300; ++round) {
    const json value = RandomModel(&random);
    const Loaded model(value);
    for (int i = 0; i < 10; ++i) {
      std::string piece;
      for (size_t n = random() % 40; n > 0; --n) piece += alphabet[random() % alphabet.size()];
      ASSERT_EQ(model.Tokens(piece), MergeNaively(piece, value["merges"])) << piece << value;
    }
  }
}

json UnknownModel() {
  return {{"unk_token", "<unk>"},
          {"vocab", {{"<unk>", 0}, {"a", 1}, {"<0xC3>", 2}, {"<0xA9>", 3}, {"b", 4}}},
          {"merges", json::array()}};
}

TEST(BpeModel, UnknownCharacters) {
  json value = UnknownModel();
  EXPECT_THAT(Loaded(value).Tokens("aéxxb"), ElementsAre("a", "<unk>", "<unk>", "<unk>", "b"));
  value["fuse_unk"] = true;
  EXPECT_THAT(Loaded(value).Tokens("aéxxbx"), ElementsAre("a", "<unk>", "b", "<unk>"));
  value["byte_fallback"] = true;
  EXPECT_THAT(Loaded(value).Tokens("xéx"), ElementsAre("<unk>", "<0xC3>", "<0xA9>", "<unk>"));
  value["unk_token"] = nullptr;
  EXPECT_THAT(Loaded(value).Tokens("xéxa"), ElementsAre("<0xC3>", "<0xA9>", "a"));
}

TEST(BpeModel, MergesCanReachIntoByteAndUnknownTokens) {
  json value = UnknownModel();
  value["byte_fallback"] = true;
  value["vocab"].update({{"<0xC3><0xA9>", 5}, {"a<unk>", 6}});
  value["merges"] = json::array({"<0xC3> <0xA9>", "a <unk>"});
  EXPECT_THAT(Loaded(value).Tokens("bébax"), ElementsAre("b", "<0xC3><0xA9>", "b", "a<unk>"));
}

// As the package `tokenizers` does with a byte that has no token; without any, no text can be
// spelled.
TEST(BpeModel, BytesWithoutTokens) {
  json value = {{"vocab", {{"a", 0}, {"ab", 1}}}, {"merges", json::array()}};
  EXPECT_THAT(Loaded(value, true).Tokens("xaxbab"), ElementsAre("a", "a"));
  value["vocab"] = {{"ab", 0}, {"<unk>", 1}};
  EXPECT_THAT(Loaded(value, true).Push("ab").message(), HasSubstr("no token for any single byte"));
  EXPECT_TRUE(Loaded(value, true).Push("").ok());
  value["ignore_merges"] = true;
  EXPECT_THAT(Loaded(value, true).Tokens("ab"), ElementsAre("ab"));
  value["unk_token"] = "<unk>";
  EXPECT_THAT(Loaded(value, true).Tokens("xy"), ElementsAre("<unk>", "<unk>"));
}

TEST(BpeModel, IgnoreMergesTakesWholeTokens) {
  json value = {{"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}, {"aba", 3}}},
                {"merges", json::array({"a b"})}};
  EXPECT_THAT(Loaded(value).Tokens("aba"), ElementsAre("ab", "a"));
  EXPECT_THAT(Loaded(value, true).Tokens("aba"), ElementsAre("ab", "a"));
  value["ignore_merges"] = true;
  EXPECT_THAT(Loaded(value).Tokens("aba"), ElementsAre("aba"));
  EXPECT_THAT(Loaded(value).Tokens("abab"), ElementsAre("ab", "ab"));
}

// Old files write a merge as one string, also when its tokens contain spaces.
TEST(BpeModel, MergesWithSpacesInTokens) {
  json value = {{"vocab", {{" ", 0}, {"  ", 1}, {"a", 2}, {"a ", 3}}}, {"merges", {"   ", "a  "}}};
  EXPECT_THAT(Loaded(value).Tokens("a  "), ElementsAre("a", "  "));
  value["merges"] = {"a  ", "   "};
  EXPECT_THAT(Loaded(value).Tokens("a   "), ElementsAre("a ", "  "));
}

}  // namespace
}  // namespace annulus
