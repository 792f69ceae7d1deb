// The attention that rows give to parts of their prompt: shares of the row's own softmax, the same
// on every ring and with guessed rows, and beside an answer whose bits they do not change.

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/runner/choice/evidence_masses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/golden_model.h"
#include "tests/support/step_driver.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::DriverResult;
using testing::StepDriver;

constexpr int kEvidenceRows = 12;
constexpr int32_t kPromptTokens = 300;

struct EvidenceCase {
  std::string family;
  DType kv_dtype = DType::kF32;
  int page_tokens = 16;  // of which four make a block, on several ranks
  bool sinks = false;    // that are learned: they take a part of the attention
};

class Evidence : public ::testing::TestWithParam<EvidenceCase> {
 protected:
  RankModel Load() {
    RankModel model = testing::LoadGoldenModel(world_, GetParam().family, GetParam().page_tokens,
                                               GetParam().kv_dtype);
    if (GetParam().sinks) RaiseSinks(model.weights);
    return model;
  }

  // So that they take much of the attention.
  void RaiseSinks(ModelWeights& weights) {
    for (LayerWeights& layer : weights.layers) {
      const auto heads = static_cast<size_t>(layer.sinks.size());
      DeviceBuffer raised = world_.backend->Allocate(heads * sizeof(float)).value();
      std::fill_n(raised.as<float>(), heads, 14.0F);
      layer.sinks = DeviceVector(std::move(raised), static_cast<int64_t>(heads));
      layer.host_sinks.assign(heads, 14.0F);
    }
  }

  // All heads of all layers without a window.
  static std::vector<LayerHead> AllHeads(const RankModel& model) {
    std::vector<LayerHead> heads;
    for (int layer = 0; layer < model.layers(); ++layer) {
      if (model.groups[model.group_of_layer[layer]].window > 0) continue;
      for (int head = 0; head < model.attention(layer).heads; ++head)
        heads.push_back({layer, head});
    }
    return heads;
  }

  static std::vector<int32_t> Prompt(int32_t vocabulary) {
    std::mt19937_64 random(3);
    std::vector<int32_t> prompt;
    for (int32_t n = 0; n < kPromptTokens; ++n) {
      prompt.push_back(static_cast<int32_t>(3 + random() % (vocabulary - 3)));
    }
    return prompt;
  }

  DriverResult Run(const RankModel& model, const DriverOptions& options) {
    return StepDriver(world_, model, options)
        .Run({Prompt(model.config.vocabulary)}, kEvidenceRows)[0];
  }

  CpuWorld world_;
};

double Sum(const std::vector<EvidenceShare>& shares) {
  double sum = 0;
  for (const EvidenceShare& share : shares) sum += share.share;
  return sum;
}

void ExpectNear(const DriverResult& a, const DriverResult& b, double tolerance) {
  ASSERT_EQ(a.shares.size(), b.shares.size());
  for (size_t token = 0; token < a.shares.size(); ++token) {
    std::map<int32_t, double> each;
    for (const EvidenceShare& share : a.shares[token]) each[share.begin] += share.share;
    for (const EvidenceShare& share : b.shares[token]) each[share.begin] -= share.share;
    // A share may be just below what is left out on one side.
    for (const auto& [begin, difference] : each) {
      const bool left_out = std::abs(std::abs(difference) - kLeastEvidenceShare) < tolerance;
      if (left_out) continue;
      EXPECT_NEAR(difference, 0, tolerance) << "token " << token << " at " << begin;
    }
  }
}

TEST_P(Evidence, OfAWholePromptIsAllAttentionThatTheAnswerDoesNotGetItself) {
  const RankModel model = Load();
  DriverOptions options;
  options.evidence = {AllHeads(model), {{0, kPromptTokens}}};
  const DriverResult result = Run(model, options);
  ASSERT_EQ(result.shares.size(), kEvidenceRows);
  // The prompt's last row has no other keys.
  if (GetParam().sinks) {
    EXPECT_LT(Sum(result.shares[0]), 0.9);
    EXPECT_GT(Sum(result.shares[0]), 0.01);
  } else {
    EXPECT_NEAR(Sum(result.shares[0]), 1, 0.003);
  }
  for (size_t token = 1; token < result.shares.size(); ++token) {
    EXPECT_LT(Sum(result.shares[token]), 1.001);  // weights are rounded
    EXPECT_GT(Sum(result.shares[token]), 0.001);
  }
}

TEST_P(Evidence, OfAPartOfABlockIsItsOwn) {
  const RankModel model = Load();
  DriverOptions options;
  options.evidence = {AllHeads(model), {{0, kPromptTokens}}};
  const DriverResult whole = Run(model, options);
  options.evidence->ranges = {{0, 4}, {4, 70}, {70, 71}, {71, 200}, {200, kPromptTokens}};
  const DriverResult cut = Run(model, options);
  std::map<int32_t, double> blocks;
  const int32_t tokens = EvidenceBlock(GetParam().page_tokens);
  for (const EvidenceShare& share : whole.shares[0]) blocks[share.begin / tokens] += share.share;
  for (const EvidenceShare& share : cut.shares[0]) {
    EXPECT_EQ(share.begin / tokens, (share.end - 1) / tokens);
    blocks[share.begin / tokens] -= share.share;
  }
  for (const auto& [block, difference] : blocks) {
    EXPECT_NEAR(difference, 0, 3 * kLeastEvidenceShare) << "block " << block;
  }
  options.evidence->ranges = {{70, 71}};
  const DriverResult alone = Run(model, options);
  for (const EvidenceShare& share : alone.shares[0]) EXPECT_EQ(share.begin, 70);
}

// Also that an answer with evidence is the answer without, in every bit.
TEST_P(Evidence, IsTheSameOnEveryRingAndWithGuesses) {
  const RankModel model = Load();
  DriverOptions options;
  options.logprobs = 0;
  const DriverResult without = Run(model, options);
  EXPECT_THAT(without.shares, ::testing::Each(::testing::IsEmpty()));
  options.evidence = {AllHeads(model), {{4, 90}, {101, 250}}};
  const DriverResult first = Run(model, options);
  EXPECT_EQ(first.tokens, without.tokens);
  EXPECT_EQ(LogprobBits(first), LogprobBits(without));
  EXPECT_FALSE(first.shares[0].empty());
  for (const int ranks : {1, 2, 3, 4}) {
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      for (const bool guesses : {false, true}) {
        SCOPED_TRACE(::testing::Message() << ranks << " ranks, mode " << static_cast<int>(mode)
                                          << (guesses ? ", guesses" : ""));
        options.ranks = ranks;
        options.mode = mode;
        options.copying_ring = ranks == 3;
        options.draft = nullptr;
        if (guesses) {
          options.draft = [&](const Sequence& sequence) {
            const size_t done = sequence.tokens.size() - kPromptTokens;
            // Not the last one: a row of it would sample one token more.
            std::vector<int32_t> draft(without.tokens.begin() + done, without.tokens.end() - 1);
            if (draft.size() > 3) draft[3] = 1;  // most likely wrong
            return draft;
          };
        }
        const DriverResult result = Run(model, options);
        EXPECT_EQ(result.tokens, without.tokens);
        EXPECT_EQ(LogprobBits(result), LogprobBits(without));
        ExpectNear(result, first, 1e-5);
      }
    }
  }
}

TEST_P(Evidence, OutlivesAChunkThatIsSuspendedBetweenLayers) {
  const RankModel model = Load();
  DriverOptions options;
  options.ranks = 2;
  options.evidence = {AllHeads(model), {{4, 250}}};
  const DriverResult whole = Run(model, options);
  options.stretch = [](int left) { return left > 1 ? 1 : left; };
  StepDriver driver(world_, model, options);
  const DriverResult parts = driver.Run({Prompt(model.config.vocabulary)}, kEvidenceRows)[0];
  EXPECT_GT(driver.stretches(), 0);
  EXPECT_EQ(parts.tokens, whole.tokens);
  ExpectNear(parts, whole, 1e-5);
}

// With windows, learned sinks, soft caps, norms of queries and keys, shapes by layer; pages that
// are blocks by themselves, and larger ones; keys and values in 16 and 8 bits.
INSTANTIATE_TEST_SUITE_P(All, Evidence,
                         ::testing::ValuesIn(testing::ThinnedIfSanitized<EvidenceCase>(
                             {{"llama_mha"},
                              {"llama_mha", DType::kBF16, 64},
                              {"llama_mha", DType::kI8, 128},
                              {"gpt_oss", DType::kF32, 16, true},
                              {"gemma2", DType::kF32, 64},
                              {"gemma4", DType::kBF16, 32}},
                             2)),
                         [](const auto& info) {
                           return info.param.family + "_" +
                                  std::string(DTypeName(info.param.kv_dtype)) + "_" +
                                  std::to_string(info.param.page_tokens);
                         });

TEST(EvidenceParts, EndWhereBlocksAndRangesEnd) {
  const std::vector<RowRange> parts =
      EvidenceParts(std::vector<RowRange>{{4, 64}, {64, 65}, {70, 200}}, 64);
  EXPECT_EQ(parts, (std::vector<RowRange>{{4, 64}, {64, 65}, {70, 128}, {128, 192}, {192, 200}}));
  EXPECT_EQ(EvidenceBlock(16), 64);
  EXPECT_EQ(EvidenceBlock(48), 96);
  EXPECT_EQ(EvidenceBlock(64), 64);
  EXPECT_EQ(EvidenceBlock(128), 128);
}

}  // namespace
}  // namespace annulus
