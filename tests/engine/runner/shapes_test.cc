// Attention of shapes that no family's golden has, against plain loops in float64: values that are
// narrower or wider than keys, and layers that differ.

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "engine/model/made/random_tensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/model/plain_forward.h"
#include "tests/support/step_driver.h"

namespace annulus {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::DriverResult;
using ::testing::HasSubstr;
using testing::PlainForward;
using testing::StepDriver;

constexpr int kPage = 16;
constexpr int32_t kWindow = 40;  // no multiple of a page
constexpr int32_t kVocabulary = 61;

// A decoder of Llama's kind with these layers. `pairs`: of each rope setting.
ModelConfig Decoder(std::vector<LayerConfig> layers, const std::vector<int32_t>& pairs) {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.model_type = "llama";
  config.vocabulary = kVocabulary;
  config.hidden_size = 40;
  config.intermediate_size = 56;
  config.layers = std::move(layers);
  config.attention_bias = config.output_bias = true;
  config.max_context = 4096;
  for (const int32_t count : pairs) config.ropes.emplace_back().pairs = count;
  return config;
}

std::vector<int32_t> Prompt() {
  std::mt19937 random(3);
  std::uniform_int_distribution<int32_t> id(0, kVocabulary - 1);
  std::vector<int32_t> prompt(150);
  for (int32_t& each : prompt) each = id(random);
  return prompt;
}

// The largest difference over the largest magnitude, of every position but the last.
double ErrorOf(const DriverResult& result, const std::vector<float>& expected) {
  double worst = 0, scale = 0;
  for (const auto& [position, logits] : result.logits) {
    for (size_t v = 0; v < logits.size(); ++v) {
      const double wanted = expected[static_cast<size_t>(position) * kVocabulary + v];
      worst = std::max(worst, std::abs(logits[v] - wanted));
      scale = std::max(scale, std::abs(wanted));
    }
  }
  return worst / scale;
}

// Logits are those of the plain loops, and the same bits in every ring and mode.
void ExpectPlainLogits(const ModelConfig& config) {
  CpuWorld world;
  const std::unique_ptr<TensorSource> tensors = MakeRandomTensors(config, 5);
  const std::vector<int32_t> prompt = Prompt();
  const std::vector<float> expected = PlainForward(config, *tensors).Logits(prompt);
  for (const OpTable* ops : world.registry.Available("cpu")) {
    const RankModel model = MakeRankModel(
        config, LoadWeights(config, *tensors, *world.backend, *ops, DType::kF32).value(), *ops,
        kPage, DType::kF32);
    std::vector<DriverResult> alone;
    for (const int ranks : {1, 3}) {
      for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
        SCOPED_TRACE(::testing::Message()
                     << ops->name << ", " << ranks << " ranks, mode " << static_cast<int>(mode));
        DriverOptions options;
        options.ranks = ranks;
        options.mode = mode;
        options.prefill_rows = kPage;
        options.all_logits = true;
        std::vector<DriverResult> results = StepDriver(world, model, options).Run({prompt}, 8);
        ASSERT_GE(results[0].logits.size(), prompt.size() - 1);
        std::erase_if(results[0].logits, [&](const auto& row) {
          return row.first >= static_cast<int32_t>(prompt.size());
        });
        EXPECT_LE(ErrorOf(results[0], expected), 1e-5);
        if (alone.empty()) alone = results;
        EXPECT_EQ(results[0].tokens, alone[0].tokens);
        EXPECT_EQ(results[0].logits, alone[0].logits);
      }
    }
  }
}

std::vector<LayerConfig> Layers(const std::vector<int32_t>& windows, const AttentionShape& shape) {
  std::vector<LayerConfig> layers;
  for (const int32_t window : windows) layers.push_back({.window = window, .attention = shape});
  return layers;
}

TEST(Shapes, ValuesMayBeWiderThanKeys) {
  ExpectPlainLogits(
      Decoder(Layers({0, kWindow, 0}, {.heads = 6, .kv_heads = 2, .k_dim = 12, .v_dim = 20}), {6}));
}

TEST(Shapes, ValuesMayBeNarrowerThanKeysOfWhichRopeTurnsAPart) {
  ExpectPlainLogits(
      Decoder(Layers({0, kWindow, 0}, {.heads = 4, .kv_heads = 4, .k_dim = 24, .v_dim = 7}), {5}));
}

// As in Gemma 4: layers without a window have fewer and larger heads of keys and values, and a rope
// of their own.
TEST(Shapes, LayersMayDifferInHeadsSizesAndRope) {
  const LayerConfig sliding = {.window = kWindow,
                               .rope = 0,
                               .attention = {.heads = 4, .kv_heads = 4, .k_dim = 16, .v_dim = 16}};
  const LayerConfig full = {
      .window = 0, .rope = 1, .attention = {.heads = 6, .kv_heads = 1, .k_dim = 24, .v_dim = 20}};
  ModelConfig config = Decoder({sliding, sliding, full, sliding, full}, {8, 4});
  config.ropes[1].theta = 1e6;
  ExpectPlainLogits(config);
}

TEST(Shapes, WhatDiffersIsRefusedWhereItDoesNotGo) {
  CpuWorld world;
  const auto create = [&](const ModelConfig& config, const EngineOptions& engine) {
    RankModel model;
    model.config = config;
    RankSetOptions options;
    options.engine = engine;
    return RankSet::Create(model, *world.backend, options).status();
  };
  const AttentionShape shape = {.heads = 2, .kv_heads = 2, .k_dim = 8, .v_dim = 8};
  ModelConfig config = Decoder(Layers({0, 0, kWindow}, shape), {4});
  config.layers[1].attention.v_dim = 4;
  const absl::Status differ = create(config, {});
  EXPECT_EQ(differ.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(differ.message()), HasSubstr("even those without a window"));
  std::swap(config.layers[1].attention, config.layers[2].attention);
  EngineOptions keeps;
  keeps.kv_host_bytes = 1 << 20;
  const absl::Status stored = create(config, keeps);
  EXPECT_EQ(stored.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(stored.message()), HasSubstr("leave kv-host out"));
}

// The last layer and the first have fewer elements than those between them.
TEST(Shapes, TheLargestLayerMayBeAny) {
  const LayerConfig small = {.window = 0,
                             .attention = {.heads = 2, .kv_heads = 2, .k_dim = 8, .v_dim = 4}};
  const LayerConfig large = {.window = kWindow,
                             .attention = {.heads = 8, .kv_heads = 2, .k_dim = 20, .v_dim = 32}};
  ExpectPlainLogits(Decoder({small, large, small, large, small}, {4}));
}

}  // namespace
}  // namespace annulus
