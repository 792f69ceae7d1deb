#include "engine/request/evidence_account.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int32_t kBlock = 64;

// A frame of 10 tokens, a document of 1000, a frame of 6, and a document of 500.
const std::vector<PromptDocument> kDocuments = {{10, "a", 1000}, {1016, "b", 500}};

std::vector<SentenceEvidence> AddAll(EvidenceAccount& account,
                                     const std::vector<EvidenceShare>& shares,
                                     const std::string& text) {
  std::vector<SentenceEvidence> ended;
  EXPECT_TRUE(account.AddShares(shares));
  account.AddText(text, ended);
  return ended;
}

std::vector<SentenceEvidence> Finish(EvidenceAccount& account) {
  std::vector<SentenceEvidence> ended;
  account.Finish(ended);
  return ended;
}

TEST(EvidenceRanges, LeaveOutTheFirstFourTokensOfAPrompt) {
  EXPECT_THAT(EvidenceRanges(kDocuments), ElementsAre(RowRange{10, 1010}, RowRange{1016, 1516}));
  const std::vector<PromptDocument> first = {{0, "a", 100}};
  EXPECT_THAT(EvidenceRanges(first), ElementsAre(RowRange{4, 100}));
  const std::vector<PromptDocument> tiny = {{1, "a", 2}, {3, "b", 9}};
  EXPECT_THAT(EvidenceRanges(tiny), ElementsAre(RowRange{4, 12}));
}

TEST(EvidenceAccount, CountsTokensFromTheDocumentsBeginning) {
  EvidenceAccount account(kDocuments, kBlock);
  EXPECT_THAT(AddAll(account, {{128, 192, 0.5F}, {1152, 1216, 0.25F}}, "One sentence"), IsEmpty());
  const std::vector<SentenceEvidence> sentences = Finish(account);
  ASSERT_THAT(sentences, SizeIs(1));
  EXPECT_EQ(sentences[0].begin, 0);
  EXPECT_EQ(sentences[0].end, 12);
  ASSERT_THAT(sentences[0].passages, SizeIs(2));
  const Passage& best = sentences[0].passages[0];
  EXPECT_EQ(best.document, 0);
  EXPECT_EQ(best.begin, 118);
  EXPECT_EQ(best.end, 182);
  EXPECT_EQ(best.score, 0.5);
  const Passage& second = sentences[0].passages[1];
  EXPECT_EQ(second.document, 1);
  EXPECT_EQ(second.begin, 136);
  EXPECT_EQ(second.end, 200);
}

TEST(EvidenceAccount, JoinsNeighboursInOneDocument) {
  EvidenceAccount account(kDocuments, kBlock);
  AddAll(account, {{128, 192, 0.2F}, {192, 256, 0.3F}, {960, 1010, 0.2F}, {1016, 1024, 0.2F}},
         "text");
  const std::vector<SentenceEvidence> sentences = Finish(account);
  ASSERT_THAT(sentences, SizeIs(1));
  ASSERT_THAT(sentences[0].passages, SizeIs(3));
  EXPECT_EQ(sentences[0].passages[0].begin, 118);
  EXPECT_EQ(sentences[0].passages[0].end, 246);
  EXPECT_FLOAT_EQ(sentences[0].passages[0].score, 0.3F);
  EXPECT_EQ(sentences[0].passages[1].document, 0);
  EXPECT_EQ(sentences[0].passages[1].end, 1000);
  EXPECT_EQ(sentences[0].passages[2].document, 1);
  EXPECT_EQ(sentences[0].passages[2].begin, 0);
}

TEST(EvidenceAccount, LeavesOutWhatDoesNotStandOut) {
  EvidenceAccount low(kDocuments, kBlock);
  AddAll(low, {{128, 192, 0.03F}}, "below the least score");
  EXPECT_THAT(Finish(low), IsEmpty());

  EvidenceAccount second(kDocuments, kBlock);
  AddAll(second, {{128, 192, 0.4F}, {320, 384, 0.09F}}, "below a quarter of the best");
  const std::vector<SentenceEvidence> sentences = Finish(second);
  ASSERT_THAT(sentences, SizeIs(1));
  EXPECT_THAT(sentences[0].passages, SizeIs(1));

  // Attention that is spread evenly over three blocks of four rests on none of them.
  const std::vector<PromptDocument> small = {{64, "a", 256}};
  EvidenceAccount even(small, kBlock);
  AddAll(even, {{64, 128, 0.2F}, {128, 192, 0.25F}, {192, 256, 0.2F}}, "even");
  EXPECT_THAT(Finish(even), IsEmpty());
}

TEST(EvidenceAccount, TakesADocumentOfOneBlock) {
  const std::vector<PromptDocument> tiny = {{64, "a", 20}};
  EvidenceAccount account(tiny, kBlock);
  AddAll(account, {{64, 84, 0.3F}}, "all there is");
  EXPECT_THAT(Finish(account), SizeIs(1));
}

// A table copied without a full stop attends every second block of a million tokens.
TEST(EvidenceAccount, SortsTheBlocksOfALongSentenceOnce) {
  constexpr int32_t kBlocks = 16'384;
  const std::vector<PromptDocument> large = {{64, "a", kBlocks * kBlock}};
  EvidenceAccount account(large, kBlock);
  for (int32_t block = 1; block <= kBlocks; block += 2) {
    // One in the middle stands out among those that stand out.
    const float share = block == kBlocks / 2 + 1 ? 0.2F : 0.1F;
    AddAll(account, {{block * kBlock, (block + 1) * kBlock, share}}, "1");
  }
  const std::vector<SentenceEvidence> sentences = Finish(account);
  ASSERT_THAT(sentences, SizeIs(1));
  ASSERT_THAT(sentences[0].passages, SizeIs(4));
  EXPECT_EQ(sentences[0].passages[0].begin, kBlocks / 2 * kBlock);
  EXPECT_EQ(sentences[0].passages[1].begin, 0);
}

TEST(EvidenceAccount, RefusesSharesOfNoPartOfTheDocuments) {
  for (const EvidenceShare& share : std::vector<EvidenceShare>{
           {0, 4, 0.5F}, {4, 64, 0.5F}, {128, 190, 0.5F}, {1010, 1016, 0.5F}, {1984, 2048, 0.5F}}) {
    EvidenceAccount account(kDocuments, kBlock);
    EXPECT_FALSE(account.AddShares(std::vector<EvidenceShare>{{128, 192, 0.5F}, share}));
    EXPECT_THAT(AddAll(account, {}, "text"), IsEmpty());
    EXPECT_THAT(Finish(account), IsEmpty());
  }
}

TEST(EvidenceAccount, EndsSentencesWhereTheirTextEnds) {
  EvidenceAccount account(kDocuments, kBlock);
  EXPECT_THAT(AddAll(account, {{128, 192, 0.5F}}, "The first one."), IsEmpty());
  // The token's text ends in the second sentence, so what it attended counts for that.
  std::vector<SentenceEvidence> ended = AddAll(account, {{320, 384, 0.5F}}, " And");
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_EQ(ended[0].begin, 0);
  EXPECT_EQ(ended[0].end, 15);
  EXPECT_EQ(ended[0].passages[0].begin, 118);
  ended = AddAll(account, {}, " more text!\nNo");
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_EQ(ended[0].begin, 15);
  EXPECT_EQ(ended[0].end, 30);
  EXPECT_EQ(ended[0].passages[0].begin, 310);
  EXPECT_THAT(Finish(account), IsEmpty());  // the last one has no evidence
}

TEST(EvidenceAccount, DoesNotEndASentenceAtANumberOrAfterAWord) {
  EvidenceAccount account(kDocuments, kBlock);
  EXPECT_THAT(AddAll(account, {{128, 192, 0.5F}}, "1. It costs 4.50 euros, says Mr"), IsEmpty());
  EXPECT_THAT(Finish(account), SizeIs(1));
}

TEST(EvidenceAccount, EndsSentencesOfChineseText) {
  EvidenceAccount account(kDocuments, kBlock);
  EXPECT_THAT(AddAll(account, {{128, 192, 0.5F}}, "\u4e94"), IsEmpty());
  EXPECT_THAT(AddAll(account, {}, "\u3002"), SizeIs(1));
}

// A call or reasoning stands between.
TEST(EvidenceAccount, EndsASentenceThatIsInterrupted) {
  EvidenceAccount account(kDocuments, kBlock);
  AddAll(account, {{128, 192, 0.5F}}, "I look");
  std::vector<SentenceEvidence> ended = Finish(account);
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_EQ(ended[0].end, 6);
  EXPECT_THAT(Finish(account), IsEmpty());  // nothing has come since
  AddAll(account, {{320, 384, 0.5F}}, "Here");
  ended = Finish(account);
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_EQ(ended[0].begin, 6);
  EXPECT_EQ(ended[0].end, 10);
  EXPECT_THAT(ended[0].passages, SizeIs(1));
}

TEST(EvidenceAccount, KeepsAttentionUntilTheTokensTextComes) {
  EvidenceAccount account(kDocuments, kBlock);
  AddAll(account, {{128, 192, 0.5F}}, "");  // a part of a character
  EXPECT_THAT(AddAll(account, {}, "x"), IsEmpty());
  EXPECT_THAT(Finish(account), SizeIs(1));
}

TEST(EvidenceAccount, DropsWhatReasoningAttended) {
  EvidenceAccount account(kDocuments, kBlock);
  EXPECT_TRUE(account.AddShares(std::vector<EvidenceShare>{{128, 192, 0.5F}}));
  account.Drop();
  AddAll(account, {}, "An answer");
  EXPECT_THAT(Finish(account), IsEmpty());
}

TEST(EvidenceAccount, HasAtMostFourPassagesForASentenceAndThirtyTwoForAnAnswer) {
  EvidenceAccount account(kDocuments, kBlock);
  size_t passages = 0;
  for (int sentence = 0; sentence < 12; ++sentence) {
    std::vector<EvidenceShare> shares;
    for (int32_t block = 2; block < 14; block += 2) {
      shares.push_back({block * 64, (block + 1) * 64, 0.1F});
    }
    for (const SentenceEvidence& ended : AddAll(account, shares, "A sentence")) {
      passages += ended.passages.size();
    }
    for (const SentenceEvidence& ended : AddAll(account, {}, " of it. ")) {
      EXPECT_THAT(ended.passages, SizeIs(4));
      passages += ended.passages.size();
    }
  }
  EXPECT_EQ(passages, 32);
}

}  // namespace
}  // namespace annulus
