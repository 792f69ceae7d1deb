// Chunks suspended between layers in the engine's loop, over simulated ranks that take some
// simulated time: what cancels, deadlines and failures make of them, and who goes on meanwhile.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/coordinator/coordinator.h"
#include "engine/text/tokenizer.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/manual_clock.h"
#include "tests/support/plain_options.h"
#include "tests/support/simulated_ranks.h"

namespace annulus::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;

constexpr int kSuspendLayers = 8;
constexpr int32_t kSuspendPage = 16;
// A page takes four times the budget.
constexpr auto kSuspendBudget = 20ms;
constexpr auto kRowTime = 5ms;
constexpr auto kStepTime = 1ms;

class SuspendTest : public ::testing::Test {
 protected:
  SuspendTest() {
    CoordinatorOptions options;
    options.engine = PlainOptions();
    options.limits.page_tokens = kSuspendPage;
    options.limits.prefill_rows_per_rank = 64;
    options.limits.tokens_per_rank = 1024;
    options.limits.group_windows = {0};
    options.limits.layers = kSuspendLayers;
    options.limits.suspended_rows_per_rank = 64;
    options.modes.mode = RingMode::kPassKv;
    options.engine.stall_budget = kSuspendBudget;
    options.identity = "simulated";
    coordinator_ = std::make_unique<Coordinator>(options, ranks_, metrics_, clock_,
                                                 std::vector<int32_t>{256}, 257);
  }

  struct Asked {
    RequestId id = 0;
    std::shared_ptr<CollectingSink> sink = std::make_shared<CollectingSink>();
  };
  Asked Ask(int tokens, int max_tokens, SteadyTime deadline = SteadyTime::max()) {
    Asked asked;
    asked.id = next_id_++;
    RequestSpec spec;
    spec.prompt.assign(static_cast<size_t>(tokens), 'x');
    spec.prompt[0] = static_cast<int32_t>(asked.id);
    spec.sampling.max_tokens = max_tokens;
    spec.sampling.seed = 1;
    spec.deadline = deadline;
    EXPECT_TRUE(coordinator_
                    ->Submit(std::make_unique<Request>(asked.id, std::move(spec), asked.sink,
                                                       *tokenizer_, clock_))
                    .ok());
    return asked;
  }

  // A stream beside which prompts do not fit. It goes on as fast as the machine can, and is far
  // from its end when a test is.
  Asked Stream() {
    Asked stream = Ask(1, 60'000);
    EXPECT_TRUE(stream.sink->WaitTokens(3));
    return stream;
  }

  static std::string Outcome(const Asked& asked) {
    const auto done = asked.sink->Wait();
    if (!done.has_value()) return "no end";
    return done->status.ok() ? "" : done->status.ToString();
  }

  // Plans with rows of a request, by their number.
  std::vector<std::pair<size_t, StepPlan>> PlansOf(RequestId id) const {
    std::vector<std::pair<size_t, StepPlan>> found;
    const std::vector<StepPlan> plans = ranks_.plans();
    for (size_t i = 0; i < plans.size(); ++i) {
      const auto has = [&](const PlanItem& item) { return item.sequence == id; };
      if (std::any_of(plans[i].items.begin(), plans[i].items.end(), has)) {
        found.emplace_back(i, plans[i]);
      }
    }
    return found;
  }

  // Called once, when a request's chunk has been suspended for the second time.
  void WhenSuspended(RequestId id, std::function<void()> then) {
    then_ = std::move(then);
    watched_ = id;
  }

  static SimulatedRanksOptions RanksOptions(SuspendTest* test) {
    return {.ranks = 1,
            .pages = 4096,
            .page_tokens = kSuspendPage,
            .layers = kSuspendLayers,
            .on_start = [test](const StepPlan& plan) { test->TakeTime(plan); }};
  }

  void TakeTime(const StepPlan& plan) {
    std::chrono::duration<double> seconds = kStepTime;
    for (const PlanItem& item : plan.items) {
      if (!item.sampled) seconds += kRowTime * (item.end - item.begin);
    }
    if (plan.stretch.has_value()) {
      seconds *=
          static_cast<double>(plan.stretch->end_layer - plan.stretch->first_layer) / kSuspendLayers;
      const bool middle = plan.stretch->first_layer > 0 && !plan.stretch->ends_chunk;
      if (middle && plan.items[0].sequence == watched_ && watched_.exchange(0) != 0) then_();
    }
    clock_.Advance(std::chrono::duration_cast<SteadyTime::duration>(seconds));
  }

  std::function<void()> then_;
  std::atomic<RequestId> watched_{0};
  ManualClock clock_;
  SimulatedRanks ranks_{RanksOptions(this)};
  EngineMetrics metrics_{1, ModelInfo()};
  std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  std::atomic<RequestId> next_id_{1};
  std::unique_ptr<Coordinator> coordinator_;
};

// The stretch that runs ends, and the next plan tells the ranks.
TEST_F(SuspendTest, ACancelTakesEffectInsideAChunk) {
  const Asked stream = Stream();
  WhenSuspended(2, [&] { coordinator_->Cancel(2); });
  const Asked gone = Ask(400, 8);
  EXPECT_THAT(Outcome(gone), HasSubstr("CANCELLED"));
  const auto plans = PlansOf(gone.id);
  ASSERT_FALSE(plans.empty());
  const auto& [last, plan] = plans.back();
  ASSERT_TRUE(plan.stretch.has_value());
  EXPECT_FALSE(plan.stretch->ends_chunk);
  const Asked next = Ask(40, 2);
  EXPECT_EQ(Outcome(next), "");
  EXPECT_THAT(ranks_.plans()[last + 1].ended, Contains(gone.id));
  coordinator_->Cancel(stream.id);
  EXPECT_THAT(Outcome(stream), HasSubstr("CANCELLED"));
}

TEST_F(SuspendTest, ADeadlineTakesEffectInsideAChunk) {
  const Asked stream = Stream();
  WhenSuspended(2, [&] { clock_.Advance(24h); });
  const Asked late = Ask(400, 8, clock_.Now() + 24h);
  EXPECT_THAT(Outcome(late), HasSubstr("DEADLINE_EXCEEDED: the answer was not complete"));
  const auto plans = PlansOf(late.id);
  ASSERT_FALSE(plans.empty());
  ASSERT_TRUE(plans.back().second.stretch.has_value());
  EXPECT_FALSE(plans.back().second.stretch->ends_chunk);
}

// All that ran goes on; the chunk begins anew.
TEST_F(SuspendTest, ARankThatFailsInsideAChunkEndsNobody) {
  const Asked stream = Stream();
  WhenSuspended(2, [&] { ranks_.FailNext(absl::InternalError("a rank stumbled")); });
  const Asked failed = Ask(400, 8);
  EXPECT_EQ(Outcome(failed), "");
  EXPECT_EQ(failed.sink->ids().size(), 8u);
  EXPECT_EQ(failed.sink->Wait()->timings.recovered, 1);
  coordinator_->Cancel(stream.id);
  EXPECT_THAT(Outcome(stream), HasSubstr("CANCELLED"));
  EXPECT_EQ(stream.sink->Wait()->timings.recovered, 1);
}

// The failed chunk is read again in stretches that have nothing else in them, and the stream goes
// on between any two, also while it reads its answer so far again.
TEST_F(SuspendTest, ASuspectDoesNotStopOthers) {
  const Asked stream = Stream();
  WhenSuspended(2, [&] { ranks_.FailNext(absl::InternalError("a rank stumbled")); });
  const Asked failed = Ask(400, 8);
  EXPECT_EQ(Outcome(failed), "");
  int begun = 0;
  std::vector<size_t> apart;  // numbers of the plans until the chunk is computed
  for (const auto& [number, plan] : PlansOf(failed.id)) {
    for (const SequenceUpdate& update : plan.updates) {
      if (update.sequence == failed.id && update.terms.has_value()) ++begun;
    }
    if (begun < 2) continue;
    EXPECT_THAT(plan.items, Each(Field(&PlanItem::sequence, failed.id))) << number;
    if (!apart.empty()) {
      EXPECT_GT(number, apart.back() + 1);
    }
    apart.push_back(number);
    ASSERT_TRUE(plan.stretch.has_value()) << number;
    if (plan.stretch->ends_chunk) break;
  }
  EXPECT_EQ(begun, 2);
  EXPECT_GT(apart.size(), 1u);
  coordinator_->Cancel(stream.id);
  EXPECT_THAT(Outcome(stream), HasSubstr("CANCELLED"));
}

TEST_F(SuspendTest, TwoLongPromptsAndAStreamGoOnTogether) {
  const Asked stream = Stream();
  const Asked first = Ask(150, 3);
  const Asked second = Ask(130, 3);
  for (const auto& [asked, tokens] : {std::pair(first, 150), std::pair(second, 130)}) {
    EXPECT_EQ(Outcome(asked), "");
    std::vector<int32_t> expected;
    for (int n = 0; n < 3; ++n) expected.push_back(SimulatedRanks::TokenAt(tokens + n));
    EXPECT_EQ(asked.sink->ids(), expected);
    // Each stretch is heard of, and what is left only falls.
    int stretches = 0;
    for (const auto& [number, plan] : PlansOf(asked.id)) stretches += plan.stretch.has_value();
    EXPECT_GT(stretches, 4);
    const std::vector<PromptProgress> progress = asked.sink->progress();
    EXPECT_GE(static_cast<int>(progress.size()), stretches);
    bool inside_a_page = false;
    for (size_t i = 1; i < progress.size(); ++i) {
      EXPECT_GE(progress[i].processed, progress[i - 1].processed);
      inside_a_page = inside_a_page || progress[i].processed % kSuspendPage != 0;
    }
    EXPECT_TRUE(inside_a_page);
    EXPECT_EQ(progress.back().processed, tokens);
  }
  // The stream has its step between any two stretches.
  const std::vector<StepPlan> plans = ranks_.plans();
  for (size_t i = PlansOf(first.id).front().first + 1; i < plans.size(); ++i) {
    EXPECT_FALSE(plans[i - 1].stretch.has_value() && plans[i].stretch.has_value()) << i;
  }
  EXPECT_GT(metrics_.chunk_stretches.value(), 8);
  EXPECT_EQ(metrics_.prompt_tokens.value(), 1 + 150 + 130);
  EXPECT_GT(metrics_.smallest_chunk_seconds.value(), 0);
  coordinator_->Cancel(stream.id);
  EXPECT_NE(Outcome(stream), "");
}

TEST_F(SuspendTest, WhoComesMeanwhileIsAnsweredBeforeTheChunkEnds) {
  const Asked stream = Stream();
  Asked quick;
  WhenSuspended(2, [&] { quick = Ask(1, 1); });
  const Asked large = Ask(400, 1);
  ASSERT_TRUE(large.sink->WaitProgress(64));
  EXPECT_EQ(Outcome(quick), "");
  size_t chunk_end = 0;
  for (const auto& [number, plan] : PlansOf(large.id)) {
    if (chunk_end == 0 && plan.stretch.has_value() && plan.stretch->ends_chunk) chunk_end = number;
  }
  EXPECT_LT(PlansOf(quick.id).front().first, chunk_end);
  for (const Asked& asked : {large, stream}) coordinator_->Cancel(asked.id);
}

}  // namespace
}  // namespace annulus::testing
