// What a request would take, asked of the coordinator over simulated ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/coordinator/coordinator.h"
#include "engine/coordinator/planning/plan_density.h"
#include "engine/coordinator/planning/plan_queue.h"
#include "engine/text/tokenizer.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/eventually.h"
#include "tests/support/manual_clock.h"
#include "tests/support/plain_options.h"
#include "tests/support/simulated_ranks.h"

namespace annulus::testing {
namespace {

constexpr int kPlanRanks = 2;
constexpr int32_t kPlanPages = 20;  // of each rank
constexpr int32_t kPlanPageTokens = 16;
constexpr int64_t kPageBytes = 4096;  // of SimulatedRanks

class PlanTest : public ::testing::Test {
 protected:
  PlanTest() {
    CoordinatorOptions options;
    options.engine = PlainOptions();
    options.limits.ranks = kPlanRanks;
    options.limits.shards = ShardsFor(kPlanRanks);
    options.limits.page_tokens = kPlanPageTokens;
    options.limits.prefill_rows_per_rank = 64;
    options.limits.tokens_per_rank = 64;
    options.limits.group_windows = {0};
    options.modes.mode = RingMode::kPassKv;
    options.identity = "simulated";
    coordinator_ = std::make_unique<Coordinator>(options, ranks_, metrics_, Clock::Real(),
                                                 std::vector<int32_t>{256}, 257);
  }

  static RequestSpec Spec(int tokens, int max_tokens, int32_t first = 'a',
                          const TenantId& tenant = {}) {
    RequestSpec spec;
    spec.tenant = tenant;
    spec.prompt.assign(static_cast<size_t>(tokens), 'x');
    spec.prompt[0] = first;
    spec.sampling.seed = 1;
    spec.sampling.max_tokens = max_tokens;
    return spec;
  }
  std::shared_ptr<CollectingSink> Ask(
      RequestSpec spec,
      const std::shared_ptr<CollectingSink>& sink = std::make_shared<CollectingSink>()) {
    EXPECT_TRUE(coordinator_
                    ->Submit(std::make_unique<Request>(next_id_++, std::move(spec), sink,
                                                       *tokenizer_, Clock::Real()))
                    .ok());
    return sink;
  }
  RequestPlan Plan(RequestSpec spec) {
    auto plan = coordinator_->Plan(std::move(spec), CancelFlag::Never());
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.value_or(RequestPlan());
  }

  SimulatedRanks ranks_{{.ranks = kPlanRanks, .pages = kPlanPages, .page_tokens = kPlanPageTokens}};
  EngineMetrics metrics_{kPlanRanks, ModelInfo()};
  std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  RequestId next_id_ = 1;
  std::unique_ptr<Coordinator> coordinator_;
};

TEST_F(PlanTest, TellsWhatTheRequestThenReports) {
  const RequestPlan before = Plan(Spec(150, 10));
  EXPECT_EQ(before.room, RoomFor::kNow);
  EXPECT_EQ(before.cached_tokens, 0);
  EXPECT_EQ(before.policy, "dense");
  EXPECT_FALSE(before.seconds.has_value());  // nothing was measured
  EXPECT_TRUE(ranks_.plans().empty());       // and nothing was done
  int64_t bytes = 0;
  for (const RankPlan& rank : before.ranks) {
    bytes += rank.kv_bytes;
    EXPECT_EQ(rank.cached_bytes, 0);
    EXPECT_EQ(rank.kv_bytes_total, kPlanPages * kPageBytes);
  }
  EXPECT_EQ(bytes, 10 * kPageBytes);  // of 160 tokens
  ASSERT_TRUE(Ask(Spec(150, 10))->Wait()->status.ok());
  // The same prompt with another end.
  RequestSpec again = Spec(150, 10);
  again.prompt.back() = 'y';
  const RequestPlan plan = Plan(again);
  const auto done = Ask(again)->Wait();
  ASSERT_TRUE(done.has_value() && done->status.ok());
  EXPECT_EQ(plan.cached_tokens, 144);
  EXPECT_EQ(plan.cached_tokens, done->usage.cached_tokens);
  EXPECT_EQ(std::ssize(plan.ranks), done->attention.ring_degree);
  int64_t cached = 0;
  for (const RankPlan& rank : plan.ranks) cached += rank.cached_bytes;
  EXPECT_EQ(cached, 9 * kPageBytes);
  ASSERT_TRUE(plan.seconds.has_value());
  EXPECT_GE(plan.seconds->first_token, plan.seconds->prefill);
}

TEST_F(PlanTest, OthersOfOneTenantsPromptsAreNotSeen) {
  const TenantId acme = TenantId::FromName("acme").value();
  ASSERT_TRUE(Ask(Spec(150, 10, 'a', acme))->Wait()->status.ok());
  EXPECT_EQ(Plan(Spec(150, 10, 'a', acme)).cached_tokens, 144);
  EXPECT_EQ(Plan(Spec(150, 10, 'a', TenantId::FromName("other").value())).cached_tokens, 0);
  RequestSpec past = Spec(150, 10, 'a', acme);
  past.ignore_cache = true;
  EXPECT_EQ(Plan(past).cached_tokens, 0);
}

TEST_F(PlanTest, WhatIsOnlyCachedMakesRoomAndWhatRunsDoesNot) {
  ASSERT_TRUE(Ask(Spec(400, 8))->Wait()->status.ok());
  EXPECT_EQ(Plan(Spec(600, 8, 'b')).room, RoomFor::kNow);
  // Its reader is behind, so it keeps its 26 of 40 pages and stands still.
  const auto running = std::make_shared<CollectingSink>();
  running->set_full_after(1);
  Ask(Spec(400, 8, 'c'), running);
  ASSERT_TRUE(running->WaitTokens(1));
  const RequestPlan later = Plan(Spec(300, 8, 'd'));
  EXPECT_EQ(later.room, RoomFor::kLater);
  EXPECT_FALSE(later.seconds.has_value());
  EXPECT_FALSE(later.ranks.empty());
  const auto waits = Ask(Spec(300, 8, 'd'));
  EXPECT_EQ(Plan(Spec(20, 8, 'e')).requests_ahead, 1);
  running->set_has_room(true);
  EXPECT_TRUE(running->Wait()->status.ok());
  EXPECT_TRUE(waits->Wait()->status.ok());
  EXPECT_EQ(Plan(Spec(300, 8, 'd')).room, RoomFor::kNow);
}

TEST_F(PlanTest, NoPageIsHeldByAPlan) {
  ASSERT_TRUE(Ask(Spec(150, 10))->Wait()->status.ok());
  for (int i = 0; i < 50; ++i) Plan(Spec(150, 10));
  // All pages are there for a request that needs nearly all.
  EXPECT_TRUE(Ask(Spec(600, 30, 'z'))->Wait()->status.ok());
}

TEST(PlanQueueTest, FewWaitAndAllEnd) {
  PlanQueue queue(Clock::Real());
  std::vector<std::thread> threads;
  std::atomic<int> waiting = 0;
  std::atomic<int> ended = 0;
  for (size_t i = 0; i < PlanQueue::kMost; ++i) {
    threads.emplace_back([&] {
      const auto plan = queue.Ask(
          RequestSpec(), [&] { ++waiting; }, CancelFlag::Never());
      if (plan.status().code() == absl::StatusCode::kUnavailable) ++ended;
    });
  }
  while (waiting < static_cast<int>(PlanQueue::kMost)) std::this_thread::yield();
  const auto refused = queue.Ask(
      RequestSpec(), [] {}, CancelFlag::Never());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(refused.status().GetPayload(kRetryPayload).has_value());
  queue.Close();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ended, static_cast<int>(PlanQueue::kMost));
  EXPECT_EQ(queue
                .Ask(
                    RequestSpec(), [] {}, CancelFlag::Never())
                .status()
                .code(),
            absl::StatusCode::kUnavailable);
}

TEST(PlanQueueTest, ABusyEngineIsWaitedForNoLongerThanItsLimit) {
  ManualClock clock;
  PlanQueue queue(clock);
  std::atomic<bool> asked = false;
  std::atomic<bool> ended = false;
  std::thread asks([&] {
    const auto plan = queue.Ask(
        RequestSpec(), [&] { asked = true; }, CancelFlag::Never());
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(plan.status().GetPayload(kRetryPayload).has_value());
    ended = true;
  });
  EXPECT_TRUE(Eventually([&] { return asked.load(); }));
  EXPECT_TRUE(clock.AdvanceUntil([&] { return ended.load(); }, std::chrono::seconds(1)));
  asks.join();
}

TEST(PlanQueueTest, ACancelledOneIsNotAnswered) {
  PlanQueue queue(Clock::Real());
  CancelFlag cancel;
  const auto plan = queue.Ask(
      RequestSpec(), [&] { cancel.Cancel(); }, cancel);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(queue.AnswerOne([](const RequestSpec&) {
    ADD_FAILURE() << "nobody asks";
    return RequestPlan();
  }));
}

double Density(const std::string& policy, int64_t tokens, const std::vector<int32_t>& layers) {
  return DensityOf(ParseAssignment(policy).value(), tokens, layers, 2).value_or(-1);
}

TEST(PlanDensityTest, IsTheShareOfPairs) {
  EXPECT_EQ(Density("dense", 1000, {0, 1}), 1);
  const double window = Density("window:window=256,sinks=64", 4096, {0, 1});
  EXPECT_GT(window, 0.05);
  EXPECT_LT(window, 0.25);
  // One layer and half of another are dense.
  const double mixed =
      Density("window:window=256,sinks=64; layers=0: dense; layers=1,heads=0: dense", 4096, {0, 1});
  EXPECT_NEAR(mixed, 0.75 + 0.25 * window, 1e-9);
  // A million tokens and 4,096 blocks to draw for each of their blocks.
  EXPECT_NEAR(Density("random:random=4096,window=1,global=0", 1'000'000, {0}), 0.45, 0.02);
  EXPECT_EQ(Density("adaptive", 4096, {0}), -1);
  EXPECT_EQ(Density("window:window=256; layers=0: top_pages", 4096, {0, 1}), -1);
}

}  // namespace
}  // namespace annulus::testing
