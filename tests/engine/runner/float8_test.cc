// Checkpoints whose projections are stored as float8_e4m3 with a scale for each tensor or row, and
// loaded as they are stored.

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/files/safetensors.h"
#include "gtest/gtest.h"
#include "tests/support/float8_directory.h"
#include "tests/support/golden.h"
#include "tests/support/step_driver.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::Float8Scales;
using testing::StepDriver;

// Sizes that divide nothing, grouped heads, a tied head in bf16; fused projections, f16.
constexpr const char* kFloat8Models[] = {"llama_gqa_bf16", "phi3"};

struct Float8Checkpoint {
  Float8Checkpoint(const std::string& name, Float8Scales kind, const std::string& but = "") {
    const auto golden = testing::TestFile("golden/" + name);
    testing::WriteFloat8Directory(golden, kind, directory, but);
    config = LoadModelConfig(directory.path().string()).value();
    tensors = SafetensorsCheckpoint::Open(directory.path().string()).value();
    prompt = testing::LoadGolden(golden).prompt;
  }

  RankModel Load(CpuWorld& world, const OpTable& ops, std::optional<DType> dtype) const {
    ModelWeights weights = LoadWeights(config, *tensors, *world.backend, ops, dtype).value();
    return MakeRankModel(config, std::move(weights), ops, 64, DType::kF32);
  }

  // Of every position but the last, one row after the other.
  std::vector<float> Logits(CpuWorld& world, const RankModel& model) const {
    DriverOptions options;
    options.ranks = 2;
    options.prefill_rows = 64;
    options.all_logits = true;
    const auto results = StepDriver(world, model, options).Run({prompt}, 1);
    std::vector<float> all;
    for (const auto& [position, logits] : results[0].logits) {
      all.insert(all.end(), logits.begin(), logits.end());
    }
    EXPECT_EQ(all.size(), (prompt.size() - 1) * static_cast<size_t>(config.vocabulary));
    return all;
  }

  testing::TempDirectory directory;
  ModelConfig config;
  std::unique_ptr<TensorSource> tensors;
  std::vector<int32_t> prompt;
};

// |a - b| / |b|, Euclidean norms.
double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

// Whether products round their inputs to bf16, as kernels/ops/linear.h says.
bool RoundsInputs(const OpTable& ops) {
  return ops.name == "cpu/avx512-bf16" || ops.name == "cpu/amx";
}

// In float32 a weight code * scale is off by 2^-24 of itself at most, and kept codes are exact:
// what is between the two are the orders of float32 sums, for which the goldens allow 1e-4.
// Rounding weights or inputs to bf16 is off by 2^-9 of each, for which they allow 2e-2; where both
// are rounded, 2e-2 * sqrt(2).
TEST(Float8CheckpointTest, KeptCodesAreNearerToTheStoredWeightsThanBf16) {
  CpuWorld world;
  for (const std::string name : kFloat8Models) {
    for (const Float8Scales kind : {Float8Scales::kTensor, Float8Scales::kRow}) {
      const Float8Checkpoint checkpoint(name, kind);
      for (const OpTable* ops : world.registry.Available("cpu")) {
        SCOPED_TRACE(::testing::Message() << name << ", " << ops->name << ", scales of "
                                          << (kind == Float8Scales::kRow ? "rows" : "tensors"));
        const RankModel kept = checkpoint.Load(world, *ops, std::nullopt);
        const RankModel wide = checkpoint.Load(world, *ops, DType::kF32);
        const RankModel rounded = checkpoint.Load(world, *ops, DType::kBF16);
        EXPECT_EQ(kept.weights.dtype, DType::kF8E4M3);
        EXPECT_EQ(kept.weights.layers[0].key.weight.dtype, DType::kF8E4M3);
        EXPECT_EQ(kept.weights.embedding.dtype, name == "phi3" ? DType::kF16 : DType::kBF16);
        EXPECT_LT(kept.weights.bytes, rounded.weights.bytes);
        EXPECT_EQ(kept.weights.error.weights, 0);
        const std::vector<float> exact = checkpoint.Logits(world, wide);
        const double error = RelativeError(checkpoint.Logits(world, kept), exact);
        EXPECT_LE(error, RoundsInputs(*ops) ? 2e-2 : 1e-4);
        const double of_rounded = RelativeError(checkpoint.Logits(world, rounded), exact);
        EXPECT_LE(of_rounded, RoundsInputs(*ops) ? 2e-2 * std::sqrt(2.0) : 2e-2);
        if (RoundsInputs(*ops)) continue;
        EXPECT_GT(of_rounded, 10 * error) << "rounding does not show";
      }
    }
  }
}

// Rounded inputs on top: a code is off by up to 2^-4 of itself, a product so by 2^-4 / sqrt(3) of
// its size. The seven products of each layer add up as independent errors do, and random weights
// magnify them, up to twofold; wrong codes or scales would be off by the logits themselves. Where
// keys stay in bf16, one call has products of both types.
TEST(Float8CheckpointTest, TakesInputsInFloat8WhereTheWeightsAre) {
  CpuWorld world;
  for (const char* const but : {"", "k_proj"}) {
    const Float8Checkpoint checkpoint("llama_gqa_bf16", Float8Scales::kTensor, but);
    for (const OpTable* ops : world.registry.Available("cpu")) {
      SCOPED_TRACE(ops->name);
      RankModel model = checkpoint.Load(world, *ops, std::nullopt);
      EXPECT_EQ(model.weights.dtype, DType::kF8E4M3);
      EXPECT_EQ(model.weights.layers[0].key.weight.dtype,
                *but == '\0' ? DType::kF8E4M3 : DType::kBF16);
      const std::vector<float> with_float = checkpoint.Logits(world, model);
      model.activations = Activations::kFp8;
      const double error = RelativeError(checkpoint.Logits(world, model), with_float);
      EXPECT_GT(error, 0);
      const double products = 7.0 * static_cast<double>(checkpoint.config.layers.size());
      EXPECT_LE(error, 2 * (0x1p-4 / std::sqrt(3.0)) * std::sqrt(products));
    }
  }
}

}  // namespace
}  // namespace annulus
