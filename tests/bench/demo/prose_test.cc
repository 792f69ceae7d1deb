#include "bench/demo/prose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

namespace annulus::bench {
namespace {

TEST(ProseTest, SentencesArePlainAsciiOfModestLength) {
  Prose prose(1);
  for (int i = 0; i < 5000; ++i) {
    const std::string sentence = prose.Sentence();
    EXPECT_GE(sentence.size(), 30u) << sentence;
    EXPECT_LE(sentence.size(), 250u) << sentence;
    EXPECT_EQ(sentence.back(), '.') << sentence;
    EXPECT_TRUE(std::ranges::all_of(sentence, [](char byte) {
      return byte >= ' ' && byte <= '~' && byte != '"' && byte != '\\' && byte != '{';
    })) << sentence;
  }
}

TEST(ProseTest, SameSeedSameSentences) {
  Prose a(5), b(5), other(6);
  std::set<std::string> sentences;
  bool differs = false;
  for (int i = 0; i < 1000; ++i) {
    const std::string sentence = a.Sentence();
    EXPECT_EQ(sentence, b.Sentence());
    differs |= sentence != other.Sentence();
    sentences.insert(sentence);
  }
  EXPECT_TRUE(differs);
  EXPECT_GT(sentences.size(), 990u);
}

TEST(ProseTest, FirstSentenceIsTheSameOnEveryMachine) {
  EXPECT_EQ(Prose(7).Sentence(),
            "Bir Thenvesk counted 885 gulls on the slipway and wrote the number in the day book.");
}

TEST(ProseTest, ExpandReplacesNamesAndKeepsTheRest) {
  Prose prose(2);
  EXPECT_EQ(prose.Expand("nothing here"), "nothing here");
  const std::string text = prose.Expand("<{PLACE}|{digits}>");
  const size_t bar = text.find('|');
  EXPECT_EQ(text.front(), '<');
  EXPECT_TRUE(std::all_of(text.begin() + 1, text.begin() + static_cast<int64_t>(bar),
                          [](char byte) { return byte == ' ' || (byte >= 'A' && byte <= 'Z'); }));
  EXPECT_EQ(text.size(), bar + 7);
}

}  // namespace
}  // namespace annulus::bench
