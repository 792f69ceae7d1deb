// Steps that decode as graphs, on (emulated) GPUs: the same bits as without, in as few graphs as
// the step lets be.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/runner/device_fixture.h"
#include "tests/support/step_driver.h"

namespace annulus {
namespace {

using testing::DeviceTest;
using testing::DriverOptions;
using testing::DriverResult;
using testing::Some;
using testing::StepDriver;

constexpr int kTokens = 12;  // of the first request
constexpr int kAhead = 3;
constexpr int kFewer = 2;

struct Outcome {
  std::vector<DriverResult> results;
  GraphCounts counts;  // of all ranks together
  int64_t decode_steps = 0;
};

GraphCounts CountsOf(const RankPort& ranks) {
  GraphCounts all;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const GraphCounts own = ranks.Statistics(rank).graphs;
    all.whole += own.whole;
    all.in_pieces += own.in_pieces;
    all.built += own.built;
    all.replayed += own.replayed;
    all.updated += own.updated;
    all.single += own.single;
    all.cut_by_wait += own.cut_by_wait;
    all.cut_by_event += own.cut_by_event;
    all.cut_by_copy += own.cut_by_copy;
    all.cut_by_memory += own.cut_by_memory;
    all.cut_by_library += own.cut_by_library;
  }
  return all;
}

class GraphsTest : public DeviceTest {
 protected:
  // DeviceTest has the host's access forbidden.
  explicit GraphsTest(int devices = 1) : DeviceTest(devices) { testing::AllowHostAccess(); }

  // Three prompts of different length, which join one after the other and leave in another order.
  // Each gets beyond the end of a page.
  Outcome Run(const RankModel& model, DriverOptions options, bool graphs) {
    options.graphs = graphs;
    options.prefill_rows = 32;
    options.kv_bytes = size_t{8} << 20;
    options.tokens_ahead = kAhead;
    options.tokens_fewer = kFewer;
    std::vector<std::vector<int32_t>> prompts;
    for (const int length : {41, 10, 61}) {
      std::vector<int32_t>& prompt = prompts.emplace_back();
      for (int i = 0; i < length; ++i) {
        prompt.push_back((i * i * 7 + length) % model.config.vocabulary);
      }
    }
    StepDriver driver(*backend_, model, options);
    Outcome outcome;
    outcome.results = driver.Run(prompts, kTokens);
    outcome.counts = CountsOf(driver.ranks());
    outcome.decode_steps = driver.decode_steps();
    return outcome;
  }

  // `seen`: the host has seen logits of both.
  static void ExpectSame(const Outcome& a, const Outcome& b, bool seen) {
    for (size_t i = 0; i < a.results.size(); ++i) {
      EXPECT_EQ(a.results[i].tokens.size(), static_cast<size_t>(kTokens) - kFewer * i);
      EXPECT_EQ(a.results[i].tokens, b.results[i].tokens) << i;
      if (!seen) continue;
      ASSERT_EQ(a.results[i].logprobs.size(), a.results[i].tokens.size());
      ASSERT_EQ(b.results[i].logprobs.size(), a.results[i].tokens.size());
      for (size_t t = 0; t < a.results[i].logprobs.size(); ++t) {
        EXPECT_EQ(a.results[i].logprobs[t].logprob, b.results[i].logprobs[t].logprob) << i << t;
        EXPECT_EQ(a.results[i].logprobs[t].alternatives, b.results[i].logprobs[t].alternatives);
      }
    }
  }

  void ExpectWholeGraphs(const RankModel& model) {
    DriverOptions options;
    options.logprobs = 5;
    const Outcome without = Run(model, options, false);
    EXPECT_EQ(without.counts.whole + without.counts.in_pieces, 0);
    for (const bool seen : {true, false}) {
      if (!seen) options.logprobs.reset();
      const std::optional<int64_t> runs = testing::GraphRuns();
      const Outcome with = Run(model, options, true);
      ExpectSame(with, without, seen);
      EXPECT_GE(with.decode_steps, kTokens - 2);  // all but those that take up a prompt
      EXPECT_EQ(with.counts.whole, with.decode_steps);
      EXPECT_EQ(with.counts.in_pieces, 0);
      EXPECT_EQ(with.counts.cuts(), 0);
      if (runs.has_value()) {
        EXPECT_EQ(*testing::GraphRuns() - *runs, with.decode_steps);
      }
      EXPECT_EQ(with.counts.single, 0);
      EXPECT_GT(with.counts.replayed, with.decode_steps * 10 * model.layers());
      // Graphs last while requests grow, join and leave.
      EXPECT_LE(with.counts.built, 4);
    }
  }
};

// One graph for each step; of tokens that the device chooses, and of logits that the host sees.
TEST_F(GraphsTest, ALoneRanksStepsAreOneGraphEachWithTheSameBits) {
  for (const std::string& name :
       Some({"llama_gqa_bf16", "qwen2", "qwen3", "gemma2", "olmo2", "gemma3n"})) {
    SCOPED_TRACE(name);
    ExpectWholeGraphs(Load(name));
  }
}

// The device chooses experts and looks up their weights itself.
TEST_F(GraphsTest, StepsWithExpertsAreOneGraphEachWithTheSameBits) {
  for (const std::string& name : Some({"gpt_oss_bf16", "mixtral", "qwen3_moe", "qwen2_moe"})) {
    SCOPED_TRACE(name);
    ExpectWholeGraphs(Load(name));
  }
}

// Rounded to bf16, by other kernels.
TEST_F(GraphsTest, Bf16HasTheSameBits) {
  const RankModel model = Load("llama_gqa_bf16", DType::kBF16);
  DriverOptions options;
  options.logprobs = 5;
  const Outcome with = Run(model, options, true);
  ExpectSame(with, Run(model, options, false), true);
  EXPECT_EQ(with.counts.whole, with.decode_steps);
}

// One request alone: from one token to the next nothing changes but what arrays say, until these
// become longer.
TEST_F(GraphsTest, FromTokenToTokenNothingIsSetAnew) {
  const RankModel model = Load("llama_gqa_bf16");
  DriverOptions options;
  options.kv_bytes = size_t{8} << 20;
  StepDriver driver(*backend_, model, options);
  driver.Run({std::vector<int32_t>(50)}, 9);  // up to 58 positions: the fourth page
  const GraphCounts first = CountsOf(driver.ranks());
  EXPECT_EQ(first.whole, 8);
  EXPECT_EQ(first.built, 1);
  EXPECT_EQ(first.updated, 0);
  driver.Run({std::vector<int32_t>(60)}, 9);  // the fifth: its table moves all that come after
  const GraphCounts second = CountsOf(driver.ranks());
  EXPECT_EQ(second.whole, 16);
  EXPECT_GT(second.updated, 0);
  EXPECT_LT(second.updated, second.replayed / second.whole);
}

// What penalties remember becomes longer with the answer, which cuts no step.
TEST_F(GraphsTest, StepsWithPenaltiesAreOneGraphEachWithTheSameTokens) {
  const RankModel model = Load("llama_gqa_bf16");
  DriverOptions options;
  const Outcome plain = Run(model, options, true);
  options.sampling = testing::Greedy();
  options.sampling->repetition_penalty = 1.5f;
  const Outcome with = Run(model, options, true);
  EXPECT_NE(with.results[0].tokens, plain.results[0].tokens);
  EXPECT_EQ(with.counts.whole, with.decode_steps);
  EXPECT_EQ(with.counts.cuts(), 0);
  EXPECT_EQ(with.counts.built, plain.counts.built);
  EXPECT_LE(with.counts.updated, plain.counts.updated + with.decode_steps);
  ExpectSame(with, Run(model, options, false), false);
  options.logprobs = 0;  // the host samples
  ExpectSame(with, Run(model, options, true), false);
}

// Streams of ranks of one device wait for each other between layers, by events, which cut a step
// into pieces; their hosts do not.
TEST_F(GraphsTest, RanksOfOneDeviceHaveTheSameBitsInPieces) {
  for (const std::string& name : Some({"llama_gqa_bf16", "gemma2"})) {
    SCOPED_TRACE(name);
    const RankModel model = Load(name);
    DriverOptions options;
    options.ranks = 2;
    options.logprobs = 5;
    const Outcome without = Run(model, options, false);
    const Outcome with = Run(model, options, true);
    ExpectSame(with, without, true);
    EXPECT_EQ(with.counts.whole + with.counts.in_pieces, 2 * with.decode_steps);
    EXPECT_GT(with.counts.in_pieces, 0);
    EXPECT_GT(with.counts.replayed, 0);
    EXPECT_GT(with.counts.cut_by_event, 0);
    EXPECT_EQ(with.counts.cut_by_wait, 0);
  }
}

class GraphsOfDevicesTest : public GraphsTest {
 protected:
  GraphsOfDevicesTest() : GraphsTest(2) {}
};

TEST_F(GraphsOfDevicesTest, RanksOfTwoDevicesHaveTheSameBitsInPieces) {
  const RankModel model = Load("llama_gqa_bf16");
  for (const RingTransport transport : {RingTransport::kPeer, RingTransport::kStaged}) {
    // Which make the emulation several times slower.
    if (kSanitized && transport == RingTransport::kStaged) continue;
    DriverOptions options;
    options.ranks = 2;
    options.logprobs = 5;
    options.transport = transport;
    const Outcome without = Run(model, options, false);
    const Outcome with = Run(model, options, true);
    ExpectSame(with, without, true);
    EXPECT_GT(with.counts.in_pieces, 0);
    EXPECT_GT(with.counts.replayed, 0);
    EXPECT_GT(with.counts.cut_by_event, 0);
  }
}

// Seconds of attention are measured by events inside of the graph.
TEST_F(GraphsTest, SecondsOfAttentionAreCountedWithAndWithout) {
  const RankModel model = Load("llama_gqa_bf16");
  for (const bool graphs : {false, true}) {
    DriverOptions options;
    options.graphs = graphs;
    options.kv_bytes = size_t{8} << 20;
    StepDriver driver(*backend_, model, options);
    driver.Run({{1, 2, 3}}, 2);  // kernels are loaded between events of their first launch
    const auto seconds_of = [&](int tokens) {
      const double before = driver.ring().compute_seconds;
      driver.Run({{1, 2, 3}}, tokens);
      return driver.ring().compute_seconds - before;
    };
    // The least of three: the machine may do other things.
    const double prefill = std::min({seconds_of(1), seconds_of(1), seconds_of(1)});
    EXPECT_GT(prefill, 0);
    EXPECT_GT(seconds_of(12), 1.5 * prefill);
  }
}

}  // namespace
}  // namespace annulus
