#include "bench/model/forced_answer.h"

#include <algorithm>

#include "engine/scheduler/prompt_lookup.h"
#include "gtest/gtest.h"
#include "tests/support/temp_directory.h"

namespace annulus::bench {
namespace {

constexpr int32_t kVocabulary = 50'000;
constexpr int32_t kTokens = 50;

TEST(ForcedAnswer, AQuoteStandsInThePrompt) {
  std::mt19937 random(1);
  const ForcedAnswer forced = ForceAnswer("quote", 400, kTokens, kVocabulary, random).value();
  EXPECT_EQ(std::ssize(forced.prompt), 400);
  ASSERT_EQ(std::ssize(forced.answer), kTokens);
  EXPECT_NE(std::search(forced.prompt.begin(), forced.prompt.end(), forced.answer.begin(),
                        forced.answer.end()),
            forced.prompt.end());
}

// Wherever the answer stands there is a guess, and it is wrong.
TEST(ForcedAnswer, WhatMisleadsMatchesEverywhereAndIsWrong) {
  std::mt19937 random(1);
  const ForcedAnswer forced = ForceAnswer("mislead", 400, kTokens, kVocabulary, random).value();
  EXPECT_EQ(std::ssize(forced.prompt), 400);
  ASSERT_EQ(std::ssize(forced.answer), kTokens);
  std::vector<int32_t> tokens = forced.prompt;
  for (const int32_t token : forced.answer) {
    PromptLookup lookup(1 << 20);  // so many slots that no two matches share one
    lookup.Read(tokens, 1 << 20);
    const std::vector<int32_t> draft = lookup.Draft(tokens, 1, 0.1);
    ASSERT_EQ(draft.size(), 1u);
    EXPECT_NE(draft[0], token);
    tokens.push_back(token);
  }
}

TEST(ForcedAnswer, ShortPromptsAndBadFilesAreRefused) {
  std::mt19937 random(1);
  for (const char* what : {"quote", "mislead"}) {
    EXPECT_EQ(ForceAnswer(what, 60, kTokens, kVocabulary, random).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  const testing::TempDirectory folder;
  folder.Write("good.txt", "1 2\n3, 4");
  folder.Write("bad.txt", "1 2 50000");
  folder.Write("empty.txt", " \n");
  const auto path = [&](const char* name) { return (folder.path() / name).string(); };
  EXPECT_EQ(ForceAnswer(path("good.txt"), 9, 1, kVocabulary, random)->answer,
            (std::vector<int32_t>{1, 2, 3, 4}));
  for (const char* name : {"bad.txt", "empty.txt", "none.txt"}) {
    EXPECT_FALSE(ForceAnswer(path(name), 9, 1, kVocabulary, random).ok()) << name;
  }
}

}  // namespace
}  // namespace annulus::bench
