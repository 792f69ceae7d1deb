// Guessed rows change nothing but the number of steps: the same tokens and the same bits of log
// probabilities, whichever guesses are right, on every ring.

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

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

constexpr int kMaxTokens = 60;

// Guesses what is known to come, each token right with some probability. Up to two more than rows
// that go together, so that the planner must cut some.
class Oracle {
 public:
  Oracle(std::vector<std::vector<int32_t>> answers, double right, int32_t vocabulary)
      : answers_(std::move(answers)), right_(right), vocabulary_(vocabulary) {}

  std::vector<int32_t> operator()(const Sequence& sequence) {
    const std::vector<int32_t>& answer = answers_[sequence.id];
    const size_t done = sequence.tokens.size() - sequence.prompt_length;
    const size_t length = random_() % (kMostSampledRows + 2);
    std::vector<int32_t> draft;
    // The last token is given by a row before it.
    for (size_t i = done; i + 1 < answer.size() && draft.size() < length; ++i) {
      const bool right = static_cast<double>(random_() % 1000) < 1000 * right_;
      draft.push_back(right ? answer[i] : static_cast<int32_t>(random_() % vocabulary_));
    }
    return draft;
  }

 private:
  std::vector<std::vector<int32_t>> answers_;
  double right_;
  int32_t vocabulary_;
  std::mt19937_64 random_{testing::TestSeed()};
};

struct Case {
  std::string family;
  DType kv_dtype = DType::kF32;
};

class Drafts : public ::testing::TestWithParam<Case> {
 protected:
  RankModel Load() {
    return testing::LoadGoldenModel(world_, GetParam().family, 16, GetParam().kv_dtype);
  }

  // Two sequences, of which one is sampled with everything that depends on the answer so far.
  static SamplingParams Sampling(bool penalties) {
    SamplingParams params;
    params.seed = 5;
    params.max_tokens = kMaxTokens;
    params.temperature = penalties ? 0.9f : 0.0f;
    if (!penalties) return params;
    params.frequency_penalty = 0.5f;
    params.presence_penalty = 0.25f;
    params.repetition_penalty = 1.2f;
    params.min_tokens = 30;
    return params;
  }

  CpuWorld world_;
};

TEST_P(Drafts, ChangeNoBit) {
  const RankModel model = Load();
  const int32_t vocabulary = model.config.vocabulary;
  std::mt19937_64 random(3);
  std::vector<std::vector<int32_t>> prompts(2);
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (size_t n = 0; n < 70 + 23 * i; ++n) {
      prompts[i].push_back(static_cast<int32_t>(3 + random() % (vocabulary - 3)));
    }
  }
  for (const bool penalties : {false, true}) {
    DriverOptions options;
    options.sampling = Sampling(penalties);
    options.logprobs = 2;
    StepDriver plain(world_, model, options);
    const std::vector<DriverResult> expected = plain.Run(prompts, kMaxTokens);
    for (const int ranks : {1, 2, 3, 4}) {
      for (const double right : {0.0, 0.8, 1.0}) {
        options.ranks = ranks;
        options.copying_ring = ranks == 3;
        options.draft = Oracle({expected[0].tokens, expected[1].tokens}, right, vocabulary);
        StepDriver driver(world_, model, options);
        const std::vector<DriverResult> results = driver.Run(prompts, kMaxTokens);
        const std::string where = std::to_string(ranks) + " ranks, right " + std::to_string(right) +
                                  (penalties ? ", penalties" : "") + ", seed " +
                                  std::to_string(testing::TestSeed());
        for (size_t i = 0; i < prompts.size(); ++i) {
          EXPECT_EQ(results[i].tokens, expected[i].tokens) << where;
          EXPECT_EQ(LogprobBits(results[i]), LogprobBits(expected[i])) << where;
        }
        if (right < 1) continue;
        EXPECT_LT(3 * driver.decode_steps(), plain.decode_steps()) << where;
      }
    }
  }
}

// With windows, learned sinks, experts, soft caps, norms of queries and keys, shapes by layer, keys
// of other layers; keys and values in every dtype.
INSTANTIATE_TEST_SUITE_P(
    All, Drafts,
    ::testing::ValuesIn(testing::ThinnedIfSanitized<Case>({{"llama_mha"},
                                                           {"gpt_oss"},
                                                           {"gemma2"},
                                                           {"gemma3"},
                                                           {"qwen3_moe"},
                                                           {"mistral_window"},
                                                           {"olmo2"},
                                                           {"gemma4"},
                                                           {"gemma4_moe"},
                                                           {"gemma3n"},
                                                           {"llama_mha", DType::kI8},
                                                           {"gpt_oss", DType::kBF16},
                                                           {"llama_mha", DType::kF8E4M3}},
                                                          2)),
    [](const auto& info) {
      return info.param.family + "_" + std::string(DTypeName(info.param.kv_dtype));
    });

}  // namespace
}  // namespace annulus
