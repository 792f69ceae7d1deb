// The parts of PageTier one by one, over a level in the host's memory: what it has of a prompt,
// what is written to it, and who waits for it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "engine/pages/page_tier.h"
#include "tests/engine/coordinator/tiered_parts.h"

namespace annulus::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Verdict = RestoreVerdicts::Verdict;

class TierLookupTest : public ::testing::Test, protected TieredParts {};

TEST_F(TierLookupTest, FindsTheLongestBeginningWithoutTheLastToken) {
  Save(64);
  const TierLookup& lookup = tier().lookup();
  EXPECT_EQ(lookup.Find(Spec(100), nullptr, 0).tokens, 64);
  EXPECT_EQ(lookup.Find(Spec(65), nullptr, 0).tokens, 64);
  EXPECT_EQ(lookup.Find(Spec(64), nullptr, 0).tokens, 48) << "its last token must be computed";
  RequestSpec ahead = Spec(64);
  ahead.prefill_only = true;
  EXPECT_EQ(lookup.Find(ahead, nullptr, 0).tokens, 64);
  RequestSpec differs = Spec(100);
  differs.prompt[40] = 'y';
  EXPECT_EQ(lookup.Find(differs, nullptr, 0).tokens, 32);
  EXPECT_EQ(lookup.Find(Spec(100), nullptr, /*rope=*/8).tokens, 0);
  const SavedBeginning beginning = lookup.Find(Spec(100), nullptr, 0);
  EXPECT_EQ(lookup.Where(beginning).host, 64);
  EXPECT_EQ(lookup.Where(beginning).disk, 0);
  EXPECT_EQ(lookup.CountPages(beginning, 16)[0], 3);
  EXPECT_EQ(lookup.MostBefore(beginning), 48);
}

TEST_F(TierLookupTest, ALevelThatIsOffHasNothing) {
  Save(64);
  store_->TurnOff(absl::UnavailableError("a test turned it off"));
  EXPECT_EQ(tier().lookup().Find(Spec(100), nullptr, 0).tokens, 0);
}

class PageWritesTest : public ::testing::Test, protected TieredParts {
 protected:
  double Waiting() { return level_metrics_.tiers.host.waiting.value(); }
};

TEST_F(PageWritesTest, EveryWholePageIsWrittenOnce) {
  RunAlone(Spec(70, 1));
  ASSERT_TRUE(WaitForPages(4));
  EXPECT_EQ(Waiting(), 0);
  const double written = level_metrics_.tiers.host.written_bytes.value();
  EXPECT_EQ(written, 4.0 * SimulatedRanks::kPageBytes);
  RunAlone(Spec(80, 1));
  ASSERT_TRUE(WaitForPages(5));
  EXPECT_EQ(level_metrics_.tiers.host.written_bytes.value(), 5.0 * SimulatedRanks::kPageBytes);
}

// A page that waits is written only if it is still cached then.
TEST_F(PageWritesTest, WhatHasLeftMemoryIsNotWritten) {
  RunAlone(Spec(64, 1));
  EXPECT_EQ(Waiting(), 4);
  ledger_.prefixes().index().Evict([] { return false; });
  EXPECT_EQ(FreePages(), 40) << "nobody holds what only waits";
  tier().Turn();
  EXPECT_EQ(Waiting(), 0);
  EXPECT_EQ(store_->stats().pages, 0);
}

// The levels have the pages before the tier hears that the writes have ended.
TEST_F(PageWritesTest, WhatWasLostWhileItWasWrittenIsGoneAtOnce) {
  RunAlone(Spec(64, 1));
  tier().Turn();
  ASSERT_TRUE(Eventually([&] { return store_->stats().pages == 4; }));
  EXPECT_EQ(tier().lookup().Find(Spec(100), nullptr, 0).tokens, 64);
  const std::vector<int32_t> lost = {0, 1};
  ledger_.ForgetPages(lost);
  EXPECT_EQ(tier().lookup().Find(Spec(100), nullptr, 0).tokens, 0);
  EXPECT_EQ(store_->stats().pages, 0);
  // It may be written again, and is then found.
  RunAlone(Spec(64, 1));
  ASSERT_TRUE(WaitForPages(4));
  EXPECT_EQ(tier().lookup().Find(Spec(100), nullptr, 0).tokens, 64);
}

class SlowLevelTest : public ::testing::Test, protected TieredParts {
 protected:
  // A page a second.
  SlowLevelTest() : TieredParts(KvVerify::kOff, Options(), SimulatedRanks::kPageBytes) {}
};

TEST_F(SlowLevelTest, PagesThatWaitToBeWrittenAreLetGoIfNeeded) {
  EXPECT_FALSE(tier().LetGoOfWrites()) << "it holds none";
  RunAlone(Spec(128, 1));
  tier().Turn();
  EXPECT_LT(PagesWithoutUse(), 40) << "the mover reads them";
  EXPECT_TRUE(tier().LetGoOfWrites());
  EXPECT_EQ(PagesWithoutUse(), 40);
  EXPECT_FALSE(tier().LetGoOfWrites());
  // They are written later, as they are still cached.
  EXPECT_TRUE(clock_.AdvanceUntil([&] {
    tier().Turn();
    return store_->stats().pages == 8;
  }));
}

class RestoreVerdictsTest : public ::testing::Test, protected TieredParts {
 protected:
  SavedBeginning Saved(int32_t fill = 'x') {
    return tier().lookup().Find(Spec(100, 4, fill), nullptr, 0);
  }
  Verdict Judge(RequestId id, double computed, int32_t fill = 'x') {
    return tier().verdicts().Judge(id, {}, Saved(fill), {}, computed);
  }
  // Has the tier read what it has for a new request.
  RequestId Restore(int32_t fill) {
    const Request& request = Add(Spec(100, 4, fill));
    EXPECT_TRUE(Waits(request));
    return request.id();
  }
};

TEST_F(RestoreVerdictsTest, AVerdictStandsUntilItIsForgotten) {
  Save(64);
  RestoreVerdicts& verdicts = tier().verdicts();
  EXPECT_EQ(verdicts.Of(7), Verdict::kUnknown);
  EXPECT_EQ(Judge(7, 10), Verdict::kReady);
  EXPECT_EQ(verdicts.Of(7), Verdict::kReady);
  verdicts.NoRoom(7);
  EXPECT_EQ(verdicts.Of(7), Verdict::kUnknown) << "it is judged when room may have come";
  EXPECT_EQ(Judge(8, 10, 'y'), Verdict::kSettled) << "the levels have nothing of it";
  EXPECT_EQ(verdicts.Of(8), Verdict::kSettled);
  EXPECT_EQ(verdicts.WhyNoMore(8), std::nullopt);
  EXPECT_FALSE(verdicts.DueOf(9).has_value());
}

// As long as computing takes, but a second at least.
TEST_F(RestoreVerdictsTest, AWaitEndsWhenComputingWouldHave) {
  Save(64);
  RestoreVerdicts& verdicts = tier().verdicts();
  for (const double computed : {10.0, 0.001}) {
    const auto longest = computed > 1 ? milliseconds(10'000) : milliseconds(1000);
    EXPECT_EQ(Judge(7, computed), Verdict::kReady);
    EXPECT_EQ(verdicts.DueOf(7), clock_.Now() + longest);
    // Whoever asks keeps the wait going.
    for (auto left = longest; left > milliseconds(1000); left -= milliseconds(1000)) {
      clock_.Advance(milliseconds(1000));
      EXPECT_EQ(verdicts.Of(7), Verdict::kReady);
    }
    clock_.Advance(milliseconds(1000));
    EXPECT_EQ(verdicts.Of(7), Verdict::kSettled);
    EXPECT_EQ(verdicts.WhyNoMore(7)->reason, CacheMiss::Reason::kDiskSlower);
    verdicts.Forget(7);
  }
}

// It waited for something else meanwhile, say for a slot, and then begins its wait.
TEST_F(RestoreVerdictsTest, TimeInWhichNobodyAskedDoesNotCount) {
  Save(64);
  EXPECT_EQ(Judge(7, 5), Verdict::kReady);
  const SteadyTime due = *tier().verdicts().DueOf(7);
  clock_.Advance(seconds(100));
  EXPECT_EQ(tier().verdicts().Of(7), Verdict::kReady);
  EXPECT_EQ(tier().verdicts().DueOf(7), due + seconds(98));
}

TEST_F(RestoreVerdictsTest, OneThatBeginsAlikeWaitsForTheSameRead) {
  Save(64);
  const RequestId first = Restore('x');
  EXPECT_EQ(tier().verdicts().Of(first), Verdict::kComing);
  EXPECT_EQ(Judge(7, 10), Verdict::kComing);
  ASSERT_TRUE(Eventually([&] {
    tier().Turn();
    return !tier().will_free_pages();
  }));
  EXPECT_EQ(tier().verdicts().Of(first), Verdict::kSettled);
  EXPECT_EQ(tier().verdicts().Of(7), Verdict::kUnknown) << "the levels may have more for it";
}

TEST_F(RestoreVerdictsTest, AThirdRestoreOfTheSameSizeMustWait) {
  for (const int32_t fill : {'x', 'y', 'z'}) Save(64, fill);
  Restore('x');
  Restore('y');
  // Nothing has come yet: the tier was not given its turn.
  EXPECT_EQ(Judge(7, 10, 'z'), Verdict::kWanting);
  ASSERT_TRUE(Eventually([&] {
    tier().Turn();
    return !tier().will_free_pages();
  }));
  EXPECT_TRUE(tier().verdicts().Of(7) == Verdict::kReady ||
              tier().verdicts().Of(7) == Verdict::kUnknown);
}

class ComparingTierTest : public ::testing::Test, protected TieredParts {
 protected:
  ComparingTierTest() : TieredParts(KvVerify::kAll) {}
};

// Under KvVerify::kAll nothing is read back; what is computed again is compared with it.
TEST_F(ComparingTierTest, NobodyWaitsAndCopiesAreCompared) {
  Save(64);
  EXPECT_EQ(tier().verdicts().Of(7), Verdict::kSettled);
  RunAlone(Spec(64, 1));
  EXPECT_TRUE(Eventually([&] {
    tier().Turn();
    return level_metrics_.tiers.host.checks.value() == 4;
  }));
  EXPECT_EQ(store_->stats().mismatches, 0);
  ledger_.prefixes().index().Evict([] { return false; });
  FillFree(9);
  RunAlone(Spec(64, 1));
  EXPECT_TRUE(Eventually([&] {
    tier().Turn();
    return level_metrics_.tiers.host.checks.value() == 8;
  }));
  EXPECT_EQ(store_->stats().mismatches, 4);
}

}  // namespace
}  // namespace annulus::testing
