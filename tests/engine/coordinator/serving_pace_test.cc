// What Serving learns from steps of how long prompts take: how much the rest of the steps slows
// them down (LearnPace), and how far one is and what it has left (ShareWithSteps).

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "engine/coordinator/serving.h"
#include "engine/scheduler/order.h"
#include "engine/scheduler/prompt_pace.h"
#include "engine/text/tokenizer.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/manual_clock.h"

namespace annulus::testing {
namespace {

using namespace std::chrono_literals;

constexpr int kPaceLayers = 8;
// Of a chunk: in the last layer rows of prompts only write keys and values, which counts as
// nothing.
constexpr double kPartOfTwoLayers = 2.0 / (kPaceLayers - 1);
constexpr int32_t kPacePage = 16;
constexpr double kSame = 1e-6;  // of figures that differ by rounding alone

PlanLimits PaceLimits() {
  PlanLimits limits;
  limits.page_tokens = kPacePage;
  limits.group_windows = {0};
  limits.layers = kPaceLayers;
  return limits;
}

// Of steps that take 10 ms, and 1 ms for each row of a prompt.
double PromptStepSeconds(int32_t rows) { return 0.01 + 0.001 * rows; }
constexpr double kStreamStepSeconds = 0.012;

class FullHost final : public AdmissionHost {
 public:
  bool HasTime() override { return true; }
  bool HasSlot(const Contender&) override { return false; }
  bool Waits(const Contender&, const Contender*) override { return false; }
  Answer TryAdmit(const Contender&, const Contender*) override { return Answer::kNoRoom; }
};

class ServingPaceTest : public ::testing::Test {
 protected:
  std::unique_ptr<Request> Make(RequestId id, int tokens) const {
    RequestSpec spec;
    spec.prompt.assign(static_cast<size_t>(tokens), 'x');
    spec.sampling.max_tokens = 8;
    return std::make_unique<Request>(id, std::move(spec), sink_, *tokenizer_, clock_);
  }

  // A request that runs, of whose prompt the first `cached` tokens were cached. If those are all,
  // it is a stream.
  Request& Run(int tokens, int cached = 0) {
    const RequestId id = next_id_++;
    auto sequence = std::make_unique<Sequence>();
    sequence->id = id;
    sequence->prompt_length = tokens;
    sequence->computed = cached;
    sequence->ring = {0};
    Request& request = *requests_.emplace(id, Make(id, tokens)).first->second;
    request.Admit(sequence.get());
    state_.running.push_back(std::move(sequence));
    return request;
  }

  static PlanItem ItemOf(const Sequence& sequence, int32_t begin, int32_t end, bool sampled) {
    PlanItem item;
    item.sequence = sequence.id;
    item.begin = begin;
    item.end = end;
    item.runs = {{0, begin, end - begin}};
    item.sampled = sampled;
    return item;
  }
  // A step with the prompt's next rows, up to `end`. The last one of the prompt is sampled.
  static StepPlan PromptStep(const Request& request, int32_t end) {
    const Sequence& sequence = *request.sequence();
    const int32_t sampled = end == sequence.prompt_length ? end - 1 : end;
    StepPlan plan;
    if (sequence.computed < sampled) {
      plan.items.push_back(ItemOf(sequence, sequence.computed, sampled, false));
    }
    if (sampled < end) plan.items.push_back(ItemOf(sequence, sampled, end, true));
    return plan;
  }
  static StepPlan StreamStep(const Request& request) {
    const Sequence& sequence = *request.sequence();
    StepPlan plan;
    plan.items.push_back(ItemOf(sequence, sequence.computed, sequence.computed + 1, true));
    return plan;
  }

  // Commits a step that took `seconds`. Returns how long its rows of prompts, in all layers, were
  // predicted to take alone.
  double Take(const StepPlan& plan, double seconds) {
    double alone = 0;
    for (const PlanItem& item : plan.items) {
      Sequence& sequence = *requests_.at(item.sequence)->sequence();
      if (item.begin < sequence.prompt_length) {
        alone += serving_.PromptSeconds(item.begin, item.end);
      }
      if (EndsItsChunks(plan)) sequence.computed = item.end;
    }
    serving_.Took(plan, requests_, seconds);
    return alone;
  }

  // Steps of a prompt and, if it is not null, of a stream in turns. `expected_` learns what
  // Serving should.
  void WarmUp(Request& prompt, Request* stream, int turns) {
    Take(PromptStep(prompt, kPacePage), PromptStepSeconds(kPacePage));  // nothing was predicted
    for (int turn = 0; turn < turns; ++turn) {
      const int32_t rows = kPacePage * (1 + turn % 3);
      const double seconds = PromptStepSeconds(rows);
      expected_.Learn(seconds,
                      Take(PromptStep(prompt, prompt.sequence()->computed + rows), seconds));
      if (stream == nullptr) continue;
      expected_.Learn(kStreamStepSeconds, Take(StreamStep(*stream), kStreamStepSeconds));
    }
  }

  // How many times as long as alone prompts are expected to take now, by what it decides: the least
  // time before its deadline with which a request is not taken for lost.
  double Slowed() const {
    EngineState state;
    Requests probes;
    const SteadyTime deadline = clock_.Now() + 1000s;
    for (const bool ends : {true, false}) {
      RequestSpec spec;
      spec.prompt.assign(1000, 'x');
      spec.sampling.max_tokens = 1;  // an answer that takes no time
      spec.priority = ends ? 2 : -2;
      if (ends) spec.deadline = deadline;
      const RequestId id = ends ? 1 : 2;
      probes.emplace(id,
                     std::make_unique<Request>(id, std::move(spec), sink_, *tokenizer_, clock_));
      state.running.push_back(std::make_unique<Sequence>());
      state.running.back()->id = id;
    }
    const double alone = SecondsNeeded({.remaining = serving_.ShareDone(*probes.at(1)).left});
    int64_t lost = 0;
    int64_t meets = SteadyTime::duration(1000s).count();
    while (meets - lost > 1) {
      const int64_t middle = lost + (meets - lost) / 2;
      const auto order =
          serving_.OrderOfRunning(state, probes, deadline - SteadyTime::duration(middle));
      (order.front() == 0 ? meets : lost) = middle;
    }
    return std::chrono::duration<double>(SteadyTime::duration(meets)).count() / alone;
  }

  // What ShareWithSteps adds to the seconds done.
  double StepsDone(const Request& request) const {
    return serving_.ShareWithSteps(request, state_).done - serving_.ShareDone(request).done;
  }
  double LeftWithSteps(const Request& request) const {
    return serving_.ShareWithSteps(request, state_).left;
  }

  ManualClock clock_;
  std::shared_ptr<CollectingSink> sink_ = std::make_shared<CollectingSink>();
  std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  EngineMetrics metrics_{1, ModelInfo()};
  Serving serving_{250ms, PaceLimits(), /*max_running=*/8, metrics_};
  EngineState state_;
  Requests requests_;
  RequestId next_id_ = 1;
  PromptPace expected_;
};

// ---- LearnPace

TEST_F(ServingPaceTest, ThereIsNothingToLearnBeforeTheFirstPrediction) {
  EXPECT_NEAR(Slowed(), 1, kSame);
  Request& prompt = Run(4096);
  Take(PromptStep(prompt, kPacePage), 10);
  EXPECT_NEAR(Slowed(), 1, kSame);
}

TEST_F(ServingPaceTest, PromptsAreSlowedByAllThatStepsDoBesideTheirRows) {
  Request& prompt = Run(4096);
  Request& stream = Run(16, 16);
  WarmUp(prompt, &stream, 5);
  EXPECT_NEAR(Slowed(), expected_.slowed(), kSame);
  for (int turn = 0; turn < 36; ++turn) {
    const int32_t rows = kPacePage * (1 + turn % 3);
    const double seconds = PromptStepSeconds(rows);
    expected_.Learn(seconds, Take(PromptStep(prompt, prompt.sequence()->computed + rows), seconds));
    EXPECT_NEAR(Slowed(), expected_.slowed(), kSame) << turn;
    expected_.Learn(kStreamStepSeconds, Take(StreamStep(stream), kStreamStepSeconds));
    EXPECT_NEAR(Slowed(), expected_.slowed(), kSame) << turn;
  }
  // 32 rows on average take 32 ms alone; here they take a step's 42, and 12 of the stream's.
  EXPECT_NEAR(Slowed(), 54.0 / 32, 0.1);
}

TEST_F(ServingPaceTest, OnlyStepsThatSomePromptOutlastsCount) {
  Request& prompt = Run(512);
  Request& stream = Run(16, 16);
  WarmUp(prompt, &stream, 10);
  const double before = Slowed();
  EXPECT_NEAR(before, expected_.slowed(), kSame);
  EXPECT_GT(before, 1.2);
  EXPECT_LT(before, 3);
  // The only prompt ends.
  Take(PromptStep(prompt, 512), 0.5);
  EXPECT_NEAR(Slowed(), before, kSame);
  Take(StreamStep(stream), 0.5);
  EXPECT_NEAR(Slowed(), before, kSame);
  // A parked one does not wait for steps.
  Request& parked = Run(1000);
  parked.sequence()->paused = true;
  Take(StreamStep(stream), 0.5);
  EXPECT_NEAR(Slowed(), before, kSame);
  parked.sequence()->paused = false;
  Take(StreamStep(stream), 0.5);
  EXPECT_GT(Slowed(), before + 0.1);
}

TEST_F(ServingPaceTest, AStretchCountsAsItsPartOfTheLayers) {
  Request& prompt = Run(1024);
  Request& stream = Run(16, 16);
  WarmUp(prompt, &stream, 10);
  StepPlan plan = PromptStep(prompt, prompt.sequence()->computed + 64);
  plan.stretch = Stretch{0, 2, false};
  const double seconds = 0.04;
  const double alone = Take(plan, seconds) * kPartOfTwoLayers;
  EXPECT_LT(alone, seconds);
  expected_.Learn(seconds, alone);
  EXPECT_NEAR(Slowed(), expected_.slowed(), kSame);
}

TEST_F(ServingPaceTest, WhatSlowedPromptsIsForgottenWhenNobodyRuns) {
  Request& prompt = Run(1024);
  Request& stream = Run(16, 16);
  WarmUp(prompt, &stream, 10);
  FullHost host;
  const RequestId id = next_id_++;
  const std::deque<RequestId> waiting = {id};
  requests_.emplace(id, Make(id, 100));
  serving_.Admit(waiting, requests_, host, clock_.Now());
  EXPECT_NEAR(Slowed(), expected_.slowed(), kSame);
  Requests alone;
  alone.emplace(id, Make(id, 100));
  serving_.Admit(waiting, alone, host, clock_.Now());
  EXPECT_NEAR(Slowed(), 1, kSame);
}

// ---- ShareWithSteps

// Chunks as Serving itself chooses them, first small and then large, of a machine on which a step
// takes longer than the rows of most. By rows alone, half of the time left would be missing.
TEST_F(ServingPaceTest, TheTimeLeftIsForeseenWithWhatStepsTakeBesideRows) {
  Request& prompt = Run(12'000);
  struct Look {
    double at = 0;  // seconds
    Serving::PromptShare share;
    double rows_left = 0;  // by rows alone
  };
  std::vector<Look> looks;
  double now = 0;
  while (prompt.sequence()->in_prefill()) {
    const StepChoice choice = serving_.Next(
        state_, requests_, {}, [](SequenceId) { return false; }, clock_.Now());
    ASSERT_EQ(choice.turns.size(), 1u);
    const int32_t end = choice.turns[0].end;
    ASSERT_GT(end, prompt.sequence()->computed);
    const double seconds = 0.2 + 0.001 * (end - prompt.sequence()->computed);
    now += seconds;
    Take(PromptStep(prompt, end), seconds);
    looks.push_back(
        {now, serving_.ShareWithSteps(prompt, state_), serving_.ShareDone(prompt).left});
    EXPECT_EQ(looks.back().share.processed, end);
  }
  EXPECT_EQ(looks.back().share.left, 0);
  int judged = 0;
  for (const Look& look : looks) {
    if (look.at < 0.1 * now || look.at > 0.8 * now) continue;
    ++judged;
    const double left = now - look.at;
    EXPECT_NEAR(look.share.left, left, 0.1 * left) << look.at;
    EXPECT_NEAR(look.share.done, look.at, 0.1 * look.at) << look.at;
    EXPECT_LT(look.rows_left, 0.75 * left) << look.at;
  }
  EXPECT_GT(judged, 20);
}

TEST_F(ServingPaceTest, StepsThatAPromptHadCountByTheirLayers) {
  Request& prompt = Run(1024);
  WarmUp(prompt, nullptr, 10);
  Request& other = Run(1024);
  EXPECT_EQ(StepsDone(other), 0);
  StepPlan plan = PromptStep(other, 64);
  plan.stretch = Stretch{0, 2, false};
  Take(plan, 0.02);
  EXPECT_NEAR(prompt.prompt_steps(), 11, kSame);
  EXPECT_NEAR(other.prompt_steps(), kPartOfTwoLayers, kSame);
  ASSERT_GT(StepsDone(other), 0);
  EXPECT_NEAR(StepsDone(prompt) / StepsDone(other), 11 / kPartOfTwoLayers, kSame);
}

TEST_F(ServingPaceTest, LayersOfASuspendedChunkAreDone) {
  Request& prompt = Run(1024);
  WarmUp(prompt, nullptr, 10);
  const Serving::PromptShare before = serving_.ShareDone(prompt);
  Sequence& sequence = *prompt.sequence();
  const int32_t end = sequence.computed + 64;
  sequence.suspended = SuspendedChunk{PromptStep(prompt, end).items, 2};
  const double seconds = serving_.PromptSeconds(sequence.computed, end) * kPartOfTwoLayers;
  ASSERT_GT(seconds, 0);
  const Serving::PromptShare after = serving_.ShareDone(prompt);
  EXPECT_NEAR(after.done, before.done + seconds, kSame);
  EXPECT_NEAR(after.left, before.left - seconds, kSame);
  EXPECT_EQ(after.processed, before.processed + static_cast<int64_t>(64 * kPartOfTwoLayers));
  EXPECT_EQ(serving_.ShareWithSteps(prompt, state_).processed, after.processed);
}

// Beside a stream, prompts have only been tried in chunks of a page: so many more steps are left.
TEST_F(ServingPaceTest, TheStepsLeftAreThoseBesideTheStreams) {
  Request& prompt = Run(4096);
  WarmUp(prompt, nullptr, 12);
  const double rows = serving_.ShareDone(prompt).left;
  const double alone = LeftWithSteps(prompt);
  EXPECT_GT(alone, rows);
  Request& stream = Run(16, 16);
  EXPECT_GT(LeftWithSteps(prompt) - rows, 3 * (alone - rows));
  stream.sequence()->paused = true;
  EXPECT_EQ(LeftWithSteps(prompt), alone);
  Run(100);  // another prompt is no stream
  EXPECT_EQ(LeftWithSteps(prompt), alone);
}

TEST_F(ServingPaceTest, CachedTokensAreProcessedAndTookNoTime) {
  Request& prompt = Run(1024);
  WarmUp(prompt, nullptr, 10);
  const Request& hit = Run(1024, 512);
  const Serving::PromptShare share = serving_.ShareWithSteps(hit, state_);
  EXPECT_EQ(share.processed, 512);
  EXPECT_EQ(share.done, 0);
  EXPECT_NEAR(serving_.ShareDone(hit).left, serving_.PromptSeconds(512, 1024), kSame);
  EXPECT_GT(share.left, serving_.ShareDone(hit).left);
}

}  // namespace
}  // namespace annulus::testing
