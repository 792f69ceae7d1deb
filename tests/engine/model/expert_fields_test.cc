// Fields of config.json that describe experts beside a shared block.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/model/model_config.h"

namespace annulus {
namespace {

using Keys = std::map<std::string, std::string>;

// Three layers of this architecture, with `keys` and their values as JSON text.
absl::StatusOr<ModelConfig> ParseExpertsOf(const std::string& architecture, const Keys& keys) {
  std::string json = absl::StrCat(
      "{\"architectures\": [\"", architecture,
      "\"], \"vocab_size\": 64, \"hidden_size\": 64, \"intermediate_size\": 48, "
      "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2");
  for (const auto& [key, value] : keys) absl::StrAppend(&json, ", \"", key, "\": ", value);
  return ParseModelConfig(json + "}", "config.json");
}

ModelConfig ExpertsOf(const std::string& architecture, const Keys& keys = {}) {
  auto config = ParseExpertsOf(architecture, keys);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(ModelConfig());
}

TEST(ExpertFieldsTest, Qwen2HasASharedBlockWithAGate) {
  const ModelConfig config = ExpertsOf("Qwen2MoeForCausalLM");
  EXPECT_EQ(config.experts.count, 60);
  EXPECT_EQ(config.experts.routing.chosen, 4);
  EXPECT_FALSE(config.experts.routing.normalised);
  EXPECT_EQ(config.experts.intermediate_size, 1408);
  EXPECT_EQ(config.experts.shared_size, 5632);
  EXPECT_TRUE(config.experts.shared_gate);
  EXPECT_TRUE(config.attention_bias);
  EXPECT_FALSE(config.output_bias);
  EXPECT_FALSE(ExpertsOf("Qwen2MoeForCausalLM", {{"qkv_bias", "false"}}).attention_bias);
}

// Transformers writes a window of 0 where none is used.
TEST(ExpertFieldsTest, EvenLayersOfQwen2SlideBelowMaxWindowLayers) {
  const Keys unused = {{"sliding_window", "0"}, {"use_sliding_window", "false"}};
  EXPECT_EQ(ExpertsOf("Qwen2MoeForCausalLM", unused).layers[0].window, 0);
  const ModelConfig config = ExpertsOf(
      "Qwen2MoeForCausalLM",
      {{"sliding_window", "9"}, {"use_sliding_window", "true"}, {"max_window_layers", "2"}});
  EXPECT_EQ(config.layers[0].window, 9);
  EXPECT_EQ(config.layers[1].window, 0);
  EXPECT_EQ(config.layers[2].window, 0);
}

}  // namespace
}  // namespace annulus
