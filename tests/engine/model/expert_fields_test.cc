// Fields of config.json that describe experts beside a shared block, and routers by sigmoid scores.
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

TEST(ExpertFieldsTest, Glm4RoutesBySigmoidScores) {
  const ModelConfig config = ExpertsOf("Glm4MoeForCausalLM", {{"n_routed_experts", "12"},
                                                              {"n_group", "4"},
                                                              {"topk_group", "3"},
                                                              {"n_shared_experts", "2"},
                                                              {"moe_intermediate_size", "24"},
                                                              {"routed_scaling_factor", "2.5"},
                                                              {"first_k_dense_replace", "2"}});
  const RoutingRule& routing = config.experts.routing;
  EXPECT_EQ(config.experts.count, 12);
  EXPECT_EQ(routing.chosen, 8);
  EXPECT_EQ(routing.scores, RoutingRule::Scores::kSigmoid);
  EXPECT_TRUE(routing.normalised && config.experts.choice_bias);
  EXPECT_EQ(routing.groups, 4);
  EXPECT_EQ(routing.chosen_groups, 3);
  EXPECT_EQ(routing.scale, 2.5f);
  EXPECT_EQ(config.experts.shared_size, 48);
  EXPECT_FALSE(config.experts.shared_gate);
  EXPECT_FALSE(config.layers[1].experts);
  EXPECT_TRUE(config.layers[2].experts);
  EXPECT_EQ(config.ropes[0].pairs, 4);  // of half a head of 16
  EXPECT_EQ(config.guessing_layers, 1);
  EXPECT_EQ(ExpertsOf("Glm4MoeForCausalLM", {{"num_nextn_predict_layers", "0"}}).guessing_layers,
            0);
}

TEST(ExpertFieldsTest, OnlyLargeModelsOfGlm4NormHeads) {
  EXPECT_TRUE(ExpertsOf("Glm4MoeForCausalLM").traits.norms[LayerNorm::kQuery].empty());
  const ModelConfig large = ExpertsOf("Glm4MoeForCausalLM", {{"use_qk_norm", "true"}});
  EXPECT_EQ(large.traits.norms[LayerNorm::kQuery], "self_attn.q_norm");
}

TEST(ExpertFieldsTest, GroupsHoldEnoughExperts) {
  const auto refusal = [](const Keys& keys) {
    return std::string(ParseExpertsOf("Glm4MoeForCausalLM", keys).status().message());
  };
  EXPECT_EQ(refusal({{"n_routed_experts", "12"}, {"n_group", "5"}}),
            "config.json: n_group is 5; allowed: 1, or a divisor of the number of experts, 12, "
            "that is at most half of it");
  EXPECT_EQ(refusal({{"n_routed_experts", "12"}, {"n_group", "12"}, {"topk_group", "12"}}),
            "config.json: n_group is 12; allowed: 1, or a divisor of the number of experts, 12, "
            "that is at most half of it");
  EXPECT_EQ(refusal({{"n_routed_experts", "12"}, {"n_group", "3"}, {"topk_group", "4"}}),
            "config.json: topk_group is 4; allowed: a whole number from 1 to 3");
  EXPECT_EQ(refusal({{"n_routed_experts", "12"},
                     {"n_group", "3"},
                     {"topk_group", "1"},
                     {"num_experts_per_tok", "5"}}),
            "config.json: num_experts_per_tok is 5; allowed: at most as many as topk_group, 1, "
            "groups of experts have, 4");
  EXPECT_EQ(refusal({{"n_routed_experts", "4"}, {"num_experts_per_tok", "5"}}),
            "config.json: num_experts_per_tok is 5; allowed: at most as many as topk_group, 1, "
            "groups of experts have, 4");
}

TEST(ExpertFieldsTest, MiniMaxRotatesRowsByTheirNumber) {
  const Keys small = {{"head_dim", "16"}};
  Keys keys = small;
  keys["rotary_dim"] = "10";
  const ModelConfig config = ExpertsOf("MiniMaxM2ForCausalLM", keys);
  EXPECT_EQ(config.ropes[0].pairs, 5);
  EXPECT_EQ(ExpertsOf("MiniMaxM2ForCausalLM", small).ropes[0].pairs, 8);
  keys["partial_rotary_factor"] = "0.5";
  EXPECT_EQ(ExpertsOf("MiniMaxM2ForCausalLM", keys).ropes[0].pairs, 4);
  keys = small;
  keys["rotary_dim"] = "7";
  EXPECT_EQ(ParseExpertsOf("MiniMaxM2ForCausalLM", keys).status().message(),
            "config.json: rotary_dim is 7; allowed: an even number");
  EXPECT_EQ(config.experts.count, 256);
  EXPECT_EQ(config.experts.intermediate_size, 48);
  EXPECT_EQ(config.experts.routing.scores, RoutingRule::Scores::kSigmoid);
  EXPECT_TRUE(config.experts.routing.normalised && config.experts.choice_bias);
  EXPECT_TRUE(config.layers[2].experts);
}

}  // namespace
}  // namespace annulus
