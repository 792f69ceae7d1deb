#include "engine/text/stages/literal_set.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace annulus {
namespace {

using Found = std::vector<std::tuple<size_t, size_t, int32_t>>;

Found Find(const LiteralSet& set, absl::string_view text) {
  Found found;
  for (const auto& match : set.Find(text)) found.emplace_back(match.begin, match.end, match.index);
  return found;
}

LiteralSet Make(const std::vector<std::string>& literals) {
  LiteralSet set;
  for (const std::string& literal : literals) EXPECT_TRUE(set.Add(literal).ok());
  set.Build();
  return set;
}

// Leftmost, then longest, by trying every literal at every place.
Found FindNaively(const std::vector<std::string>& literals, absl::string_view text) {
  Found found;
  for (size_t at = 0; at < text.size();) {
    std::optional<size_t> best;
    for (size_t i = 0; i < literals.size(); ++i) {
      if (text.substr(at, literals[i].size()) != literals[i]) continue;
      if (!best.has_value() || literals[i].size() > literals[*best].size()) best = i;
    }
    if (!best.has_value()) {
      ++at;
      continue;
    }
    found.emplace_back(at, at + literals[*best].size(), static_cast<int32_t>(*best));
    at += literals[*best].size();
  }
  return found;
}

TEST(LiteralSet, TheLongestWinsAtTheLeftmostPlace) {
  const LiteralSet set = Make({"ab", "abcd", "bcde", "e"});
  EXPECT_EQ(Find(set, "abcde"), (Found{{0, 4, 1}, {4, 5, 3}}));
  EXPECT_EQ(Find(set, "abcabe"), (Found{{0, 2, 0}, {3, 5, 0}, {5, 6, 3}}));
  EXPECT_EQ(Find(set, ""), Found{});
  EXPECT_EQ(Find(Make({}), "abc"), Found{});
}

TEST(LiteralSet, AgreesWithTryingEverything) {
  std::mt19937 random(3);
  const auto letters = [&](size_t length) {
    std::string text;
    while (text.size() < length) text.push_back("abc"[random() % 3]);
    return text;
  };
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> literals;
    LiteralSet set;
    for (int i = 0; i < 8; ++i) {
      std::string literal = letters(1 + random() % 6);
      if (set.Add(literal).ok()) literals.push_back(literal);
    }
    set.Build();
    const std::string text = letters(random() % 60);
    ASSERT_EQ(Find(set, text), FindNaively(literals, text)) << text;
  }
}

TEST(LiteralSet, RefusesTheSameStringTwiceAndTooMuch) {
  LiteralSet set;
  ASSERT_TRUE(set.Add("x").ok());
  EXPECT_EQ(set.Add("x").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(set.Add(std::string(LiteralSet::kMaxBytes, 'y')).code(),
            absl::StatusCode::kInvalidArgument);
}

// A literal that nearly matches everywhere makes naive searches take quadratic time.
TEST(LiteralSet, NearMatchesCostNothingExtra) {
  const std::string near(1 << 20, 'a');
  const LiteralSet set = Make({near + "b", "c"});
  EXPECT_TRUE(set.Find(near + near + near).empty());
}

}  // namespace
}  // namespace annulus
