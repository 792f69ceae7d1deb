#include "engine/scheduler/output_guide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/engine/grammar/grammar_text.h"

namespace annulus {
namespace {

using testing::ChoicesConstraint;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::NewCache;
using testing::RegexConstraint;
using testing::SmallVocabulary;

std::vector<int32_t> Ids(const std::string& text) { return {text.begin(), text.end()}; }

OutputGuide Guide(const OutputConstraint& constraint, const SmallVocabulary& vocabulary) {
  return OutputGuide(GrammarMatcher(NewCache(constraint, vocabulary)));
}

TEST(OutputGuide, GivesTheTokensWithoutAlternative) {
  const SmallVocabulary vocabulary;
  OutputGuide guide = Guide(ChoicesConstraint({"north-east", "north-west", "south"}), vocabulary);
  EXPECT_THAT(guide.Forced(15), IsEmpty());
  ASSERT_TRUE(guide.Read(Ids("n"), 100));
  EXPECT_EQ(guide.Forced(15), Ids("orth-"));
  EXPECT_EQ(guide.Forced(2), Ids("or"));
  EXPECT_THAT(guide.Forced(0), IsEmpty());
  // What may end the text is a choice, and what must is no token of it.
  ASSERT_TRUE(guide.Read(Ids("north-w"), 100));
  EXPECT_EQ(guide.Forced(15), Ids("est"));
  ASSERT_TRUE(guide.Read(Ids("north-west"), 100));
  EXPECT_THAT(guide.Forced(15), IsEmpty());
}

TEST(OutputGuide, TokensOfSeveralBytesAreAlternatives) {
  const SmallVocabulary vocabulary({"rt"});
  OutputGuide guide = Guide(ChoicesConstraint({"north"}), vocabulary);
  EXPECT_EQ(guide.Forced(15), Ids("no"));
}

TEST(OutputGuide, CutsDraftsAtWhatIsForbidden) {
  const SmallVocabulary vocabulary;
  OutputGuide guide = Guide(RegexConstraint("[ab]*c"), vocabulary);
  std::vector<int32_t> draft = Ids("abxa");
  guide.Cut(draft);
  EXPECT_EQ(draft, Ids("ab"));
  draft = Ids("abca");
  guide.Cut(draft);
  EXPECT_EQ(draft, Ids("abc"));
  draft = {'a', vocabulary.end};
  guide.Cut(draft);
  EXPECT_THAT(draft, ElementsAre('a'));
  draft = Ids("x");
  guide.Cut(draft);
  EXPECT_THAT(draft, IsEmpty());
}

TEST(OutputGuide, ReadsAnswersInPartsAndSaysNothingMeanwhile) {
  const SmallVocabulary vocabulary;
  OutputGuide guide = Guide(RegexConstraint("a{25}bc"), vocabulary);
  const std::vector<int32_t> answer = Ids(std::string(25, 'a'));
  EXPECT_FALSE(guide.Read(answer, 10));
  EXPECT_FALSE(guide.Read(answer, 10));
  EXPECT_TRUE(guide.Read(answer, 10));
  EXPECT_EQ(guide.Forced(15), Ids("bc"));
}

TEST(OutputGuide, NothingIsGuessedOnceTheConstraintFails) {
  const SmallVocabulary vocabulary;
  OutputGuide guide = Guide(ChoicesConstraint({"north"}), vocabulary);
  EXPECT_FALSE(guide.Read(Ids("x"), 100));
  EXPECT_FALSE(guide.Read(Ids("xy"), 100));
}

}  // namespace
}  // namespace annulus
