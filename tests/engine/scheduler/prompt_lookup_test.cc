#include "engine/scheduler/prompt_lookup.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using Tokens = std::vector<int32_t>;

constexpr double kRowCost = 0.1;

Tokens DraftAfter(const Tokens& tokens, int most = PromptLookup::kMostDraft) {
  PromptLookup lookup(std::ssize(tokens));
  lookup.Read(tokens, std::ssize(tokens));
  return lookup.Draft(tokens, most, kRowCost);
}

TEST(DraftLength, FollowsAcceptanceAndCost) {
  EXPECT_EQ(DraftLength(0, 0.01, 15), 0);
  EXPECT_EQ(DraftLength(1, 0.5, 15), 15);
  EXPECT_EQ(DraftLength(0.05, 0.1, 15), 0);
  EXPECT_EQ(DraftLength(0.9, 0.1, 0), 0);
  int last = 0;
  for (double acceptance = 0; acceptance < 1; acceptance += 0.05) {
    const int length = DraftLength(acceptance, 0.1, 15);
    EXPECT_GE(length, last);
    last = length;
  }
  EXPECT_GE(last, 4);
}

TEST(PromptLookup, GuessesWhatFollowedTheSameTokens) {
  EXPECT_EQ(DraftAfter({1, 2, 3, 4, 5, 6, 7, 9, 1, 2, 3}, 2), (Tokens{4, 5}));
  // The latest place goes before earlier ones.
  EXPECT_EQ(DraftAfter({1, 2, 3, 4, 1, 2, 3, 5, 6, 1, 2, 3}, 2), (Tokens{5, 6}));
  EXPECT_EQ(DraftAfter({1, 2, 3, 4, 5, 1, 2}), Tokens());
  EXPECT_EQ(DraftAfter({1, 2, 3}), Tokens());
  EXPECT_EQ(DraftAfter({}), Tokens());
  EXPECT_EQ(DraftAfter({1, 2, 3, 4, 1, 2, 3}, 0), Tokens());
}

TEST(PromptLookup, ARepetitionGoesRound) {
  PromptLookup lookup(64);
  const Tokens tokens = {9, 1, 2, 1, 2, 1, 2};
  lookup.Read(tokens, 64);
  lookup.Learn(15, 15);  // so that it guesses far
  EXPECT_EQ(lookup.Draft(tokens, 5, kRowCost), (Tokens{1, 2, 1, 2, 1}));
}

TEST(PromptLookup, ThePassageThatIsQuotedGoesBeforeOthers) {
  // Both passages have 5, 5, 5; the answer quotes the first.
  Tokens tokens = {1, 2, 3, 5, 5, 5, 6, 7, 8, 4, 5, 5, 5, 9, 9, 9, 1, 2, 3};
  PromptLookup lookup(64);
  lookup.Read(tokens, 64);
  ASSERT_EQ(lookup.Draft(tokens, 2, kRowCost), (Tokens{5, 5}));
  lookup.Learn(2, 2);
  for (const int32_t token : {5, 5, 5}) tokens.push_back(token);
  lookup.Read(tokens, 64);
  EXPECT_EQ(lookup.Draft(tokens, 2, kRowCost), (Tokens{6, 7}));
}

// Every token is a chance to guess, and all guesses are wrong: it soon rests. A step may have had
// no place for the draft.
TEST(PromptLookup, WhoAsksTwiceForTheSamePlaceGetsTheSameAndUsesNoChance) {
  std::mt19937_64 random(testing::TestSeed());
  PromptLookup once(4096);
  PromptLookup often(4096);
  Tokens tokens;
  int guessed = 0;
  int passed_over = 0;
  while (tokens.size() < 1000) {
    tokens.push_back(static_cast<int32_t>(random() % 3));
    once.Read(tokens, 4096);
    often.Read(tokens, 4096);
    const Tokens draft = once.Draft(tokens, 15, kRowCost);
    for (int turn = 0; turn < 3; ++turn) {
      ASSERT_EQ(often.Draft(tokens, 15, kRowCost), draft)
          << "seed " << testing::TestSeed() << ", " << tokens.size() << " tokens";
    }
    ++(draft.empty() ? passed_over : guessed);
    const auto drafted = static_cast<int>(draft.size());
    once.Learn(drafted, 0);
    often.Learn(drafted, 0);
  }
  EXPECT_GT(guessed, 3);
  EXPECT_GT(passed_over, guessed);
}

// A guess is always what followed the last tokens somewhere, however the text came in.
TEST(PromptLookup, WhateverIsGuessedStandsInTheText) {
  std::mt19937_64 random(testing::TestSeed());
  int64_t guessed = 0;
  for (int turn = 0; turn < 300; ++turn) {
    Tokens tokens;
    PromptLookup at_once(4096);
    PromptLookup in_parts(4096);
    for (int step = 0; step < 60; ++step) {
      for (int n = 1 + static_cast<int>(random() % 9); n > 0; --n) {
        tokens.push_back(static_cast<int32_t>(random() % 4));
      }
      at_once.Read(tokens, 4096);
      while (random() % 3 > 0) in_parts.Read(tokens, 1 + static_cast<int>(random() % 5));
      in_parts.Read(tokens, 4096);
      const int most = 1 + static_cast<int>(random() % 20);
      const Tokens draft = at_once.Draft(tokens, most, kRowCost);
      ASSERT_EQ(draft, in_parts.Draft(tokens, most, kRowCost))
          << "seed " << testing::TestSeed() << ", turn " << turn;
      if (draft.empty()) continue;
      ++guessed;
      ASSERT_LE(std::ssize(draft), PromptLookup::kMostDraft);
      Tokens wanted(tokens.end() - PromptLookup::kMatch, tokens.end());
      wanted.push_back(draft.front());
      EXPECT_NE(std::search(tokens.begin(), tokens.end(), wanted.begin(), wanted.end()),
                tokens.end())
          << "seed " << testing::TestSeed() << ", turn " << turn;
      const auto drafted = static_cast<int>(draft.size());
      const int accepted = static_cast<int>(random() % (drafted + 1));
      at_once.Learn(drafted, accepted);
      in_parts.Learn(drafted, accepted);
    }
  }
  EXPECT_GT(guessed, 1000);
}

// Follows an answer step by step; returns the time that it took, in steps of one row.
double TimeOf(const Tokens& prompt, const Tokens& answer, double row_cost) {
  PromptLookup lookup(std::ssize(prompt) + std::ssize(answer));
  Tokens tokens = prompt;
  double time = 0;
  for (size_t done = 0; done < answer.size();) {
    lookup.Read(tokens, 1 << 20);
    const int left = static_cast<int>(answer.size() - done);
    const Tokens draft = lookup.Draft(tokens, left - 1, row_cost);
    time += 1 + row_cost * static_cast<double>(draft.size());
    int accepted = 0;
    while (accepted < std::ssize(draft) && draft[accepted] == answer[done + accepted]) ++accepted;
    lookup.Learn(static_cast<int>(draft.size()), accepted);
    for (int n = 0; n <= accepted; ++n) tokens.push_back(answer[done++]);
  }
  return time;
}

TEST(PromptLookup, AnAnswerThatQuotesTakesLessThanHalfTheTime) {
  std::mt19937_64 random(testing::TestSeed());
  Tokens prompt;
  for (int i = 0; i < 4000; ++i) prompt.push_back(static_cast<int32_t>(random() % 5000));
  const Tokens answer(prompt.begin() + 1000, prompt.begin() + 1400);
  for (const double row_cost : {0.02, 0.1, 0.2}) {
    EXPECT_LT(TimeOf(prompt, answer, row_cost), 0.5 * 400) << "a row costs " << row_cost;
  }
}

// Every three tokens of the answer stand in the prompt, each time with something else behind them.
TEST(PromptLookup, FalseMatchesCostAtMostThreePercent) {
  std::mt19937_64 random(testing::TestSeed());
  Tokens prompt;
  Tokens answer;
  for (int i = 0; i < 1000; ++i) answer.push_back(static_cast<int32_t>(random() % 5000));
  for (size_t i = 3; i < answer.size(); ++i) {
    prompt.insert(prompt.end(), answer.begin() + i - 3, answer.begin() + i);
    prompt.push_back(answer[i] + 5000);
  }
  prompt.insert(prompt.end(), answer.begin(), answer.begin() + 3);
  for (const double row_cost : {0.02, 0.1, 0.25}) {
    EXPECT_LT(TimeOf(prompt, answer, row_cost), 1.03 * 1000) << "a row costs " << row_cost;
  }
}

}  // namespace
}  // namespace annulus
