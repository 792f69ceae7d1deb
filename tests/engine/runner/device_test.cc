// The engine on a device whose memory the host cannot touch: see device_fixture.h.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/engine_seams.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/ops.h"
#include "tests/engine/runner/device_fixture.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/golden.h"
#include "tests/support/plain_options.h"
#include "tests/support/step_driver.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

using testing::AllLogits;
using testing::CpuWorld;
using testing::DeviceTest;
using testing::Difference;
using testing::DriverOptions;
using testing::DriverResult;
using testing::RingSizes;
using testing::Some;
using ::testing::StartsWith;
using testing::StepDriver;

// Families with biases, norms of queries and keys before and after rope, soft caps, windows, sinks,
// experts, shared blocks, queries that grow, scales of embeddings and logits, norms by the variance
// with and without biases and with a weight for each head, blocks beside attention or without gate,
// several residuals with inputs of layers and keys of other layers.
TEST_F(DeviceTest, LogitsMatchTransformers) {
  for (const std::string& name :
       Some({"gpt_oss_bf16", "llama_gqa_bf16", "qwen2", "qwen3", "gemma2", "olmo2", "mixtral",
             "qwen3_moe", "qwen2_moe", "glm4_moe", "ministral3", "granite", "hunyuan",
             "cohere_head_norms", "stablelm_parallel", "starcoder2", "gemma3n", "gemma3n_three"})) {
    const testing::Golden golden = testing::LoadGolden(testing::TestFile("golden/" + name));
    const RankModel model = Load(name);
    for (const int ranks : RingSizes()) {
      const RingMode mode = name.size() % 2 == 0 ? RingMode::kPassQ : RingMode::kPassKv;
      DriverOptions options = AllLogits(ranks, mode);
      const auto results = StepDriver(*backend_, model, options).Run({golden.prompt}, 2);
      ASSERT_EQ(results[0].logits.size(), golden.prompt.size() - 1) << name;
      EXPECT_LE(Difference(results[0], golden), 1e-4) << name << ", " << ranks << " ranks";
      EXPECT_EQ(results[0].tokens[0], golden.greedy[0]) << name << ", " << ranks << " ranks";
    }
  }
}

// What a chunk that is suspended between layers passes on stays on the device.
TEST_F(DeviceTest, SuspendedChunksMatchTransformers) {
  for (const std::string& name :
       Some({"gpt_oss_bf16", "llama_gqa_bf16", "gemma2", "qwen3_moe", "gemma3n"})) {
    const testing::Golden golden = testing::LoadGolden(testing::TestFile("golden/" + name));
    const RankModel model = Load(name);
    for (const int ranks : RingSizes()) {
      DriverOptions options = AllLogits(ranks, RingMode::kPassKv);
      options.stretch = [](int) { return 1; };
      StepDriver driver(*backend_, model, options);
      const auto results = driver.Run({golden.prompt}, 2);
      EXPECT_GT(driver.stretches(), 0);
      ASSERT_EQ(results[0].logits.size(), golden.prompt.size() - 1) << name;
      EXPECT_LE(Difference(results[0], golden), 1e-4) << name << ", " << ranks << " ranks";
      EXPECT_EQ(results[0].tokens[0], golden.greedy[0]) << name << ", " << ranks << " ranks";
    }
  }
}

// Rounded to bf16, products and attention run on (emulated) tensor cores: the bound is that of
// tests/engine/runner/golden_test.cc for tables that round inputs.
TEST_F(DeviceTest, LogitsInBf16AreNear) {
  const std::string name = "llama_gqa_bf16";
  const testing::Golden golden = testing::LoadGolden(testing::TestFile("golden/" + name));
  const RankModel model = Load(name, DType::kBF16);
  for (const int ranks : RingSizes()) {
    const auto results =
        StepDriver(*backend_, model, AllLogits(ranks, RingMode::kPassKv)).Run({golden.prompt}, 1);
    EXPECT_LE(Difference(results[0], golden), 0.05) << ranks << " ranks";
  }
}

// Weights and inputs of layers in fp8: codes are the reference's but where sums of another order
// fall to the other side between two codes, and the head rounds its inputs to bf16. Inputs of
// layers that are no codes are several times as far off.
TEST_F(DeviceTest, Fp8ActivationsAreThoseOfTheReference) {
  CpuWorld world;
  const std::string name = "llama_mha";
  testing::Golden expected = testing::LoadGolden(testing::TestFile("golden/" + name));
  const auto logits = [&](Backend& backend, const OpTable& table, Activations activations) {
    const std::string directory = testing::TestFile("golden/" + name).string();
    const ModelConfig config = LoadModelConfig(directory).value();
    const auto tensors = SafetensorsCheckpoint::Open(directory).value();
    RankModel model =
        MakeRankModel(config, LoadWeights(config, *tensors, backend, table, DType::kF8E4M3).value(),
                      table, 16, DType::kF32);
    model.activations = activations;
    const DriverOptions options = AllLogits(1, RingMode::kPassKv);
    return StepDriver(backend, model, options).Run({expected.prompt}, 1)[0];
  };
  const DriverResult reference =
      logits(*world.backend, *world.Find("cpu/reference"), Activations::kFp8);
  for (const auto& [position, row] : reference.logits) {
    std::copy(row.begin(), row.end(),
              expected.logits.begin() + static_cast<int64_t>(position) * expected.vocabulary);
  }
  const double with_codes = Difference(logits(*backend_, ops(), Activations::kFp8), expected);
  const double without = Difference(logits(*backend_, ops(), Activations::kFloat), expected);
  EXPECT_LE(with_codes, 0.05);
  EXPECT_LE(with_codes, without / 3) << without;
}

// Policies that look at content choose the same as on the CPU, over the same numbers.
TEST_F(DeviceTest, PoliciesChooseAsOnTheCpu) {
  CpuWorld world;
  const OpTable* const reference = world.Find("cpu/reference");
  const RankModel model = Load("llama_gqa_bf16");
  const RankModel expected_model = Load("llama_gqa_bf16", DType::kF32, *world.backend, *reference);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 270; ++i) prompt.push_back(i * i * 7 % 101);
  for (const std::string& text :
       Some({"adaptive:block=16,tau=0.6,stride=8", "top_pages:pages=3,block=16",
             "adaptive:block=16,estimator=pooled,tau=0.4",
             "window:sinks=16,window=48,block=16,coverage=0.9",
             "dilated:segments=32/96,rates=1/3,block=16"})) {
    const auto policy = ParsePolicy(text);
    ASSERT_TRUE(policy.ok()) << text << ": " << policy.status();
    DriverOptions options = AllLogits(2, RingMode::kPassKv);
    options.attention = *policy;
    const auto actual = StepDriver(*backend_, model, options).Run({prompt}, 2)[0];
    const auto expected = StepDriver(world, expected_model, options).Run({prompt}, 2)[0];
    EXPECT_EQ(actual.tokens, expected.tokens) << text;
    ASSERT_EQ(actual.logits.size(), expected.logits.size()) << text;
    double worst = 0;
    double scale = 0;
    for (const auto& [position, row] : expected.logits) {
      for (size_t v = 0; v < row.size(); ++v) {
        worst = std::max<double>(worst, std::abs(actual.logits.at(position)[v] - row[v]));
        scale = std::max<double>(scale, std::abs(row[v]));
      }
    }
    EXPECT_LE(worst, 1e-4 * scale) << text;
  }
}

// The shares of attention that evidence is made of, in steps that run as graphs and on every ring;
// the tokens are those without.
TEST_F(DeviceTest, EvidenceIsThatOfTheCpu) {
  CpuWorld world;
  const OpTable* const reference = world.Find("cpu/reference");
  const RankModel model = Load("llama_gqa_bf16");
  const RankModel expected_model = Load("llama_gqa_bf16", DType::kF32, *world.backend, *reference);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 270; ++i) prompt.push_back(i * i * 7 % 101);
  constexpr int kTokens = 4;
  DriverOptions options;
  const auto plain = StepDriver(*backend_, model, options).Run({prompt}, kTokens)[0];
  options.evidence.emplace();
  for (int layer = 0; layer < model.layers(); ++layer) {
    options.evidence->heads.push_back({layer, 0});
    options.evidence->heads.push_back({layer, model.attention(layer).heads - 1});
  }
  options.evidence->ranges = {{4, 90}, {101, 250}};
  const auto expected = StepDriver(world, expected_model, options).Run({prompt}, kTokens)[0];
  for (const int ranks : RingSizes()) {
    options.ranks = ranks;
    const auto actual = StepDriver(*backend_, model, options).Run({prompt}, kTokens)[0];
    EXPECT_EQ(actual.tokens, plain.tokens) << ranks;
    EXPECT_EQ(actual.tokens, expected.tokens) << ranks;
    ASSERT_EQ(actual.shares.size(), expected.shares.size());
    for (size_t token = 0; token < actual.shares.size(); ++token) {
      ASSERT_EQ(actual.shares[token].size(), expected.shares[token].size()) << ranks;
      for (size_t i = 0; i < actual.shares[token].size(); ++i) {
        EXPECT_EQ(actual.shares[token][i].begin, expected.shares[token][i].begin);
        EXPECT_NEAR(actual.shares[token][i].share, expected.shares[token][i].share, 1e-3);
      }
    }
  }
}

TEST_F(DeviceTest, AnswersThroughTheWholeEngine) {
  EngineOptions options = testing::PlainOptions();
  options.ranks = 2;
  options.kv_memory_bytes = size_t{64} << 20;
  options.chunk_tokens = 128;
  options.tokens_per_rank = 64;
  options.ring_mode = RingMode::kPassKv;
  const auto engine = CreateEngineWith({.through_bytes = true}, options, *backend_, registry_);
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_THAT((*engine)->model().kernels, StartsWith("cuda/"));
  RequestSpec spec = testing::GateQuestion(**engine);
  auto sink = std::make_shared<testing::CollectingSink>();
  ASSERT_TRUE((*engine)->Submit(std::move(spec), sink).ok());
  ASSERT_TRUE(sink->Wait().has_value());
  EXPECT_EQ(sink->text(), "0417");
}

// A model whose rows have several residuals, from its directory to the tokens before the first that
// ends an answer.
TEST_F(DeviceTest, TheEngineServesSeveralResiduals) {
  const std::filesystem::path directory = testing::TestFile("golden/gemma3n");
  const testing::Golden golden = testing::LoadGolden(directory);
  EngineOptions options = testing::PlainOptions();
  options.model = directory.string();
  options.weights_dtype = DType::kF32;
  options.ring_mode = RingMode::kPassQ;
  options.ranks = 2;
  options.kv_memory_bytes = size_t{64} << 20;
  options.chunk_tokens = 128;
  options.tokens_per_rank = 64;
  const auto engine = CreateEngineWith({.through_bytes = true}, options, *backend_, registry_);
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_THAT((*engine)->model().kernels, StartsWith("cuda/"));
  constexpr int kTokens = 7;
  RequestSpec spec;
  spec.prompt = golden.prompt;
  spec.sampling.temperature = 0;
  spec.sampling.max_tokens = kTokens;
  auto sink = std::make_shared<testing::CollectingSink>();
  ASSERT_TRUE((*engine)->Submit(std::move(spec), sink).ok());
  ASSERT_TRUE(sink->Wait().has_value());
  EXPECT_EQ(sink->ids(),
            std::vector<int32_t>(golden.greedy.begin(), golden.greedy.begin() + kTokens));
}

std::atomic<size_t> rows_on_device{0};

// Greedy, drawn, filtered, and with all that is done to logits before. Ending ids are excluded
// until the fourth token.
std::vector<SamplingParams> WaysToSample(const std::vector<int32_t>& prompt) {
  SamplingParams params;
  params.seed = 11;
  params.max_tokens = 6;
  params.temperature = 0;
  std::vector<SamplingParams> ways = {params};
  params.temperature = 2;
  ways.push_back(params);
  params.top_k = 50;
  ways.push_back(params);
  params.top_k = 0;
  params.top_p = 0.9f;
  ways.push_back(params);
  params.repetition_penalty = 1.7f;
  ways.push_back(params);
  params.frequency_penalty = 0.4f;
  params.presence_penalty = -0.3f;
  params.logit_bias = {{prompt[1], 1.5f}, {prompt[2], -100}, {7, 3}};
  ways.push_back(params);
  params.min_tokens = 4;
  params.stop_token_ids = {prompt.back(), 7};
  ways.push_back(params);
  params.temperature = 0;
  ways.push_back(params);
  for (SamplingParams& way : ways) way.ignore_eos = way.min_tokens == 0;
  return ways;
}

// What each way makes of the prompt, which they do together.
std::vector<std::vector<int32_t>> Answers(Engine& engine, const std::vector<int32_t>& prompt,
                                          std::vector<SamplingParams> ways) {
  std::vector<std::shared_ptr<testing::CollectingSink>> sinks;
  for (SamplingParams& way : ways) {
    RequestSpec spec;
    spec.prompt = prompt;
    spec.sampling = std::move(way);
    sinks.push_back(std::make_shared<testing::CollectingSink>());
    EXPECT_TRUE(engine.Submit(std::move(spec), sinks.back()).ok());
  }
  std::vector<std::vector<int32_t>> answers;
  for (const auto& sink : sinks) {
    const auto done = sink->Wait();
    EXPECT_TRUE(done.has_value() && done->status.ok());
    answers.push_back(sink->ids());
  }
  return answers;
}

// Requests that ask for log-probabilities are sampled on the host, of the same logits: tokens must
// not change by that. They run together, so that batches have rows of both kinds.
TEST_F(DeviceTest, TokensChosenOnTheDeviceAreThoseOfTheHost) {
  KernelEntry entry;
  entry.ops = cuda::Ops();
  entry.ops.sample = [](Stream& stream, const SampleParams& params) {
    rows_on_device += params.rows.size();
    return cuda::Sample(stream, params);
  };
  entry.backend = "cuda";
  entry.weights_dtypes = {DType::kF32};
  entry.kv_dtypes = {DType::kF32};
  entry.max_head_dim = cuda::kMaxAttentionDim;
  KernelRegistry counting;
  counting.Register(std::move(entry));
  EngineOptions options = testing::PlainOptions();
  options.kv_memory_bytes = size_t{64} << 20;
  const auto engine =
      CreateEngineWith({.through_bytes = true}, options, *backend_, counting).value();
  // What follows is known to be one of several.
  const std::vector<int32_t> prompt =
      engine->Tokenize("abcdefgh1abcdefgh2abcdefgh3abcdefgh4abcdefgh", true, CancelFlag::Never())
          .value();
  std::vector<SamplingParams> ways = WaysToSample(prompt);
  const size_t half = ways.size();
  for (size_t i = 0; i < half; ++i) {
    ways.push_back(ways[i]);
    ways.back().logprobs = 0;
  }
  rows_on_device = 0;
  const auto answers = Answers(*engine, prompt, ways);
  size_t chosen = 0;
  for (size_t i = 0; i < half; ++i) {
    EXPECT_EQ(answers[i], answers[half + i]) << "request " << i;
    EXPECT_GE(answers[i].size(), 3u) << "request " << i;
    chosen += answers[i].size();
  }
  EXPECT_NE(answers[0], answers[1]);
  EXPECT_NE(answers[3], answers[4]);
  EXPECT_NE(answers[4], answers[5]);
  EXPECT_GE(rows_on_device, chosen);  // and a few that a step ahead has drawn in vain
  EXPECT_LE(rows_on_device, chosen + 3 * half);
}

// Guessed rows, right and wrong ones: the tokens are those without. With penalties a row is chosen
// for once it is known what the row before it gave, which the host does.
TEST_F(DeviceTest, GuessedRowsChangeNoToken) {
  const RankModel model = Load("llama_mha");
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 40; ++i) prompt.push_back(i * i * 7 % 101);
  constexpr int kTokens = 24;
  const std::vector<bool> ways = {false, true};
  for (const bool penalties : testing::Thinned(ways, 1)) {
    DriverOptions options;
    options.sampling = testing::Greedy();
    if (penalties) options.sampling->frequency_penalty = 0.7f;
    const std::vector<int32_t> plain =
        StepDriver(*backend_, model, options).Run({prompt}, kTokens)[0].tokens;
    // Every fifth guess is wrong.
    options.draft = [&](const Sequence& sequence) {
      const size_t done = sequence.tokens.size() - prompt.size();
      std::vector<int32_t> draft;
      for (size_t i = done; i + 1 < plain.size() && draft.size() < 6; ++i) {
        draft.push_back(i % 5 == 4 ? plain[i] ^ 1 : plain[i]);
      }
      return draft;
    };
    for (const int ranks : RingSizes()) {
      options.ranks = ranks;
      EXPECT_EQ(StepDriver(*backend_, model, options).Run({prompt}, kTokens)[0].tokens, plain)
          << ranks << " ranks, penalties " << penalties;
    }
  }
}

// Of a model whose logits lie apart by more than both round.
TEST_F(DeviceTest, TokensWithPenaltiesAreThoseOfTheCpu) {
  CpuWorld world;
  const RankModel model = Load("llama_gqa_bf16");
  const RankModel expected_model =
      Load("llama_gqa_bf16", DType::kF32, *world.backend, *world.Find("cpu/reference"));
  const std::vector<std::vector<int32_t>> prompts = {{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}, {2, 7, 1}};
  const std::vector<SamplingParams> ways = WaysToSample(prompts[0]);
  std::set<std::vector<int32_t>> answers;
  for (const size_t way : {4, 6, 7}) {
    DriverOptions options;
    options.sampling = ways[way];
    options.kv_bytes = size_t{8} << 20;
    const auto actual = StepDriver(*backend_, model, options).Run(prompts, 6);
    const auto expected = StepDriver(world, expected_model, options).Run(prompts, 6);
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(actual[i].tokens.size(), 6u);
      EXPECT_EQ(actual[i].tokens, expected[i].tokens) << "way " << way << ", prompt " << i;
    }
    answers.insert(actual[0].tokens);
  }
  EXPECT_EQ(answers.size(), 3u) << "ways that do not matter";
}

}  // namespace
}  // namespace annulus
