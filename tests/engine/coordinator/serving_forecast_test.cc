// What Serving foresees of prompts: how much of one is done, and how long the rest takes.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "engine/coordinator/serving.h"
#include "engine/text/tokenizer.h"
#include "tests/support/collecting_sink.h"

namespace annulus::testing {
namespace {

using namespace std::chrono_literals;

class ServingForecastTest : public ::testing::Test {
 protected:
  // A request that runs, with a prompt of this length.
  Sequence& Run(int32_t tokens) {
    const RequestId id = next_id_++;
    RequestSpec spec;
    spec.prompt.assign(static_cast<size_t>(tokens), 'x');
    spec.sampling.seed = 1;
    auto sequence = std::make_unique<Sequence>();
    sequence->id = id;
    sequence->tokens = spec.prompt;
    sequence->prompt_length = tokens;
    sequence->ring = {0};
    auto request = std::make_unique<Request>(
        id, std::move(spec), std::make_shared<CollectingSink>(), *tokenizer_, Clock::Real());
    request->Admit(sequence.get());
    requests_[id] = std::move(request);
    state_.running.push_back(std::move(sequence));
    return *state_.running.back();
  }

  static PlanItem Item(const Sequence& sequence, int32_t begin, int32_t rows, bool sampled) {
    PlanItem item;
    item.sequence = sequence.id;
    item.begin = begin;
    item.end = begin + rows;
    item.runs = {{0, begin, rows}};
    item.sampled = sampled;
    return item;
  }

  EngineMetrics metrics_{1, ModelInfo()};
  std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  RequestId next_id_ = 1;
  EngineState state_;
  Requests requests_;
};

// Rows take as long in each of the first three layers; pairs, of which a deep chunk is nearly all,
// are the third layer's; and the last one takes no time.
TEST_F(ServingForecastTest, TheLayersOfASuspendedChunkCountByWhatTheyCost) {
  PlanLimits limits;
  limits.group_windows = {0};
  limits.layers = 4;
  limits.layer_costs = {{1, 0}, {1, 0}, {1, 1}, {0, 0}};
  limits.suspended_rows_per_rank = 512;
  Serving serving(250ms, limits, 4, metrics_);
  constexpr int32_t kTokens = 200'000;
  constexpr int32_t kChunk = 512;
  Sequence& sequence = Run(kTokens);
  const Request& request = *requests_.at(sequence.id);
  const auto suspend = [&](int32_t layers) {
    sequence.suspended = SuspendedChunk{{Item(sequence, sequence.computed, kChunk, false)}, layers};
  };
  // Before the first step, rows alone count.
  suspend(1);
  Serving::PromptShare share = serving.ShareDone(request);
  EXPECT_NEAR(share.done / (share.done + share.left), kChunk / 3.0 / kTokens, 1e-9);
  EXPECT_EQ(share.processed, kChunk / 3);
  for (int step = 0; step < 60; ++step) {
    const int32_t rows = 64 * (1 + step % 8);
    const int32_t begin = 1024 * (step * 7 % 60);
    StepPlan plan;
    plan.items = {Item(sequence, begin, rows, false)};
    const double pairs = rows * (begin + rows / 2.0);
    serving.Took(plan, requests_, 0.01 + 1e-4 * rows + 1e-6 * pairs);
  }
  sequence.computed = 100'000;
  suspend(2);
  share = serving.ShareDone(request);
  EXPECT_GE(share.processed, sequence.computed);
  EXPECT_LT(share.processed, sequence.computed + kChunk / 8);
  const double before = share.done;
  suspend(3);
  share = serving.ShareDone(request);
  EXPECT_NEAR(static_cast<double>(share.processed), sequence.computed + kChunk, 1);
  EXPECT_GT(share.done, before + 30);  // 512 rows with 100,000 keys and more each, at 1e-6 s
}

// Steps beside a stream that guesses ahead take longer. What is foreseen of a prompt counts the
// rows of its guesses, as the stall budget does, and no longer once it has ceased to guess.
TEST_F(ServingForecastTest, RowsThatAreGuessedAheadCount) {
  PlanLimits limits;
  limits.group_windows = {0};
  limits.prefill_rows_per_rank = 64;
  Serving serving(0ms, limits, 4, metrics_);
  Sequence& stream = Run(500);
  stream.computed = 500;
  const Sequence& reader = Run(100'000);
  // Every other step has rows of a prompt, so that their time can be told.
  const auto step = [&](int number, int32_t guesses) {
    StepPlan plan;
    plan.items = {Item(stream, stream.computed, 1 + guesses, true)};
    const int32_t rows = number % 4 < 2 ? 64 : 0;
    if (rows > 0) plan.items.push_back(Item(reader, 64 * (number % 32), rows, false));
    serving.Took(plan, requests_, 0.01 + 5e-3 * (1 + guesses) + 2e-4 * rows);
  };
  const PromptState prompt{.prompt_length = 2048};
  const auto foreseen = [&] {
    const auto seconds =
        serving.Expect(RequestSpec(), prompt, state_, requests_, Clock::Real().Now());
    return seconds.value_or(RequestPlan::Seconds()).prefill;
  };
  // 32 chunks, beside 8 rows of the stream each on average, and then beside one.
  for (int number = 0; number < 80; ++number) step(number, number % 2 == 0 ? 0 : 14);
  EXPECT_NEAR(foreseen(), 32 * (0.01 + 8 * 5e-3 + 64 * 2e-4), 0.3);
  for (int number = 0; number < 80; ++number) step(number, 0);
  EXPECT_NEAR(foreseen(), 32 * (0.01 + 5e-3 + 64 * 2e-4), 0.15);
}

// Steps in which the window was not full yet show what a pair takes. Beyond it every row attends as
// many keys, so half of the rows are half of the work.
TEST_F(ServingForecastTest, RowsOfAWindowCountByTheKeysThatTheyAttend) {
  PlanLimits limits;
  limits.group_windows = {0};
  Serving serving(0ms, limits, 4, metrics_);
  constexpr int32_t kTokens = 100'000;
  Sequence& sequence = Run(kTokens);
  sequence.attention =
      std::make_shared<const AttentionAssignment>(ParseAssignment("window:window=1024").value());
  const std::vector<int32_t> layers = {0};
  sequence.pattern_pairs =
      std::make_shared<const PatternPairs>(*sequence.attention, layers, 1, kTokens);
  for (int step = 0; step < 60; ++step) {
    const int32_t begin = 64 * (step * 3 % 14);
    const int32_t rows = 32 * (1 + step % 4);
    StepPlan plan;
    plan.items = {Item(sequence, begin, rows, false)};
    serving.Took(plan, requests_, 1e-3 + 1e-7 * rows * (begin + rows / 2.0));
  }
  sequence.computed = kTokens / 2;
  const Serving::PromptShare share = serving.ShareDone(*requests_.at(sequence.id));
  EXPECT_GT(share.left, 0);
  EXPECT_NEAR(share.done / (share.done + share.left), 0.5, 0.02);
}

TEST(RetryAfterTest, GrowsWithTheQueue) {
  using std::chrono::milliseconds;
  EXPECT_EQ(RetryAfter(0.5, 0), milliseconds(1000));
  EXPECT_EQ(RetryAfter(0.2, 100), milliseconds(10'000)) << "half of the 20 s that the queue takes";
  EXPECT_EQ(RetryAfter(0.001, 100), milliseconds(250));
  EXPECT_EQ(RetryAfter(5, 1000), milliseconds(60'000));
}

}  // namespace
}  // namespace annulus::testing
