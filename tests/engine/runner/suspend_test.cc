// Chunks that are suspended between layers: the same bits as whole chunks, wherever they are cut,
// whatever runs between, on every ring.

#include <bit>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/sparse/assignment.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/masked_checkpoint.h"
#include "tests/support/step_driver.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::DriverResult;
using testing::MaskedCheckpoint;
using testing::RandomPrompt;
using testing::StepDriver;

constexpr int kAnswerTokens = 20;

struct SuspendCase {
  std::string family;
  std::string policy = "dense";
  DType kv_dtype = DType::kF32;
};

// Cuts chunks anywhere; every third step is of others. The first chunk is cut after a layer, and
// the step after that is of others, whatever the seed.
class Cuts {
 public:
  explicit Cuts(uint64_t seed) : random_(seed) {}
  int operator()(int left) {
    if (calls_ < 2) return 1 - calls_++;
    if (random_() % 3 == 0) return 0;
    return 1 + static_cast<int>(random_() % static_cast<uint64_t>(left));
  }

 private:
  std::mt19937_64 random_;
  int calls_ = 0;
};

void ExpectEqual(const DriverResult& actual, const DriverResult& expected,
                 const std::string& where) {
  EXPECT_EQ(actual.tokens, expected.tokens) << where;
  EXPECT_EQ(actual.logits, expected.logits) << where;
  ASSERT_EQ(actual.logprobs.size(), expected.logprobs.size()) << where;
  for (size_t i = 0; i < expected.logprobs.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(actual.logprobs[i].logprob),
              std::bit_cast<uint32_t>(expected.logprobs[i].logprob))
        << where << ", token " << i;
  }
  ASSERT_EQ(actual.attention.size(), expected.attention.size()) << where;
  for (size_t i = 0; i < expected.attention.size(); ++i) {
    LayerAttention part = actual.attention[i];
    part.estimate_seconds = expected.attention[i].estimate_seconds;
    EXPECT_EQ(part, expected.attention[i]) << where << ", report " << i;
  }
}

class Suspended : public ::testing::TestWithParam<SuspendCase> {
 protected:
  DriverOptions Options(int ranks, const RankModel& model) const {
    DriverOptions options;
    options.ranks = ranks;
    options.copying_ring = ranks == 3;
    options.mode = ranks == 4 ? RingMode::kPassQ : RingMode::kPassKv;
    options.prefill_rows = 48;
    options.all_logits = true;
    options.logprobs = 1;
    if (GetParam().policy == "dense") return options;
    options.attention = ParseAssignment(GetParam().policy).value();
    std::erase_if(options.attention->rules, [&](const AttentionRule& rule) {
      return rule.first_layer >= model.layers() || rule.first_head >= model.page_shape.kv_heads;
    });
    options.report_lists = true;
    return options;
  }

  CpuWorld world_;
  const MaskedCheckpoint checkpoint_{GetParam().family};
  const RankModel model_ =
      checkpoint_.Load(world_, *world_.registry.Available("cpu")[0], GetParam().kv_dtype);
};

// The long prompt begins once the short one has two tokens, so that the chunks of both runs, and
// with them what policies choose, are the same.
TEST_P(Suspended, BesideAStreamNoBitChanges) {
  const int vocabulary = model_.config.vocabulary;
  const std::vector<std::vector<int32_t>> prompts = {RandomPrompt(40, vocabulary, 3),
                                                     RandomPrompt(331, vocabulary, 4)};
  for (const int ranks : {1, 2, 3, 4}) {
    DriverOptions options = Options(ranks, model_);
    options.tokens_ahead = 2;
    const auto expected = StepDriver(world_, model_, options).Run(prompts, kAnswerTokens);
    options.stretch = Cuts(testing::TestSeed() + static_cast<uint64_t>(ranks));
    StepDriver driver(world_, model_, options);
    const auto actual = driver.Run(prompts, kAnswerTokens);
    for (size_t i = 0; i < prompts.size(); ++i) {
      ExpectEqual(actual[i], expected[i],
                  std::to_string(ranks) + " ranks, prompt " + std::to_string(i) + ", seed " +
                      std::to_string(testing::TestSeed()));
    }
    EXPECT_GT(driver.stretches(), 0) << ranks;
  }
}

// Prompts of several lengths run whole between the stretches of the first. Not under a policy: what
// it chooses depends on the chunks, which end elsewhere where prompts share a step.
class SuspendedDense : public Suspended {};

TEST_P(SuspendedDense, BesideOtherPromptsNoBitChanges) {
  std::vector<std::vector<int32_t>> prompts;
  for (const int length : {150, 9, 70, 1}) {
    prompts.push_back(
        RandomPrompt(length, model_.config.vocabulary, static_cast<uint32_t>(length)));
  }
  for (const int ranks : {1, 3}) {
    DriverOptions options = Options(ranks, model_);
    const auto expected = StepDriver(world_, model_, options).Run(prompts, 6);
    options.stretch = Cuts(testing::TestSeed() + 10 + static_cast<uint64_t>(ranks));
    StepDriver driver(world_, model_, options);
    const auto actual = driver.Run(prompts, 6);
    for (size_t i = 0; i < prompts.size(); ++i) {
      ExpectEqual(actual[i], expected[i],
                  std::to_string(ranks) + " ranks, prompt " + std::to_string(i) + ", seed " +
                      std::to_string(testing::TestSeed()));
    }
    EXPECT_GT(driver.stretches(), 0) << ranks;
    EXPECT_GT(driver.steps_between(), 0) << ranks;
  }
}

const auto kSuspendName = [](const auto& info) {
  return std::to_string(info.index) + "_" + info.param.family;
};

// With windows, sinks, experts, norms of queries and keys, inputs of layers, keys of other layers.
const std::vector<SuspendCase> kDenseCases = {{"llama_mha"},
                                              {"gpt_oss"},
                                              {"gemma2"},
                                              {"qwen3_moe"},
                                              {"mistral_window"},
                                              {"gemma4"},
                                              {"gemma4_moe"},
                                              {"gemma3n"},
                                              {"llama_mha", "dense", DType::kI8},
                                              {"qwen3_moe", "dense", DType::kBF16}};

// Policies of every kind of choice.
const std::vector<SuspendCase> kPolicyCases = {
    {"llama_mha", "random:window=20,random=2,block=16"},
    {"gemma2", "adaptive:block=16,tau=0.5"},
    {"llama_mha", "top_pages:pages=3,block=16"},
    {"qwen3_moe", "hierarchical:near=2,block=16,coverage=0.9"},
    {"gemma2", "learned:block=16,tau=0.5"},
    {"gemma4", "adaptive:block=16,tau=0.5"},
    {"gemma4_moe", "top_pages:pages=3,block=16"},
    {"qwen3_moe",
     "adaptive:block=16,tau=0.5; heads=0: window:window=40,block=16; layers=2: "
     "top_pages:block=16,pages=3"},
    {"llama_mha",
     "random:window=20,random=2,block=16; layers=1: dilated:segments=32/96,rates=1/3,block=16"},
    {"llama_mha", "window:window=40,block=16,coverage=0.5", DType::kI8}};

INSTANTIATE_TEST_SUITE_P(Dense, Suspended,
                         ::testing::ValuesIn(testing::ThinnedIfSanitized(kDenseCases, 2)),
                         kSuspendName);
INSTANTIATE_TEST_SUITE_P(Policies, Suspended,
                         ::testing::ValuesIn(testing::ThinnedIfSanitized(kPolicyCases, 2)),
                         kSuspendName);
INSTANTIATE_TEST_SUITE_P(All, SuspendedDense,
                         ::testing::ValuesIn(testing::ThinnedIfSanitized(kDenseCases, 2)),
                         kSuspendName);

}  // namespace
}  // namespace annulus
