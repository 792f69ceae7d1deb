// What the ledger keeps consistent: requests that wait, run and leave, and their pages.

#include "engine/coordinator/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/coordinator/page_keeper.h"
#include "engine/pages/request_pages.h"
#include "tests/engine/coordinator/engine_parts.h"

namespace annulus::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LedgerTest : public ::testing::Test, protected EngineParts {};

TEST_F(LedgerTest, ARequestWaitsRunsAndLeaves) {
  const Request& request = Add(Spec(40));
  const Request& other = Add(Spec(20));
  EXPECT_THAT(ledger_.waiting(), ElementsAre(request.id(), other.id()));
  EXPECT_EQ(FreePages(), 40);
  ASSERT_TRUE(starter_.TryStart(ledger_.request(other.id()), nullptr).ok());
  EXPECT_THAT(ledger_.waiting(), ElementsAre(request.id()));
  ASSERT_EQ(ledger_.state().running.size(), 1u);
  EXPECT_EQ(ledger_.state().running[0]->owner, OwnerOfRequest(other.id()));
  EXPECT_EQ(FreePages(), 38);
  const RequestId ran = other.id();
  Leave(ran);
  EXPECT_EQ(FreePages(), 40);
  EXPECT_THAT(ledger_.state().running, IsEmpty());
  EXPECT_THAT(ledger_.state().ended, ElementsAre(ran)) << "the ranks must hear of it";
  Leave(request.id());
  EXPECT_THAT(ledger_.waiting(), IsEmpty());
  EXPECT_THAT(ledger_.state().ended, ElementsAre(ran)) << "the ranks never knew the other";
  EXPECT_EQ(ledger_.Take(ran), nullptr);
}

// The step may still write to them.
TEST_F(LedgerTest, PagesOfThoseThatLeaveStayUntilTheStepHasEnded) {
  const RequestId gone = Start(Spec(40)).id();
  const RequestId stays = Start(Spec(40, 4, 'y')).id();
  const int64_t free = FreePages();
  ledger_.set_ranks_busy(true);
  Leave(gone);
  EXPECT_EQ(FreePages(), free);
  EXPECT_TRUE(ledger_.any_left());
  EXPECT_THAT(ledger_.left(), ElementsAre(gone));
  ledger_.set_ranks_busy(false);
  EXPECT_EQ(FreePages(), free) << "nobody has said that they may go";
  EXPECT_TRUE(ledger_.ReleaseLeft());
  EXPECT_EQ(FreePages(), free + 3);
  EXPECT_FALSE(ledger_.ReleaseLeft());
  Leave(stays);
  EXPECT_EQ(FreePages(), 40) << "no step runs now";
}

TEST_F(LedgerTest, PagesOfALostRankAreNobodysAnyMore) {
  const RequestId id = Start(Spec(40)).id();
  const std::shared_ptr<StepPlan> plan = BeginStep();
  ranks_.FailNext(absl::UnavailableError("rank 1 is silent"), RanksState::kLost);
  EXPECT_FALSE(ranks_.Run(plan).ok());
  Leave(id);
  EXPECT_EQ(FreePages(), 37) << "it may still write to them";
}

TEST_F(LedgerTest, APreemptedRequestWaitsWithItsAnswer) {
  Request& request = Start(Spec(20, 40));
  for (int step = 0; step < 5; ++step) Step();
  const int64_t answered = request.completion_tokens();
  ASSERT_GT(answered, 0);
  ledger_.WaitAgain(request);
  EXPECT_THAT(ledger_.waiting(), ElementsAre(request.id()));
  ASSERT_NE(request.sequence(), nullptr) << "what it computed can still be kept";
  EXPECT_EQ(request.sequence()->prompt_length, 20 + answered);
  EXPECT_LT(FreePages(), 40);
  ledger_.Suspend(request);
  EXPECT_EQ(request.sequence(), nullptr);
  EXPECT_EQ(request.tokens_to_read(), 20 + answered);
  EXPECT_EQ(PagesWithoutUse(), 40);
  EXPECT_THAT(ledger_.state().ended, ElementsAre(request.id()));
}

TEST_F(LedgerTest, CountsWhoRunsOnEachRank) {
  const Request& wide = Start(Spec(300));  // on both ranks
  ASSERT_EQ(wide.sequence()->ring.size(), 2u);
  EXPECT_THAT(ledger_.SequencesByRank(), ElementsAre(1, 1));
  const int home = wide.sequence()->home;
  std::vector<int> homes(2, 0);
  homes[home] = 1;
  EXPECT_EQ(ledger_.HomesByRank(), homes);
  ledger_.state().running[0]->paused = true;
  EXPECT_THAT(ledger_.HomesByRank(), ElementsAre(0, 0)) << "it computes nothing meanwhile";
  EXPECT_THAT(ledger_.SequencesByRank(), ElementsAre(1, 1)) << "its pages are there";
}

TEST_F(LedgerTest, WithoutATierNothingIsHeldToBeWritten) {
  EXPECT_EQ(ledger_.tier(), nullptr);
  EXPECT_FALSE(ledger_.LetGoOfWrites());
  EXPECT_FALSE(ledger_.tier_will_free_pages());
}

// Pins the pages of one prefix.
class OnePin : public PageKeeper {
 public:
  OnePin(Ledger& ledger, const PrefixIndex::Hit& hit)
      : ledger_(ledger), rank_(hit.groups[0][0].id.rank), end_(hit.end) {
    owner_ = ledger.book().OpenPin(TenantId());
    HoldPages(hit, *owner_, ledger.book());
    ledger.prefixes().index().Pin(end_);
    ledger.AddKeeper(*this);
  }
  void Tend() override {}
  SteadyTime NextDue() const override { return SteadyTime::max(); }
  void ForgetRanks(std::span<const int32_t> ranks) override {
    if (std::find(ranks.begin(), ranks.end(), rank_) != ranks.end()) Clear();
  }
  void Clear() override {
    if (!pins()) return;
    ledger_.prefixes().index().Unpin(end_);
    ledger_.book().Release(*owner_);
    owner_.reset();
  }
  bool pins() const { return owner_.has_value(); }

 private:
  Ledger& ledger_;
  const int32_t rank_;
  const ContentHash end_;
  std::optional<PageOwner> owner_;
};

TEST_F(LedgerTest, ForgettingPagesEndsPinsAndPrefixes) {
  RunAlone(Spec(64));
  EXPECT_EQ(FreePages(), 36);
  const auto found = ledger_.prefixes().Find(Spec(65), nullptr);
  ASSERT_EQ(found.size(), 1u);
  OnePin keeper(ledger_, found[0].hit);
  EXPECT_FALSE(ledger_.prefixes().index().Evict([] { return false; }));
  EXPECT_EQ(FreePages(), 36);
  ledger_.ForgetPages();
  EXPECT_FALSE(keeper.pins());
  EXPECT_EQ(FreePages(), 40);
}

// A pin that has lost a page is no pin any more.
TEST_F(LedgerTest, ForgettingThePagesOfARankEndsItsPins) {
  RunAlone(Spec(32));
  const auto found = ledger_.prefixes().Find(Spec(33), nullptr);
  ASSERT_EQ(found.size(), 1u);
  const int32_t rank = found[0].hit.groups[0][0].id.rank;
  OnePin keeper(ledger_, found[0].hit);
  ledger_.ForgetPages(std::vector<int32_t>{1 - rank});
  EXPECT_TRUE(keeper.pins());
  EXPECT_EQ(FreePages(), 38);
  ledger_.ForgetPages(std::vector<int32_t>{rank});
  EXPECT_FALSE(keeper.pins());
  EXPECT_EQ(FreePages(), 40);
}

}  // namespace
}  // namespace annulus::testing
