#include "engine/text/stages/pattern_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/json_node.h"
#include "engine/text/stages/pre_tokenizer.h"

namespace annulus {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> SplitPieces(absl::string_view json, absl::string_view text) {
  const auto document = JsonDocument::Parse(json, "f.json");
  EXPECT_TRUE(document.ok()) << document.status();
  const auto parsed = ParsePreTokenizer(document->root());
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  if (!parsed.ok()) return {};
  const auto pieces = RunFilters(parsed->filters, text);
  EXPECT_TRUE(pieces.ok()) << pieces.status();
  return pieces.value_or(std::vector<std::string>());
}

std::vector<std::string> Split(absl::string_view behavior, absl::string_view text,
                               bool invert = false) {
  return SplitPieces(absl::StrCat(R"({"type": "Split", "pattern": {"String": "-"}, "behavior": ")",
                                  behavior, R"(", "invert": )", invert ? "true" : "false", "}"),
                     text);
}

TEST(PatternSplitter, Behaviours) {
  EXPECT_THAT(Split("Removed", "a-b--c"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(Split("Isolated", "a-b--c"), ElementsAre("a", "-", "b", "-", "-", "c"));
  EXPECT_THAT(Split("MergedWithPrevious", "a-b--c"), ElementsAre("a-", "b-", "-", "c"));
  EXPECT_THAT(Split("MergedWithNext", "a-b--c"), ElementsAre("a", "-b", "-", "-c"));
  EXPECT_THAT(Split("Contiguous", "a-b--c"), ElementsAre("a", "-", "b", "--", "c"));
}

TEST(PatternSplitter, BehavioursAtTheEdges) {
  EXPECT_THAT(Split("Removed", "--"), ElementsAre());
  EXPECT_THAT(Split("MergedWithPrevious", "-a-"), ElementsAre("-", "a-"));
  EXPECT_THAT(Split("MergedWithNext", "-a-"), ElementsAre("-a", "-"));
  EXPECT_THAT(Split("Contiguous", "--a"), ElementsAre("--", "a"));
  EXPECT_THAT(Split("Isolated", "abc"), ElementsAre("abc"));
}

TEST(PatternSplitter, InvertExchangesMatchesAndTheRest) {
  EXPECT_THAT(Split("Removed", "a-b--c", true), ElementsAre("-", "-", "-"));
  EXPECT_THAT(Split("MergedWithPrevious", "a-b", true), ElementsAre("a", "-b"));
}

TEST(PreTokenizer, ByteLevelSplitsWordsAndPrefixesASpace) {
  EXPECT_THAT(
      SplitPieces(R"({"type": "ByteLevel", "add_prefix_space": true})", "Hi there,  it's 42!"),
      ElementsAre(" Hi", " there", ",", " ", " it", "'s", " 42", "!"));
  EXPECT_THAT(SplitPieces(R"({"type": "ByteLevel", "add_prefix_space": true})", " Hi"),
              ElementsAre(" Hi"));
  EXPECT_THAT(SplitPieces(R"({"type": "ByteLevel", "add_prefix_space": false})", "Hi"),
              ElementsAre("Hi"));
}

TEST(PreTokenizer, SequenceCutsThePiecesOfTheStageBefore) {
  EXPECT_THAT(SplitPieces(R"({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "\\d+"}, "behavior": "Isolated", "invert": false},
        {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithNext"}]})",
                          "a b12 c"),
              ElementsAre("a", " b", "12", " c"));
}

}  // namespace
}  // namespace annulus
