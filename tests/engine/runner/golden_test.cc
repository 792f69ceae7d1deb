// Whole models on ranks against logits and greedy tokens that Hugging Face Transformers computed in
// float32 (tests/golden/make_goldens.py).

#include "tests/support/golden.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/model/files/safetensors.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "tests/support/step_driver.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::DriverResult;
using testing::StepDriver;

struct Checkpoint {
  ModelConfig config;
  std::unique_ptr<TensorSource> tensors;
  testing::Golden golden;
};

Checkpoint Open(const std::string& name) {
  const std::string directory = testing::TestFile("golden/" + name).string();
  Checkpoint checkpoint;
  checkpoint.config = LoadModelConfig(directory).value();
  checkpoint.tensors = SafetensorsCheckpoint::Open(directory).value();
  checkpoint.golden = testing::LoadGolden(directory);
  return checkpoint;
}

// Weights in float32, which is exact for every checkpoint: no table then rounds the inputs of its
// linear layers (kernels/ops/linear.h).
RankModel Load(CpuWorld& world, const Checkpoint& checkpoint, const OpTable& ops, int page_tokens,
               DType kv_dtype = DType::kF32, DType weights_dtype = DType::kF32) {
  ModelWeights weights =
      LoadWeights(checkpoint.config, *checkpoint.tensors, *world.backend, ops, weights_dtype)
          .value();
  return MakeRankModel(checkpoint.config, std::move(weights), ops, page_tokens, kv_dtype);
}

struct Errors {
  double largest = 0;  // largest difference over the largest magnitude
  double norm = 0;     // root mean square of the differences over that of the logits
};

Errors Compare(const DriverResult& result, const testing::Golden& golden, int vocabulary) {
  double worst = 0;
  double scale = 0;
  double differences = 0;
  double squares = 0;
  for (const auto& [position, logits] : result.logits) {
    for (int v = 0; v < vocabulary; ++v) {
      const double expected = golden.logits[static_cast<size_t>(position) * vocabulary + v];
      const double difference = std::abs(logits[v] - expected);
      worst = std::max(worst, difference);
      scale = std::max(scale, std::abs(expected));
      differences += difference * difference;
      squares += expected * expected;
    }
  }
  return {worst / scale, std::sqrt(differences / squares)};
}

DriverOptions Options(int ranks, RingMode mode) {
  DriverOptions options;
  options.ranks = ranks;
  options.mode = mode;
  return options;
}

// Errors of the logits of every row but the last of the prompt.
Errors LogitsErrors(CpuWorld& world, const RankModel& model, const testing::Golden& golden,
                    DriverOptions options) {
  options.prefill_rows = model.page_shape.page_tokens;
  options.all_logits = true;
  const auto results = StepDriver(world, model, options).Run({golden.prompt}, 1);
  EXPECT_EQ(results[0].logits.size(), golden.prompt.size() - 1);
  return Compare(results[0], golden, model.config.vocabulary);
}

class Golden : public ::testing::TestWithParam<std::string> {};

TEST_P(Golden, LogitsOfEveryRowMatchTransformers) {
  CpuWorld world;
  const Checkpoint checkpoint = Open(GetParam());
  for (const OpTable* ops : world.registry.Available("cpu")) {
    for (const int page : {16, 64}) {
      const RankModel model = Load(world, checkpoint, *ops, page);
      for (const int ranks : {1, 3}) {
        for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
          EXPECT_LE(LogitsErrors(world, model, checkpoint.golden, Options(ranks, mode)).largest,
                    1e-4)
              << ops->name << ", " << ranks << " ranks, page " << page << ", mode "
              << static_cast<int>(mode);
        }
      }
    }
  }
}

// Weights are rounded to bf16, and in tables for bf16 products the inputs of linear layers too:
// relative errors of up to 2^-9 in every product. The relative error of logits is
// |difference| / |logits|, Euclidean norms over every row and id. Two roundings that do not depend
// on each other add up as their squares do. Where the files hold bf16 and no inputs are rounded,
// only the order of sums differs.
TEST_P(Golden, LogitsWithBf16WeightsAreNear) {
  CpuWorld world;
  const Checkpoint checkpoint = Open(GetParam());
  for (const OpTable* ops : world.registry.Available("cpu")) {
    const RankModel model = Load(world, checkpoint, *ops, 64, DType::kF32, DType::kBF16);
    const bool rounds_inputs =
        absl::StrContains(ops->name, "bf16") || absl::StrContains(ops->name, "amx");
    for (const int ranks : {1, 3}) {
      const Errors errors =
          LogitsErrors(world, model, checkpoint.golden, Options(ranks, RingMode::kPassKv));
      EXPECT_LE(errors.norm, rounds_inputs ? 2e-2 * std::sqrt(2.0) : 2e-2)
          << ops->name << ", " << ranks << " ranks";
      RecordProperty(
          absl::StrCat("bf16_", ranks, "_", absl::StrReplaceAll(ops->name, {{"/", "_"}})),
          absl::StrCat("norm ", errors.norm, ", largest ", errors.largest));
    }
  }
}

// Trained weights magnify less: even the largest difference of any logit is within the bound,
// relative to the largest logit.
TEST(TrainedModel, LogitsWithBf16WeightsAreNear) {
  const auto directory = testing::TestData("models/stories260K");
  if (!directory) GTEST_SKIP() << "the optional test data is absent";
  CpuWorld world;
  Checkpoint checkpoint;
  checkpoint.config = LoadModelConfig(directory->string()).value();
  checkpoint.tensors = SafetensorsCheckpoint::Open(directory->string()).value();
  std::ifstream file(*directory / "expected_greedy.json");
  const nlohmann::json story = nlohmann::json::parse(file).at(0);
  std::vector<int32_t> ids = story.at("prompt_ids").get<std::vector<int32_t>>();
  const auto greedy = story.at("greedy_ids").get<std::vector<int32_t>>();
  ids.insert(ids.end(), greedy.begin(), greedy.end());
  testing::Golden& golden = checkpoint.golden;
  golden.prompt = ids;
  const auto vocabulary = static_cast<size_t>(checkpoint.config.vocabulary);
  golden.logits.resize(ids.size() * vocabulary);
  DriverOptions options = Options(1, RingMode::kPassKv);
  options.prefill_rows = 64;
  options.all_logits = true;
  const RankModel exact = Load(world, checkpoint, *world.registry.Available("cpu").front(), 64);
  const auto expected = StepDriver(world, exact, options).Run({ids}, 1);
  for (const auto& [position, row] : expected[0].logits) {
    std::copy(row.begin(), row.end(),
              golden.logits.begin() + static_cast<int64_t>(position * vocabulary));
  }
  for (const OpTable* ops : world.registry.Available("cpu")) {
    const RankModel model = Load(world, checkpoint, *ops, 64, DType::kF32, DType::kBF16);
    const Errors errors = LogitsErrors(world, model, golden, options);
    EXPECT_LE(errors.largest, 2e-2) << ops->name;
    EXPECT_LE(errors.norm, 2e-2) << ops->name;
    EXPECT_GT(errors.norm, 1e-5) << ops->name << " rounds nothing";
  }
}

// `bound`: of the error that rounded inputs add, for the square root of the layers.
void CheckCodedInputs(const std::string& name, DType weights, Activations activations,
                      double bound) {
  CpuWorld world;
  const Checkpoint checkpoint = Open(name);
  const OpTable& ops = *world.registry.Available("cpu").back();
  ASSERT_EQ(ops.name, "cpu/reference");
  RankModel model = Load(world, checkpoint, ops, 64, DType::kF32, weights);
  const DriverOptions options = Options(1, RingMode::kPassKv);
  const Errors with_float = LogitsErrors(world, model, checkpoint.golden, options);
  model.activations = activations;
  const Errors with_codes = LogitsErrors(world, model, checkpoint.golden, options);
  std::cout << name << ": relative logit error with " << DTypeName(weights) << " weights "
            << with_float.norm << ", with " << ActivationsName(activations) << " activations too "
            << with_codes.norm << "\n";
  EXPECT_NE(with_float.norm, with_codes.norm);
  const double layers = static_cast<double>(checkpoint.config.layers.size());
  EXPECT_LE(with_codes.norm, with_float.norm + bound * std::sqrt(layers));
}

// Rounded inputs may turn a close choice of experts.
bool HasExperts(const std::string& name) { return Open(name).config.experts.count > 0; }

// Int8 activations beside float ones, both with weights in int8: a code is off by up to half a step
// of largest / 127, about 1% of a product of such widths, 7 products a layer.
TEST_P(Golden, LogitsWithInt8ActivationsAreNear) {
  CheckCodedInputs(GetParam(), DType::kI8, Activations::kInt8, HasExperts(GetParam()) ? 0.3 : 0.03);
}

TEST_P(Golden, LogitsWithInt4WeightsAndInt8ActivationsAreNear) {
  CheckCodedInputs(GetParam(), DType::kI4G32, Activations::kInt8,
                   HasExperts(GetParam()) ? 0.3 : 0.03);
}

// The same with fp8_e4m3, whose codes are off by up to 2^-4 of themselves: a product's error is
// about 2^-4 / sqrt(3) of its size, 4 times that of int8 codes.
TEST_P(Golden, LogitsWithFp8ActivationsAreNear) {
  CheckCodedInputs(GetParam(), DType::kF8E4M3, Activations::kFp8,
                   HasExperts(GetParam()) ? 0.4 : 0.12);
}

TEST_P(Golden, GreedyTokensAreTheSameAtEveryRankCountAloneOrBatched) {
  CpuWorld world;
  const Checkpoint checkpoint = Open(GetParam());
  const std::vector<int32_t>& prompt = checkpoint.golden.prompt;
  const int count = static_cast<int>(checkpoint.golden.greedy.size());
  for (const OpTable* ops : world.registry.Available("cpu")) {
    const RankModel model = Load(world, checkpoint, *ops, 16);
    for (const int ranks : {1, 3}) {
      DriverOptions options = Options(ranks, RingMode::kPassKv);
      options.tokens_per_rank = 40;  // rings of different degree share steps
      StepDriver driver(world, model, options);
      const std::vector<int32_t> half(prompt.begin(), prompt.begin() + prompt.size() / 2);
      const auto batched = driver.Run({half, prompt, {prompt[0]}, prompt}, count);
      EXPECT_EQ(batched[1].tokens, checkpoint.golden.greedy) << ops->name << ", ranks " << ranks;
      EXPECT_EQ(batched[3].tokens, checkpoint.golden.greedy) << ops->name << ", ranks " << ranks;
      EXPECT_EQ(batched[0].tokens, driver.Run({half}, count)[0].tokens);
    }
  }
}

// Every token has a scale of its own: what shares its step, and where, changes nothing.
TEST_P(Golden, Int4WeightsAndInt8ActivationsAnswerTheSameAtEveryRankCountAloneOrBatched) {
  CpuWorld world;
  const Checkpoint checkpoint = Open(GetParam());
  const std::vector<int32_t>& prompt = checkpoint.golden.prompt;
  KernelRequirements required;
  required.weights_dtype = DType::kI4G32;
  required.activations = Activations::kInt8;
  required.k_dim = required.v_dim = WidestAttention(checkpoint.config).k_dim;
  for (const OpTable* ops : world.registry.Available("cpu")) {
    required.implementation = ops->name;
    if (!world.registry.Select(required).ok()) continue;
    RankModel model = Load(world, checkpoint, *ops, 16, DType::kF32, DType::kI4G32);
    model.activations = Activations::kInt8;
    std::vector<int32_t> first;
    for (const int ranks : {1, 3}) {
      DriverOptions options = Options(ranks, RingMode::kPassKv);
      options.tokens_per_rank = 40;
      StepDriver driver(world, model, options);
      const std::vector<int32_t> half(prompt.begin(), prompt.begin() + prompt.size() / 2);
      const auto batched = driver.Run({half, prompt, {prompt[0]}, prompt}, 16);
      if (first.empty()) first = batched[1].tokens;
      EXPECT_EQ(batched[1].tokens, first) << ops->name << ", ranks " << ranks;
      EXPECT_EQ(batched[3].tokens, first) << ops->name << ", ranks " << ranks;
      EXPECT_EQ(batched[0].tokens, driver.Run({half}, 16)[0].tokens);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Golden,
                         ::testing::ValuesIn(testing::ThinnedIfSanitized(testing::GoldenNames(),
                                                                         7)),
                         [](const auto& info) { return info.param; });

// A prompt within original_max_position_embeddings takes the short frequencies, and its answer
// keeps them beyond.
TEST(RopeByLength, AShortPromptHasTheShortFrequencies) {
  CpuWorld world;
  for (const char* name : {"phi3_longrope", "llama_dynamic"}) {
    Checkpoint checkpoint = Open(name);
    checkpoint.golden =
        testing::LoadGolden(testing::TestFile(std::string("golden/") + name), "_short");
    const RankModel model = Load(world, checkpoint, *world.registry.Available("cpu").front(), 16);
    const DriverOptions options = Options(3, RingMode::kPassQ);
    EXPECT_LE(LogitsErrors(world, model, checkpoint.golden, options).largest, 1e-4) << name;
    const int count = static_cast<int>(checkpoint.golden.greedy.size());
    EXPECT_EQ(StepDriver(world, model, options).Run({checkpoint.golden.prompt}, count)[0].tokens,
              checkpoint.golden.greedy)
        << name;
  }
}

// The goldens are only worth something if each difference of a family moves their logits.
TEST(Power, EveryDifferenceOfAFamilyShows) {
  CpuWorld world;
  const OpTable& ops = *world.registry.Available("cpu").front();
  const auto error = [&](const std::string& name, const auto& change) {
    Checkpoint checkpoint = Open(name);
    RankModel model = Load(world, checkpoint, ops, 64);
    change(model);
    // What follows from the configuration is made anew, except weights, which stay.
    ModelConfig config = model.config;
    const float scale = model.embedding_scale;
    RankModel changed =
        MakeRankModel(std::move(config), std::move(model.weights), ops, 64, DType::kF32);
    changed.embedding_scale = scale;
    return LogitsErrors(world, changed, checkpoint.golden, Options(1, RingMode::kPassKv)).largest;
  };
  constexpr double kVisible = 1e-3;
  EXPECT_GT(error("gemma2", [](RankModel& m) { m.config.attention_soft_cap = 0; }), kVisible);
  EXPECT_GT(error("gemma2", [](RankModel& m) { m.config.logits_soft_cap = 0; }), kVisible);
  EXPECT_GT(error("gemma2", [](RankModel& m) { m.config.attention_scale = 0.25f; }), kVisible);
  EXPECT_GT(error("gemma2", [](RankModel& m) { m.config.layers[0].window = 0; }), kVisible);
  EXPECT_GT(error("gemma2", [](RankModel& m) { m.config.activation = Activation::kSilu; }),
            kVisible);
  EXPECT_GT(error("gemma3", [](RankModel& m) { m.embedding_scale *= 1.002f; }), 2e-4);
  EXPECT_GT(error("gemma3", [](RankModel& m) { m.config.layers[2].rope = 1; }), kVisible);
  EXPECT_GT(error("gemma3", [](RankModel& m) { m.config.ropes[0].factor = 4.5; }), kVisible);
  const auto without_head_norms = [](RankModel& m) {
    m.config.traits.norms[LayerNorm::kQuery] = m.config.traits.norms[LayerNorm::kKey] = "";
  };
  EXPECT_GT(error("gemma3", without_head_norms), kVisible);
  EXPECT_GT(error("olmo2", without_head_norms), kVisible);
  EXPECT_GT(error("smollm3", [](RankModel& m) { m.config.layers[1].rope = 0; }), kVisible);
  EXPECT_GT(error("qwen3_moe", [](RankModel& m) { m.config.experts.routing.normalised = true; }),
            kVisible);
  EXPECT_GT(error("mixtral", [](RankModel& m) { m.config.experts.routing.chosen = 1; }), kVisible);
  for (const char* name : {"qwen2_moe", "glm4_moe"}) {
    EXPECT_GT(error(name, [](RankModel& m) { m.config.experts.shared_size = 0; }), kVisible);
  }
  EXPECT_GT(error("qwen2_moe", [](RankModel& m) { m.config.experts.shared_gate = false; }),
            kVisible);
  const auto without_choice_bias = [](RankModel& m) {
    for (LayerWeights& layer : m.weights.layers) layer.choice_bias = {};
  };
  EXPECT_GT(error("glm4_moe", without_choice_bias), kVisible);
  EXPECT_GT(error("glm4_moe", without_head_norms), kVisible);
  EXPECT_GT(error("glm4_moe", [](RankModel& m) { m.config.experts.routing.chosen_groups = 2; }),
            kVisible);
  EXPECT_GT(error("glm4_moe", [](RankModel& m) { m.config.experts.routing.scale = 1; }), kVisible);
  for (const char* name : {"gemma4", "gemma4_moe"}) {
    EXPECT_GT(error(name, without_head_norms), kVisible);
    EXPECT_GT(error(name, [](RankModel& m) { m.config.attention_scale = 0; }), kVisible);
    EXPECT_GT(error(name, [](RankModel& m) { m.config.ropes[0].turning = 3; }), kVisible);
    EXPECT_GT(error(name, [](RankModel& m) { m.weights.layers[1].host_scale = 1; }), kVisible);
  }
  EXPECT_GT(error("gemma4", [](RankModel& m) { m.config.traits.norms_values = false; }), kVisible);
  EXPECT_GT(error("gemma4", [](RankModel& m) { m.config.layers[4].keys_of = 0; }), kVisible);
  EXPECT_GT(error("gemma4", [](RankModel& m) { m.weights.stored_embedding_dtype = DType::kF32; }),
            1e-4);
  const auto without_factors = [](RankModel& m) { m.weights.layers[0].expert_factors = {}; };
  EXPECT_GT(error("gemma4_moe", without_factors), kVisible);
  for (const char* name : {"gemma3n", "gemma3n_three"}) {
    EXPECT_GT(error(name, [](RankModel& m) { m.config.layers[2].cutoff = 1.0f; }), kVisible);
    EXPECT_GT(error(name, [](RankModel& m) { m.config.streams.scaled ^= true; }), kVisible);
    EXPECT_GT(error(name, [](RankModel& m) { m.config.laurel_rank = 0; }), kVisible);
    EXPECT_GT(error(name, [](RankModel& m) { m.config.logits_soft_cap = 0; }), 1e-4);
  }
  EXPECT_GT(error("gemma3n", [](RankModel& m) { m.config.streams.active = 1; }), kVisible);
  EXPECT_GT(error("gemma3n", [](RankModel& m) { m.config.layers[4].keys_of = 0; }), kVisible);
  EXPECT_GT(error("gemma3n_three", [](RankModel& m) { m.config.layer_input_vocabulary = 80; }),
            kVisible);
  EXPECT_GT(error("minimax_m2", without_choice_bias), kVisible);
  EXPECT_GT(error("minimax_m2", without_head_norms), kVisible);
  EXPECT_GT(error("gpt_oss", [](RankModel& m) { m.config.activation_limit = 7; }), kVisible);
  EXPECT_GT(error("gpt_oss", [](RankModel& m) { m.config.activation_alpha = 1.6f; }), kVisible);
  EXPECT_GT(error("gpt_oss", [](RankModel& m) { m.config.ropes[0].scale = 1; }), kVisible);
  EXPECT_GT(error("gpt_oss", [](RankModel& m) { m.config.ropes[0].whole_borders = true; }),
            kVisible);
  EXPECT_GT(error("gpt_oss", [](RankModel& m) { m.weights.layers[1].sinks = {}; }), kVisible);
  EXPECT_GT(error("yarn", [](RankModel& m) { m.config.ropes[0].factor = 4.2; }), kVisible);
  EXPECT_GT(error("phi3_longrope", [](RankModel& m) { m.config.ropes[0].scale = 1; }), kVisible);
  EXPECT_GT(error("granite", [](RankModel& m) { m.config.logits_scale = 1; }), kVisible);
  EXPECT_GT(error("granite", [](RankModel& m) { m.config.attention_scale = 0.25f; }), kVisible);
  EXPECT_GT(error("granite", [](RankModel& m) { m.config.norm.epsilon = 0.04f; }), kVisible);
  EXPECT_GT(error("granite", [](RankModel& m) { m.embedding_scale = 2; }), kVisible);
  EXPECT_GT(error("ministral3", [](RankModel& m) { m.config.ropes[1].growth = 0; }), kVisible);
  EXPECT_GT(error("ministral3", [](RankModel& m) { m.config.ropes[1].original_context = 41; }),
            kVisible);
  EXPECT_GT(error("olmo3", [](RankModel& m) { m.config.ropes[1] = m.config.ropes[0]; }), kVisible);
  EXPECT_GT(error("exaone4", [](RankModel& m) { m.config.layers[3].rope = 0; }), kVisible);
  EXPECT_GT(error("hunyuan", [](RankModel& m) { m.config.traits.norms_after_rope = false; }),
            kVisible);
  EXPECT_GT(error("hunyuan", [](RankModel& m) { m.config.ropes[0].theta = 10000; }), kVisible);
  for (const char* name : {"cohere", "cohere2", "stablelm", "starcoder2"}) {
    EXPECT_GT(error(name, [](RankModel& m) { m.config.norm.centred = false; }), kVisible) << name;
  }
  EXPECT_GT(error("cohere_head_norms", without_head_norms), kVisible);
  EXPECT_GT(error("stablelm_parallel", without_head_norms), kVisible);
  // Every head with the weight of the first.
  const auto one_weight = [](RankModel& m) {
    const int64_t size = m.config.layers[0].attention.k_dim;
    for (LayerWeights& layer : m.weights.layers) {
      float* const weights = const_cast<float*>(layer.norms[LayerNorm::kQuery].data());
      for (int64_t i = size; i < layer.norms[LayerNorm::kQuery].size(); ++i) {
        weights[i] = weights[i % size];
      }
    }
  };
  EXPECT_GT(error("cohere_head_norms", one_weight), kVisible);
  EXPECT_GT(error("stablelm_parallel", one_weight), kVisible);
  EXPECT_GT(error("cohere2", [](RankModel& m) { m.config.layers[3].rope = 0; }), kVisible);
  EXPECT_GT(error("cohere", [](RankModel& m) { m.config.logits_scale = 1; }), kVisible);
  for (const char* name : {"stablelm", "starcoder2_plain"}) {
    EXPECT_GT(error(name, [](RankModel& m) { m.weights.layers[1].norm_biases = {}; }), kVisible);
    EXPECT_GT(error(name, [](RankModel& m) { m.weights.final_norm_bias = {}; }), kVisible);
  }
  EXPECT_GT(error("llama_dynamic", [](RankModel& m) { m.config.ropes[0].factor = 2.2; }), kVisible);
}

// Some chunk sizes, both modes, alone and between others: every logit has the bits that it has on
// one rank in one chunk.
void ExpectSameBits(CpuWorld& world, const RankModel& model, int ranks,
                    const std::vector<int32_t>& prompt) {
  const std::vector<int32_t> other(prompt.begin() + 7, prompt.end());
  DriverOptions options;
  options.all_logits = true;
  options.prefill_rows = 1000;
  const auto base = StepDriver(world, model, options).Run({prompt}, 3)[0];
  options.ranks = ranks;
  for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
    for (const int rows : {17, 40, 1000}) {
      options.mode = mode;
      options.prefill_rows = rows;
      StepDriver driver(world, model, options);
      EXPECT_TRUE(driver.Run({prompt}, 3)[0].logits == base.logits) << "rows " << rows;
      EXPECT_TRUE(driver.Run({other, prompt, other}, 3)[1].logits == base.logits)
          << "rows " << rows << ", batched";
    }
  }
}

// For fixed kernels and dtypes a row's logits have the same bits alone or batched, in any chunks,
// in both modes and on every ring.
TEST(Invariance, BitsDoNotDependOnBatchChunkModeOrRing) {
  CpuWorld world;
  for (const std::string name : {"llama_gqa_bf16", "llama_windows", "qwen3_moe", "qwen2_moe",
                                 "gemma4", "gemma4_moe", "gemma3n", "cohere2"}) {
    const Checkpoint checkpoint = Open(name);
    std::vector<const OpTable*> tables = world.registry.Available("cpu");
    // Sanitizers see the same steps with every table, so the fastest is enough; the kernels have
    // tests of their own.
    if (kSanitized) tables.resize(1);
    for (const OpTable* ops : tables) {
      for (const DType kv_dtype :
           {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kF8E5M2, DType::kI8}) {
        // What experts add does not depend on how keys and values are stored.
        if (name.ends_with("_moe") && kv_dtype != DType::kF32) continue;
        const RankModel model = Load(world, checkpoint, *ops, 16, kv_dtype, DType::kBF16);
        for (const int ranks : {1, 2, 3, 4}) {
          // Kernel tests try one rank; the model with windows has full layers too.
          const bool narrow = kv_dtype != DType::kF32;
          if (narrow && (ranks < 3 || name != "llama_windows")) continue;
          // Kernel tests read every type under sanitizers.
          if (narrow && kSanitized && kv_dtype != DType::kI8) continue;
          SCOPED_TRACE(::testing::Message() << name << ", " << ops->name << ", "
                                            << DTypeName(kv_dtype) << ", ranks " << ranks);
          ExpectSameBits(world, model, ranks, checkpoint.golden.prompt);
        }
      }
    }
  }
}

}  // namespace
}  // namespace annulus
