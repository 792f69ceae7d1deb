// Masks against each token tried byte by byte, and how matchers are copied and bounded.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/grammar/grammar_text.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::ChoicesConstraint;
using testing::JsonObjectConstraint;
using testing::NewCache;
using testing::RegexConstraint;
using testing::SchemaConstraint;
using testing::SmallVocabulary;

constexpr char kPerson[] =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":30},)"
    R"("nick":{"type":"string","minLength":2},"age":{"type":"integer","minimum":0,"maximum":150},)"
    R"("kind":{"enum":["a","ab","other"]},"mail":{"type":"string","format":"email"},)"
    R"("code":{"type":"string","pattern":"^[A-Z]{2}-.*x?$"},)"
    R"("friends":{"type":"array","items":{"$ref":"#"},"maxItems":3}},"required":["name","age"]})";

std::vector<OutputConstraint> Constraints() {
  return {SchemaConstraint(kPerson), JsonObjectConstraint(),
          RegexConstraint("[a-z ]{3,40}(\\.[^x]*)?|\"[^\"]*\"|.{0,60}\\n"),
          ChoicesConstraint({"yes", "yes, but", "no", "perhaps \xC3\xA9"})};
}

bool Bit(const TokenMask& mask, int32_t id) {
  return (mask.words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

// Whether each id of `ids` has the bit that its bytes deserve. Returns the allowed ones.
std::vector<int32_t> CheckMask(const GrammarMatcher& matcher, const TokenTrie& trie, int32_t end,
                               const std::vector<int32_t>& ids) {
  const auto mask = matcher.Mask();
  if (!mask.ok()) {
    ADD_FAILURE() << mask.status();
    return {};
  }
  // The next call may move the row.
  const std::vector<uint32_t> words(mask->words.begin(), mask->words.end());
  const TokenMask kept{words, mask->only};
  std::vector<int32_t> allowed;
  for (const int32_t id : ids) {
    bool expected = false;
    if (id == end) {
      expected = matcher.may_end();
    } else if (!trie.TokenBytes(id).empty()) {
      GrammarMatcher guess = matcher;
      expected = true;
      for (const char byte : trie.TokenBytes(id)) {
        expected = expected && *guess.AdvanceBytes(absl::string_view(&byte, 1));
      }
    }
    EXPECT_EQ(Bit(kept, id), expected) << id << " \"" << trie.TokenBytes(id) << "\"";
    if (Bit(kept, id)) allowed.push_back(id);
  }
  size_t bits = 0;
  for (const uint32_t word : words) bits += static_cast<size_t>(std::popcount(word));
  EXPECT_GT(bits, 0u);
  EXPECT_EQ(mask->only.has_value(), bits == 1);
  if (mask->only) {
    EXPECT_TRUE(Bit(kept, *mask->only));
  }
  const auto only = matcher.OnlyToken();
  EXPECT_TRUE(only.ok()) << only.status();
  if (only.ok()) {
    EXPECT_EQ(*only, matcher.may_end() ? std::nullopt : mask->only);
  }
  return allowed;
}

// Tokens made of pieces that constraints care about.
std::vector<std::string> RandomTokens(std::mt19937_64& random, size_t count) {
  const std::vector<std::string> pieces = {
      "\"",       "\\",           "{",   "}",    "[", "]", ",", ":", " ", "\n",   "a",
      "b",        "name",         "age", "x",    "1", "0", "-", ".", "@", "\xC3", "\xA9",
      "\xC3\xA9", "\xE2\x82\xAC", "u00", "true", "ab"};
  std::vector<std::string> tokens;
  for (size_t i = 0; i < count; ++i) {
    std::string token;
    for (size_t part = 0; part < 2 + random() % 4; ++part)
      token += pieces[random() % pieces.size()];
    tokens.push_back(token);
  }
  return tokens;
}

TEST(Mask, EqualsEachTokenByteByByte) {
  std::mt19937_64 random(testing::TestSeed());
  for (const OutputConstraint& constraint : Constraints()) {
    const SmallVocabulary vocabulary(RandomTokens(random, 400));
    std::vector<int32_t> ids;
    for (int32_t id = 0; id <= vocabulary.end; ++id) ids.push_back(id);
    const auto cache = NewCache(constraint, vocabulary);
    for (int walk = 0; walk < 6; ++walk) {
      GrammarMatcher matcher(cache);
      for (int step = 0; step < 40 && !HasFailure(); ++step) {
        auto allowed = CheckMask(matcher, *vocabulary.trie, vocabulary.end, ids);
        std::erase(allowed, vocabulary.end);
        if (allowed.empty()) break;
        EXPECT_TRUE(*matcher.Advance(allowed[random() % allowed.size()]));
      }
    }
  }
}

TEST(Mask, ThousandsOfStatesFitIntoTheBound) {
  // Counts make each character a state of its own.
  const SmallVocabulary vocabulary({"abc", "d\"", "\xC3\xA9t"});
  const auto constraint = SchemaConstraint(R"({"type":"string","maxLength":100000})");
  const auto machine = testing::Compile(constraint);
  const auto small = std::make_shared<GrammarCache>(
      *machine, vocabulary.trie, std::vector<int32_t>{vocabulary.end}, size_t{64} << 10);
  GrammarMatcher matcher(small);
  ASSERT_TRUE(*matcher.AdvanceBytes("\""));
  size_t most = 0;
  for (int i = 0; i < 30000; ++i) {
    ASSERT_TRUE(*matcher.Advance(256));
    ASSERT_TRUE(Bit(*matcher.Mask(), 257)) << i;
    most = std::max(most, small->bytes());
  }
  EXPECT_LT(most, size_t{128} << 10);
  ASSERT_TRUE(*matcher.AdvanceBytes(std::string(9999, 'x')));
  EXPECT_LT(small->bytes(), size_t{128} << 10);
  EXPECT_EQ(Bit(*matcher.Mask(), 256), false);  // one more character fits, not three
  EXPECT_EQ(Bit(*matcher.Mask(), 'x'), true);
  ASSERT_TRUE(*matcher.AdvanceBytes("x"));
  EXPECT_EQ(matcher.Mask()->only, '"');
  ASSERT_TRUE(*matcher.Advance('"'));
  EXPECT_EQ(matcher.Mask()->only, vocabulary.end);
}

// Another answer fills the cache again and again meanwhile.
TEST(Mask, WhatOthersDoChangesNothing) {
  std::mt19937_64 random(testing::TestSeed());
  const SmallVocabulary vocabulary(RandomTokens(random, 400));
  const auto machine = testing::Compile(SchemaConstraint(kPerson));
  const auto cache = [&] {
    return std::make_shared<GrammarCache>(*machine, vocabulary.trie,
                                          std::vector<int32_t>{vocabulary.end}, size_t{32} << 10);
  };
  const auto shared = cache();
  GrammarMatcher matcher(shared);
  GrammarMatcher alone(cache());
  GrammarMatcher other(shared);
  ASSERT_TRUE(*other.AdvanceBytes(R"({"name":")"));
  const uint32_t* const first = GrammarMatcher(shared).Mask()->words.data();
  for (int step = 0; step < 60 && !HasFailure(); ++step) {
    GrammarMatcher many = other;
    for (int i = 0; i < 25; ++i) {
      ASSERT_TRUE(*many.AdvanceBytes("x"));
      ASSERT_TRUE(many.Mask().ok());
    }
    const TokenMask own = *alone.Mask();
    const TokenMask mask = *matcher.Mask();
    EXPECT_TRUE(std::equal(own.words.begin(), own.words.end(), mask.words.begin())) << step;
    EXPECT_EQ(own.only, mask.only);
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < vocabulary.end; ++id) {
      if (Bit(own, id)) allowed.push_back(id);
    }
    if (allowed.empty()) break;
    const int32_t token = allowed[random() % allowed.size()];
    EXPECT_TRUE(*alone.Advance(token));
    EXPECT_TRUE(*matcher.Advance(token));
    EXPECT_LT(shared->bytes(), size_t{256} << 10);
    // Whoever begins finds the mask that all begin with.
    EXPECT_EQ(GrammarMatcher(shared).Mask()->words.data(), first);
  }
}

TEST(Mask, ACopyGoesItsOwnWay) {
  const SmallVocabulary vocabulary;
  const auto cache = NewCache(ChoicesConstraint({"abc", "abd"}), vocabulary);
  GrammarMatcher matcher(cache);
  EXPECT_EQ(matcher.Mask()->only, 'a');
  ASSERT_TRUE(*matcher.AdvanceBytes("ab"));
  GrammarMatcher guess = matcher;
  ASSERT_TRUE(*guess.Advance('c'));
  EXPECT_TRUE(guess.may_end());
  EXPECT_FALSE(*guess.Advance('d'));
  EXPECT_TRUE(guess.may_end()) << "a refused token changes nothing";
  EXPECT_FALSE(matcher.may_end());
  EXPECT_FALSE(matcher.Mask()->only.has_value());
  matcher = guess;
  EXPECT_TRUE(matcher.may_end());
  EXPECT_FALSE(*matcher.Advance(vocabulary.end)) << "an end is not text";
}

TEST(Mask, NestingIsBoundedByMemory) {
  const SmallVocabulary vocabulary;
  const auto machine =
      testing::Compile(SchemaConstraint(R"({"type":"array","items":{"$ref":"#"}})"));
  const auto cache = std::make_shared<GrammarCache>(
      *machine, vocabulary.trie, std::vector<int32_t>{vocabulary.end}, size_t{1} << 20);
  GrammarMatcher matcher(cache);
  absl::Status status;
  int depth = 0;
  for (; depth < 1000000 && status.ok(); ++depth) status = matcher.Advance('[').status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GT(depth, 1000);
}

class RealVocabulary : public ::testing::TestWithParam<const char*> {};

TEST_P(RealVocabulary, MasksEqualSampledTokensByteByByte) {
  const auto folder = testing::TestData(absl::StrCat("tokenizers/", GetParam()));
  if (!folder) GTEST_SKIP() << "no test data";
  const auto tokenizer = LoadTokenizer(*folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const int32_t end = (*tokenizer)->vocabulary_size();
  const auto trie =
      std::make_shared<const TokenTrie>(TokenTrie::FromTokenizer(**tokenizer, end + 1));
  EXPECT_GE(trie->single_bytes().count(), 243u) << "UTF-8 never has 13 of them";
  std::mt19937_64 random(testing::TestSeed());
  for (const OutputConstraint& constraint : Constraints()) {
    WorkMeter work("the output constraint", kCompileSteps, CancelFlag::Never());
    const auto machine =
        CompileConstraint(constraint, trie->single_bytes(), &work, &MemoryGrant::Unlimited());
    ASSERT_TRUE(machine.ok()) << machine.status();
    const auto cache = std::make_shared<GrammarCache>(*machine, trie, std::vector<int32_t>{end});
    GrammarMatcher matcher(cache);
    for (int step = 0; step < 60 && !HasFailure(); ++step) {
      std::vector<int32_t> ids{end};
      for (int i = 0; i < 2000; ++i) ids.push_back(static_cast<int32_t>(random() % (end + 1)));
      for (char byte = 1; byte > 0; ++byte) {
        // A token of one byte is always among those that may come.
        for (int32_t id = 0; id < 512; ++id) {
          if (trie->TokenBytes(id) == absl::string_view(&byte, 1)) ids.push_back(id);
        }
      }
      auto allowed = CheckMask(matcher, *trie, end, ids);
      std::erase(allowed, end);
      if (allowed.empty()) break;
      EXPECT_TRUE(*matcher.Advance(allowed[random() % allowed.size()]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RealVocabulary,
                         ::testing::Values("gpt2", "llama2", "llama3", "mistral-v3", "qwen3"));

}  // namespace
}  // namespace annulus
