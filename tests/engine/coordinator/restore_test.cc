// Pages that come back from a tier: who waits for them, and their checks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "engine/coordinator/admission/restore_waits.h"
#include "engine/coordinator/restore_checks.h"
#include "engine/scheduler/repair.h"
#include "tests/engine/coordinator/tiered_parts.h"

namespace annulus::testing {
namespace {

class RestoreWaitsTest : public ::testing::Test, protected TieredParts {};

TEST_F(RestoreWaitsTest, WaitsForWhatTheTierHasAndReusesIt) {
  Save(64);
  Request& request = Add(Spec(80));
  EXPECT_TRUE(Waits(request));
  EXPECT_EQ(FreePages(), 36) << "four are being read";
  EXPECT_TRUE(tier().will_free_pages());
  ASSERT_TRUE(Eventually([&] {
    tier().Turn();
    return !Waits(request);
  }));
  EXPECT_FALSE(tier().will_free_pages());
  EXPECT_EQ(PagesWithoutUse(), 40) << "what came is cached, and nobody's";
  ASSERT_TRUE(starter_.TryStart(request, nullptr).ok());
  EXPECT_EQ(request.cached_tokens(), 64);
  EXPECT_EQ(tier().verdicts().Restored(request.id(), 64).host, 64);
}

TEST_F(RestoreWaitsTest, NobodyWaitsForWhatMemoryHasOrNobodySaved) {
  Save(64);
  EXPECT_FALSE(Waits(Add(Spec(80, 4, 'y'))));
  RequestSpec ignores = Spec(80);
  ignores.ignore_cache = true;
  EXPECT_FALSE(Waits(Add(std::move(ignores))));
  RequestSpec others = Spec(80);
  others.tenant = *TenantId::FromName("others");
  EXPECT_FALSE(Waits(Add(std::move(others))));
  RunAlone(Spec(64, 1));
  EXPECT_FALSE(Waits(Add(Spec(80)))) << "it is in memory again";
}

TEST_F(RestoreWaitsTest, WithoutRoomNothingIsRead) {
  Save(64);
  const Request& running = Start(Spec(600, 4, 'y'));  // 38 of 40 pages
  Request& request = Add(Spec(80));
  EXPECT_FALSE(Waits(request));
  EXPECT_FALSE(tier().will_free_pages());
  Leave(running.id());
  EXPECT_TRUE(Waits(request)) << "it is asked again";
}

TEST_F(RestoreWaitsTest, TheTenantsLimitCountsWhatComesBack) {
  Save(64);
  RequestSpec bounded = Spec(80);
  bounded.tenant_room.kv_bytes = 5 * 4096;  // six are needed
  EXPECT_FALSE(Waits(Add(std::move(bounded))));
  RequestSpec wide = Spec(80);
  wide.tenant_room.kv_bytes = 6 * 4096;
  EXPECT_TRUE(Waits(Add(std::move(wide))));
}

TEST_F(RestoreWaitsTest, ARequestThatEndsLeavesNoRead) {
  Save(64);
  const RequestId id = Add(Spec(80)).id();
  EXPECT_TRUE(Waits(ledger_.request(id)));
  Leave(id);
  EXPECT_FALSE(tier().will_free_pages());
  EXPECT_EQ(PagesWithoutUse(), 40);
}

class RestoreChecksTest : public ::testing::Test, protected TieredParts {
 protected:
  explicit RestoreChecksTest(const CoordinatorOptions& options = Options())
      : TieredParts(KvVerify::kSample, options) {}

  // Has the tier read the first 64 tokens for a request, and returns it when they have come.
  Request& Restored() {
    Save(64);
    RequestSpec spec = Spec(80);
    spec.priority = 2;
    Request& request = Add(std::move(spec));
    EXPECT_TRUE(Waits(request));
    EXPECT_TRUE(Eventually([&] {
      tier().Turn();
      return tier().restorer().NextCheck().has_value();
    }));
    return request;
  }
  // Runs the check that has begun.
  void Check() {
    for (int step = 0; step < 10 && checks_.count() > 0; ++step) Step();
    EXPECT_EQ(checks_.count(), 0);
  }
};

TEST_F(RestoreChecksTest, WhatIsComputedAgainWithTheSameBitsIsUsed) {
  Request& request = Restored();
  EXPECT_TRUE(Waits(request)) << "it is not known to be right";
  checks_.Begin();
  ASSERT_EQ(checks_.count(), 1);
  ASSERT_EQ(ledger_.state().running.size(), 1u);
  const Sequence& check = *ledger_.state().running[0];
  EXPECT_TRUE(check.is_check());
  EXPECT_TRUE(checks_.Has(check.id));
  EXPECT_FALSE(checks_.Has(request.id()));
  EXPECT_EQ(ledger_.request(check.id).spec().priority, 2) << "as the request that waits";
  EXPECT_EQ(check.prompt_length - check.computed, kPage) << "one page";
  Check();
  EXPECT_FALSE(Waits(request));
  ASSERT_TRUE(starter_.TryStart(request, nullptr).ok());
  EXPECT_EQ(request.cached_tokens(), 64);
  EXPECT_TRUE(tier().verdicts().Checked(request.id()).has_value());
  EXPECT_EQ(level_metrics_.tiers.host.checks.value(), 1);
  EXPECT_EQ(store_->stats().mismatches, 0);
}

TEST_F(RestoreChecksTest, OtherBitsDropAllThatWasRead) {
  Request& request = Restored();
  FillFree(7);  // what is computed goes there
  checks_.Begin();
  Check();
  EXPECT_EQ(store_->stats().mismatches, 1);
  EXPECT_EQ(PagesWithoutUse(), 40);
  EXPECT_FALSE(Waits(request));
  ASSERT_TRUE(starter_.TryStart(request, nullptr).ok());
  EXPECT_EQ(request.cached_tokens(), 0);
  const auto miss = tier().verdicts().WhyNoMore(request.id());
  ASSERT_TRUE(miss.has_value());
  EXPECT_EQ(miss->reason, CacheMiss::Reason::kDiskRefused);
  EXPECT_FALSE(Waits(Add(Spec(80)))) << "the level has them no more";
}

// A cancel, say, or a failed step.
TEST_F(RestoreChecksTest, WhatCouldNotBeComputedIsNotUsedAndStays) {
  Request& request = Restored();
  checks_.Begin();
  ASSERT_EQ(checks_.count(), 1);
  const std::unique_ptr<Request> check = ledger_.Take(ledger_.state().running[0]->id);
  checks_.End(*check, /*computed=*/false);
  EXPECT_EQ(checks_.count(), 0);
  EXPECT_EQ(PagesWithoutUse(), 40);
  EXPECT_EQ(store_->stats().mismatches, 0);
  ASSERT_TRUE(starter_.TryStart(request, nullptr).ok());
  EXPECT_EQ(request.cached_tokens(), 0);
  EXPECT_TRUE(Waits(Add(Spec(80)))) << "the level has them still";
}

// Its pages are those of the restore, which nobody may write but the tier.
TEST_F(RestoreChecksTest, OneThatRunsWhenRanksLoseTheirPagesEnds) {
  Restored();
  checks_.Begin();
  ASSERT_EQ(checks_.count(), 1);
  const Sequence& check = *ledger_.state().running[0];
  ASSERT_GT(check.computed, 0) << "it reads what came back";
  const std::vector<int32_t> ranks = {0, 1};
  ledger_.ForgetPages(ranks);
  LosePages(ranks, options_.limits, ledger_.state(), ledger_.book());
  EXPECT_FALSE(check.lost.has_value());
  checks_.End(*ledger_.Take(check.id), /*computed=*/false);
  EXPECT_EQ(PagesWithoutUse(), 40);
}

TEST_F(RestoreChecksTest, WaitsForPagesThatAStepMayUse) {
  Restored();
  const RequestId left = Start(Spec(20, 4, 'y')).id();
  ledger_.set_ranks_busy(true);
  Leave(left);
  checks_.Begin();
  EXPECT_EQ(checks_.count(), 0);
  ledger_.set_ranks_busy(false);
  ledger_.ReleaseLeft();
  checks_.Begin();
  EXPECT_EQ(checks_.count(), 1);
  Check();
}

class OneSlotTest : public RestoreChecksTest {
 protected:
  static CoordinatorOptions OneSlot() {
    CoordinatorOptions options = Options();
    options.engine.max_running = 1;
    return options;
  }
  OneSlotTest() : RestoreChecksTest(OneSlot()) {}
};

TEST_F(OneSlotTest, ACheckNeedsASlot) {
  Restored();
  const RequestId running = Start(Spec(20, 4, 'y')).id();
  checks_.Begin();
  EXPECT_EQ(checks_.count(), 0);
  ledger_.state().running[0]->paused = true;
  checks_.Begin();
  EXPECT_EQ(checks_.count(), 1) << "parked streams have none";
  Check();
  Leave(running);
}

// It is given up after a second, and its request goes on without.
TEST_F(OneSlotTest, ACheckThatFindsNoSlotEnds) {
  Request& request = Restored();
  Start(Spec(20, 4, 'y'));
  EXPECT_EQ(tier().NextDue(), clock_.Now() + std::chrono::seconds(1));
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_TRUE(tier().Turn());
  EXPECT_FALSE(tier().restorer().NextCheck().has_value());
  EXPECT_FALSE(Waits(request));
  EXPECT_EQ(tier().verdicts().WhyNoMore(request.id())->reason, CacheMiss::Reason::kDiskSlower);
}

}  // namespace
}  // namespace annulus::testing
