// The plain forward pass over our own configuration and safetensors readers against Transformers.

#include "tests/support/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/model/files/safetensors.h"
#include "engine/model/model_config.h"
#include "tests/engine/model/plain_forward.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

// `logits`: [rows, vocabulary]; the last `greedy.size()` rows each predict the next greedy id.
void ExpectGreedy(const std::vector<float>& logits, int32_t vocabulary,
                  const std::vector<int32_t>& greedy) {
  auto row = logits.end() - static_cast<int64_t>(greedy.size()) * vocabulary;
  for (const int32_t id : greedy) {
    EXPECT_EQ(std::max_element(row, row + vocabulary) - row, id);
    row += vocabulary;
  }
}

// The prompt and all greedy ids but the last.
std::vector<int32_t> TeacherForced(std::vector<int32_t> prompt,
                                   const std::vector<int32_t>& greedy) {
  prompt.insert(prompt.end(), greedy.begin(), greedy.end() - 1);
  return prompt;
}

// The largest difference from the golden's logits, relative to the largest of them.
float RelativeError(const testing::Golden& golden, const std::vector<float>& logits) {
  float largest = 0;
  float error = 0;
  for (size_t i = 0; i < golden.logits.size(); ++i) {
    largest = std::max(largest, std::fabs(golden.logits[i]));
    error = std::max(error, std::fabs(golden.logits[i] - logits[i]));
  }
  return error / largest;
}

struct Loaded {
  ModelConfig config;
  std::unique_ptr<SafetensorsCheckpoint> source;
};

Loaded LoadGolden(const std::filesystem::path& directory) {
  return {LoadModelConfig(directory.string()).value(),
          SafetensorsCheckpoint::Open(directory.string()).value()};
}

class GoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, PlainForwardAgreesWithTransformers) {
  const auto directory = testing::TestFile("golden/" + GetParam());
  const testing::Golden golden = testing::LoadGolden(directory);
  const Loaded model = LoadGolden(directory);
  ASSERT_EQ(model.config.vocabulary, golden.vocabulary);
  const std::vector<float> logits = testing::PlainForward(model.config, *model.source)
                                        .Logits(TeacherForced(golden.prompt, golden.greedy));
  EXPECT_LE(RelativeError(golden, logits), 2e-5f);
  ExpectGreedy(logits, golden.vocabulary, golden.greedy);
}

// The goldens are only worth something if they notice small mistakes.
TEST(GoldenPowerTest, SlightlyWrongModelsAreFarOff) {
  const auto error = [](const std::string& name, const auto& change) {
    const auto directory = testing::TestFile("golden/" + name);
    const testing::Golden golden = testing::LoadGolden(directory);
    Loaded model = LoadGolden(directory);
    change(model.config);
    return RelativeError(golden,
                         testing::PlainForward(model.config, *model.source).Logits(golden.prompt));
  };
  EXPECT_GT(error("llama_windows", [](ModelConfig& c) { c.layers[4].window = 18; }), 1e-2f);
  EXPECT_GT(error("mistral_window", [](ModelConfig& c) { c.layers[1].window = 0; }), 1e-2f);
  EXPECT_GT(error("llama_rope3_sharded", [](ModelConfig& c) { c.ropes[0].factor = 8.1; }), 1e-3f);
  EXPECT_GT(error("llama_mha", [](ModelConfig& c) { c.ropes[0].theta = 10010; }), 1e-3f);
  EXPECT_GT(error("llama_gqa_bf16", [](ModelConfig& c) { c.norm.epsilon = 1e-3f; }), 1e-4f);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest, ::testing::ValuesIn(testing::PlainGoldenNames()),
                         [](const auto& info) { return info.param; });

TEST(TrainedModelTest, PlainForwardGivesTheExpectedGreedyIds) {
  const auto directory = testing::TestData("models/stories260K");
  if (!directory) GTEST_SKIP() << "the optional test data is absent";
  const Loaded model = LoadGolden(*directory);
  std::ifstream file(*directory / "expected_greedy.json");
  const nlohmann::json cases = nlohmann::json::parse(file);
  const nlohmann::json& first = cases.at(0);
  auto greedy = first.at("greedy_ids").get<std::vector<int32_t>>();
  greedy.resize(40);
  const auto prompt = first.at("prompt_ids").get<std::vector<int32_t>>();
  const std::vector<float> logits =
      testing::PlainForward(model.config, *model.source).Logits(TeacherForced(prompt, greedy));
  ExpectGreedy(logits, model.config.vocabulary, greedy);
  const auto expected = first.at("first_logits").get<std::vector<float>>();
  const size_t last = (prompt.size() - 1) * static_cast<size_t>(model.config.vocabulary);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(logits[last + i], expected[i], 1e-3);
}

}  // namespace
}  // namespace annulus
