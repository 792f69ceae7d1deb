// Two runs of golden models over the same tokens.
#include "bench/quality/quality.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <span>
#include <vector>

#include "engine/model/files/safetensors.h"
#include "tests/support/step_driver.h"
#include "tests/support/test_data.h"

namespace annulus::bench {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::StepDriver;

constexpr int kPage = 16;

// `table`: null: the best of this machine.
RankModel Load(CpuWorld& world, DType weights, DType kv, const OpTable* table = nullptr) {
  const std::string directory = testing::TestFile("golden/llama_mha").string();
  const ModelConfig config = LoadModelConfig(directory).value();
  const auto tensors = SafetensorsCheckpoint::Open(directory).value();
  const OpTable& ops = table != nullptr ? *table : *world.registry.Available("cpu")[0];
  return MakeRankModel(config, LoadWeights(config, *tensors, *world.backend, ops, weights).value(),
                       ops, kPage, kv);
}

std::vector<int32_t> Tokens(int count, int vocabulary) {
  std::mt19937 random(11);
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(random() % vocabulary));
  return tokens;
}

absl::StatusOr<Quality> Compare(CpuWorld& world, const QualityModel& reference,
                                const QualityModel& compared, std::span<const int32_t> tokens) {
  auto all =
      CompareQuality(reference, std::span(&compared, 1), *world.backend, 2, tokens, [](int64_t) {});
  if (!all.ok()) return all.status();
  return all->at(0);
}

TEST(QualityTest, TheSameModelLosesNothing) {
  CpuWorld world;
  const RankModel model = Load(world, DType::kF32, DType::kF32);
  const std::vector<int32_t> tokens = Tokens(600, model.config.vocabulary);
  int64_t read = 0;
  const std::vector<QualityModel> compared = {{model, {}}};
  const Quality quality =
      CompareQuality({model, {}}, compared, *world.backend, 2, tokens, [&](int64_t count) {
        read = count;
      }).value()[0];
  EXPECT_EQ(read, 600);
  EXPECT_EQ(quality.next.count(), 599);
  EXPECT_EQ(quality.next.perplexity(), quality.next.reference_perplexity());
  EXPECT_EQ(quality.next.same_choice(), 1);
  EXPECT_LT(quality.next.mean_divergence(), 1e-12);
  EXPECT_EQ(quality.pairs.density(), 1);
  // The perplexity that another way of reading gives.
  DriverOptions options;
  options.all_logits = true;
  const auto logits = StepDriver(world, model, options).Run({tokens}, 1)[0].logits;
  double loss = 0;
  for (int32_t row = 0; row < 599; ++row) {
    double sum = 0;
    for (const float logit : logits.at(row)) sum += std::exp(static_cast<double>(logit));
    loss += std::log(sum) - logits.at(row)[static_cast<size_t>(tokens[row + 1])];
  }
  EXPECT_NEAR(quality.next.perplexity(), std::exp(loss / 599), 1e-3 * std::exp(loss / 599));
}

TEST(QualityTest, ModelsSideBySideLoseWhatTheyLoseAlone) {
  CpuWorld world;
  const RankModel exact = Load(world, DType::kF32, DType::kF32);
  const RankModel coarse = Load(world, DType::kI8, DType::kF32);
  const std::vector<int32_t> tokens = Tokens(300, exact.config.vocabulary);
  const auto window = ParseAssignment("window:block=16,sinks=16,window=32").value();
  const std::vector<QualityModel> compared = {{coarse, {}}, {exact, window}};
  const std::vector<Quality> all =
      CompareQuality({exact, {}}, compared, *world.backend, 2, tokens, [](int64_t) {}).value();
  ASSERT_EQ(all.size(), 2);
  for (size_t i = 0; i < all.size(); ++i) {
    const Quality alone = Compare(world, {exact, {}}, compared[i], tokens).value();
    EXPECT_EQ(all[i].next.mean_divergence(), alone.next.mean_divergence()) << i;
    EXPECT_EQ(all[i].next.perplexity(), alone.next.perplexity()) << i;
    EXPECT_EQ(all[i].pairs.density(), alone.pairs.density()) << i;
  }
}

TEST(QualityTest, CoarserNumbersCostMore) {
  CpuWorld world;
  const RankModel exact = Load(world, DType::kF32, DType::kF32);
  const std::vector<int32_t> tokens = Tokens(300, exact.config.vocabulary);
  const auto cost = [&](DType weights, DType kv) {
    const RankModel model = Load(world, weights, kv);
    return Compare(world, {exact, {}}, {model, {}}, tokens).value().next.mean_divergence();
  };
  const double bf16 = cost(DType::kBF16, DType::kF32);
  EXPECT_GT(bf16, 0);
  EXPECT_GT(cost(DType::kI4G32, DType::kF32), bf16);
  const double kv = cost(DType::kF32, DType::kBF16);
  EXPECT_GT(kv, 0);
  EXPECT_GT(cost(DType::kF32, DType::kI8), kv);
}

TEST(QualityTest, Int8ActivationsCostLessThanTheInt4WeightsThatTheyMultiply) {
  CpuWorld world;
  // The one table that has them on every machine.
  const OpTable* const table = world.Find("cpu/reference");
  const RankModel exact = Load(world, DType::kF32, DType::kF32, table);
  const RankModel int4 = Load(world, DType::kI4G32, DType::kF32, table);
  RankModel coded = Load(world, DType::kI4G32, DType::kF32, table);
  coded.activations = Activations::kInt8;
  const std::vector<int32_t> tokens = Tokens(300, exact.config.vocabulary);
  const auto compare = [&](const RankModel& reference, const RankModel& model) {
    return Compare(world, {reference, {}}, {model, {}}, tokens).value().next;
  };
  const auto of_codes = compare(int4, coded);
  EXPECT_GT(of_codes.mean_divergence(), 0);
  EXPECT_LT(of_codes.mean_divergence(), 0.1 * compare(exact, int4).mean_divergence());
  EXPECT_NEAR(of_codes.perplexity(), of_codes.reference_perplexity(),
              0.01 * of_codes.reference_perplexity());
}

TEST(QualityTest, PoliciesAreMeasuredWithTheirDensity) {
  CpuWorld world;
  const RankModel model = Load(world, DType::kF32, DType::kF32);
  const std::vector<int32_t> tokens = Tokens(500, model.config.vocabulary);
  for (const char* policy :
       {"window:block=16,sinks=16,window=32", "adaptive:block=16,tau=0.5,stride=8,coverage=0.8",
        "adaptive:block=16,estimator=pooled,tau=0.5"}) {
    SCOPED_TRACE(policy);
    const Quality quality =
        Compare(world, {model, {}}, {model, ParseAssignment(policy).value()}, tokens).value();
    EXPECT_GT(quality.next.mean_divergence(), 0);
    EXPECT_LT(quality.pairs.density(), 1);
    EXPECT_GT(quality.pairs.density(), 0.05);
    EXPECT_GE(quality.covered, 0);
    EXPECT_LE(quality.covered, quality.covered_rows);
  }
  EXPECT_FALSE(Compare(world, {model, {}}, {model, ParseAssignment("auto").value()}, tokens).ok());
}

}  // namespace
}  // namespace annulus::bench
