// Requests that reserve what their answers are expected to take, over simulated ranks: who gives up
// its pages, what is sent again, and that no client notices.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/coordinator/coordinator.h"
#include "engine/scheduler/answer_length.h"
#include "engine/text/tokenizer.h"
#include "kernels/base/sanitizers.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/eventually.h"
#include "tests/support/manual_clock.h"
#include "tests/support/plain_options.h"
#include "tests/support/simulated_ranks.h"

namespace annulus::testing {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kPreemptPage = 16;

class PreemptionTest : public ::testing::Test {
 protected:
  struct Setup {
    int ranks = 1;
    int pages = 8;  // of each rank
    int max_running = 8;
    std::vector<int32_t> windows = {0};
    bool ranks_share_machine = false;
  };
  void Make(const Setup& setup) {
    const int ranks = setup.ranks;
    coordinator_.reset();
    ranks_ =
        std::make_unique<SimulatedRanks>(SimulatedRanksOptions{.ranks = ranks,
                                                               .pages = setup.pages,
                                                               .page_tokens = kPreemptPage,
                                                               .group_windows = setup.windows});
    metrics_ = std::make_unique<EngineMetrics>(ranks, ModelInfo());
    CoordinatorOptions options;
    options.engine = PlainOptions();
    options.limits = SimulatedLimits(ranks, kPreemptPage, setup.windows);
    options.modes.mode = RingMode::kPassKv;
    options.engine.admission = AdmissionMode::kExpected;
    options.engine.max_running = setup.max_running;
    options.engine.max_waiting = 64;
    options.ranks_share_machine = setup.ranks_share_machine;
    options.identity = "simulated";
    coordinator_ = std::make_unique<Coordinator>(options, *ranks_, *metrics_, *clock_,
                                                 std::vector<int32_t>{256}, 257);
  }
  ~PreemptionTest() override {
    if (ranks_ != nullptr) ranks_->Allow();
  }

  struct Asked {
    RequestId id = 0;
    int prompt = 0;
    int max_tokens = 0;
    std::shared_ptr<CollectingSink> sink = std::make_shared<CollectingSink>();
  };
  RequestSpec Spec(int tokens, int max_tokens) const {
    RequestSpec spec;
    spec.prompt.assign(static_cast<size_t>(tokens), 'x');
    spec.prompt[0] = static_cast<int32_t>(next_id_ % 256);
    spec.sampling.max_tokens = max_tokens;
    spec.sampling.seed = 1;
    return spec;
  }
  Asked Ask(RequestSpec spec) {
    Asked asked;
    asked.id = next_id_++;
    asked.prompt = static_cast<int>(spec.prompt.size());
    asked.max_tokens = spec.sampling.max_tokens;
    const absl::Status accepted = coordinator_->Submit(
        std::make_unique<Request>(asked.id, std::move(spec), asked.sink, *tokenizer_, *clock_));
    EXPECT_TRUE(accepted.ok()) << accepted;
    return asked;
  }
  Asked Ask(int tokens, int max_tokens) { return Ask(Spec(tokens, max_tokens)); }

  // Both are there before the first step runs.
  std::pair<Asked, Asked> AskBoth(RequestSpec one, RequestSpec other) {
    ranks_->HoldSteps();
    std::pair<Asked, Asked> asked;
    asked.first = Ask(std::move(one));
    other.prompt[0] = static_cast<int32_t>(next_id_ % 256);
    asked.second = Ask(std::move(other));
    ranks_->Allow();
    return asked;
  }

  // So many short answers that the next ones are expected to be short too.
  void LearnShortAnswers() {
    for (int i = 0; i < AnswerLength::kLeastAnswers; ++i) EXPECT_EQ(Outcome(Ask(4, 4)), "");
  }

  // Also checks that every token is the one of its position, once.
  static std::string Outcome(const Asked& asked) {
    const auto done = asked.sink->Wait();
    if (!done.has_value()) return "no end";
    if (!done->status.ok()) return done->status.ToString();
    const std::vector<int32_t> ids = asked.sink->ids();
    if (std::ssize(ids) != asked.max_tokens) return "tokens are missing";
    for (int i = 0; i < asked.max_tokens; ++i) {
      if (ids[i] != SimulatedRanks::TokenAt(asked.prompt + i)) return "another token";
    }
    return "";
  }
  static int64_t Preemptions(const Asked& asked) {
    return asked.sink->Wait().value_or(Completion()).timings.preemptions;
  }

  // Pages that requests hold, once all have ended and the loop has turned again.
  int64_t PagesHeld() {
    int64_t held = 0;
    Eventually([&] {
      held = 0;
      for (const PageCounts& rank : coordinator_->snapshot().pages) held += rank.held();
      return held == 0;
    });
    return held;
  }
  bool WaitPreempted(int64_t count) {
    return Eventually([&] { return metrics_->preemptions.value() >= static_cast<double>(count); });
  }

  ManualClock manual_;
  const Clock* clock_ = &Clock::Real();
  std::unique_ptr<SimulatedRanks> ranks_;
  std::unique_ptr<EngineMetrics> metrics_;
  std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  RequestId next_id_ = 1;
  std::unique_ptr<Coordinator> coordinator_;
};

// Each would take all eight pages in the worst case, and gets two; the younger makes room.
TEST_F(PreemptionTest, TheYoungerGivesUpItsPagesAndGoesOnWithItsAnswer) {
  Make({});
  LearnShortAnswers();
  const auto [older, younger] = AskBoth(Spec(20, 100), Spec(20, 100));
  EXPECT_EQ(Outcome(older), "");
  EXPECT_EQ(Outcome(younger), "");
  EXPECT_EQ(Preemptions(older), 0);
  EXPECT_GE(Preemptions(younger), 1);
  EXPECT_EQ(metrics_->preemptions.value(), static_cast<double>(Preemptions(younger)));
  EXPECT_EQ(PagesHeld(), 0);
  // What it needs to go on is sent again: the terms, and the answer so far for penalties.
  std::vector<std::vector<int32_t>> generated;
  for (const StepPlan& plan : ranks_->plans()) {
    for (const SequenceUpdate& update : plan.updates) {
      if (update.sequence != younger.id || !update.setup.has_value()) continue;
      generated.push_back(update.setup->generated);
    }
  }
  ASSERT_EQ(std::ssize(generated), Preemptions(younger) + 1);
  EXPECT_TRUE(generated[0].empty());
  ASSERT_FALSE(generated[1].empty());
  for (size_t i = 0; i < generated[1].size(); ++i) {
    EXPECT_EQ(generated[1][i], SimulatedRanks::TokenAt(static_cast<int32_t>(20 + i)));
  }
}

TEST_F(PreemptionTest, TheClientHearsNothingOfIt) {
  Make({});
  LearnShortAnswers();
  RequestSpec spec = Spec(20, 100);
  spec.sampling.repetition_penalty = 1.5f;
  const auto [older, younger] = AskBoth(Spec(20, 100), std::move(spec));
  EXPECT_EQ(Outcome(younger), "");
  EXPECT_EQ(Outcome(older), "");
  ASSERT_GE(Preemptions(younger), 1);
  int64_t processed = 0;
  for (const PromptProgress& progress : younger.sink->progress()) {
    EXPECT_EQ(progress.total, 20);
    EXPECT_GE(progress.processed, processed);
    EXPECT_LE(progress.processed, 20);
    processed = progress.processed;
  }
  const Completion done = *younger.sink->Wait();
  EXPECT_EQ(done.usage.prompt_tokens, 20);
  EXPECT_EQ(done.usage.completion_tokens, 100);
  EXPECT_EQ(done.usage.cached_tokens, 0);  // its own pages are no hit
  EXPECT_LT(done.timings.queue, done.timings.time_to_first_token);
  EXPECT_EQ(done.finish_reason, FinishReason::kLength);
  // The penalty's list has the prompt without the answer.
  for (const StepPlan& plan : ranks_->plans()) {
    for (const SequenceUpdate& update : plan.updates) {
      if (update.sequence == younger.id && update.setup.has_value()) {
        EXPECT_EQ(update.setup->prompt.size(), 20u);
      }
    }
  }
}

TEST_F(PreemptionTest, BeforeAnythingIsKnownOfAnswersNobodyIsPreempted) {
  Make({});
  std::vector<Asked> all;
  for (int i = 0; i < 4; ++i) all.push_back(Ask(20, 100));
  for (const Asked& asked : all) {
    EXPECT_EQ(Outcome(asked), "");
    EXPECT_EQ(Preemptions(asked), 0);
  }
}

// It is never preempted: the eldest waits until it has ended.
TEST_F(PreemptionTest, ARequestOfATenantWithAQuotaReservesTheWorstCase) {
  Make({});
  LearnShortAnswers();
  RequestSpec spec = Spec(20, 60);
  spec.tenant = *TenantId::FromName("bounded");
  spec.tenant_room.kv_bytes = int64_t{5} * 4096;
  const auto [other, bounded] = AskBoth(Spec(20, 100), std::move(spec));
  EXPECT_EQ(Outcome(other), "");
  EXPECT_EQ(Outcome(bounded), "");
  EXPECT_EQ(Preemptions(bounded) + Preemptions(other), 0);
}

TEST_F(PreemptionTest, OneThatWaitsAgainIsCancelledAsAnyOther) {
  Make({});
  LearnShortAnswers();
  const auto [older, younger] = AskBoth(Spec(20, 100), Spec(20, 100));
  ASSERT_TRUE(WaitPreempted(1));
  coordinator_->Cancel(younger.id);
  EXPECT_EQ(Outcome(older), "");
  const auto done = younger.sink->Wait();
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(done->status.ok() || done->finish_reason == FinishReason::kCancelled);
  EXPECT_GE(done->timings.preemptions, 1);
  EXPECT_EQ(PagesHeld(), 0);
}

// A parked request is the first to give up its pages. It does not run before its reader is back,
// and a reader that stays away ends it though it runs no more.
TEST_F(PreemptionTest, AParkedRequestMakesRoomAndGoesOnWithItsReader) {
  clock_ = &manual_;
  for (const bool comes_back : {true, false}) {
    Make({});
    LearnShortAnswers();
    ranks_->HoldSteps();
    const Asked parked = Ask(20, 100);
    parked.sink->set_full_after(30);
    ranks_->Allow();
    ASSERT_TRUE(parked.sink->WaitTokens(30));
    const Asked other = Ask(20, 100);
    ASSERT_TRUE(WaitPreempted(1));
    EXPECT_EQ(Outcome(other), "");
    EXPECT_EQ(parked.sink->done_calls(), 0);
    if (comes_back) parked.sink->set_has_room(true);
    // The engine looks at readers again as time passes, and soon: the time until it gives one up is
    // the default, half a minute.
    const SteadyTime left = manual_.Now();
    EXPECT_TRUE(manual_.AdvanceUntil([&] { return parked.sink->done_calls() > 0; }));
    if (comes_back) {
      EXPECT_EQ(Outcome(parked), "");
    } else {
      EXPECT_THAT(Outcome(parked), HasSubstr("RESOURCE_EXHAUSTED"));
      EXPECT_GE(manual_.Now() - left, EngineOptions().slow_reader_timeout);
    }
    EXPECT_GE(Preemptions(parked), 1);
    EXPECT_EQ(PagesHeld(), 0);
  }
}

// Requests of all sizes up to all of memory, on rings of one and more ranks, with guesses, and of
// models with windows: every one ends with its own answer, and none for want of memory.
TEST_F(PreemptionTest, EveryRequestOfRandomTracesEndsWithItsAnswer) {
  int64_t preemptions = 0;
  for (uint32_t seed = 1; seed <= (kSanitized ? 10u : 60u); ++seed) {
    std::mt19937 random(seed);
    const int ranks = 1 << (random() % 3);
    const int pages = 6 + static_cast<int>(random() % 6);
    const bool windows = random() % 3 == 0;  // twice the pages for the same tokens
    Make({.ranks = ranks,
          .pages = windows ? 2 * pages : pages,
          .max_running = 1 + static_cast<int>(random() % 8),
          .windows = windows ? std::vector<int32_t>{0, 40} : std::vector<int32_t>{0},
          .ranks_share_machine = seed % 2 == 0});
    LearnShortAnswers();
    std::vector<Asked> all;
    for (int i = 0; i < 14; ++i) {
      const int room = (ranks * pages - ranks) * kPreemptPage;  // fits a ring of all
      const int prompt = 1 + static_cast<int>(random() % (room / 2));
      RequestSpec spec = Spec(prompt, 1 + static_cast<int>(random() % (room / 2)));
      spec.priority = static_cast<int32_t>(random() % 5) - 2;
      spec.client = std::string(1, static_cast<char>('a' + random() % 3));
      if (random() % 2 == 0) spec.speculation = Speculation::kNgram;
      all.push_back(Ask(std::move(spec)));
    }
    for (const Asked& asked : all) {
      ASSERT_EQ(Outcome(asked), "") << "seed " << seed << ", request " << asked.id;
      preemptions += Preemptions(asked);
    }
    ASSERT_EQ(PagesHeld(), 0) << "seed " << seed;
  }
  EXPECT_GT(preemptions, 20);
}

}  // namespace
}  // namespace annulus::testing
