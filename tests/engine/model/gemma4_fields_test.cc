// Fields of config.json that only Gemma 4 has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/model_config.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;
using Keys = std::map<std::string, std::string>;

constexpr char kTwice[] = R"(["sliding_attention", "full_attention", "sliding_attention",
                              "full_attention"])";

// Four layers, every second of which slides, with `keys` and their values as JSON text.
absl::StatusOr<ModelConfig> Parse(const Keys& keys) {
  Keys all = {
      {"vocab_size", "64"},       {"hidden_size", "64"},        {"intermediate_size", "48"},
      {"num_hidden_layers", "4"}, {"num_attention_heads", "4"}, {"num_key_value_heads", "2"},
      {"head_dim", "16"},         {"layer_types", kTwice},      {"sliding_window", "9"}};
  for (const auto& [key, value] : keys) all[key] = value;
  std::string json = R"({"architectures": ["Gemma4ForCausalLM"])";
  for (const auto& [key, value] : all) absl::StrAppend(&json, ", \"", key, "\": ", value);
  return ParseModelConfig(json + "}", "config.json");
}

ModelConfig Good(const Keys& keys) {
  auto config = Parse(keys);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(ModelConfig());
}

void ExpectRefused(const Keys& keys, const std::string& message) {
  EXPECT_THAT(std::string(Parse(keys).status().message()), HasSubstr(message));
}

TEST(Gemma4FieldsTest, LayersWithoutAWindowHaveAShapeOfTheirOwn) {
  const ModelConfig usual = Good({});
  EXPECT_EQ(usual.layers[0].attention, (AttentionShape{4, 2, 16, 16}));
  EXPECT_EQ(usual.layers[1].attention, (AttentionShape{4, 2, 512, 512}));
  EXPECT_FALSE(usual.layers[1].values_are_keys);
  EXPECT_EQ(usual.attention_scale, 1);
  EXPECT_FALSE(usual.unit_offset_norms);
  // Heads of their own only where keys are values.
  const Keys older = {{"global_head_dim", "32"}, {"num_global_key_value_heads", "1"}};
  EXPECT_EQ(Good(older).layers[3].attention, (AttentionShape{4, 2, 32, 32}));
  Keys keys = older;
  keys["attention_k_eq_v"] = "true";
  const ModelConfig same = Good(keys);
  EXPECT_EQ(same.layers[3].attention, (AttentionShape{4, 1, 32, 32}));
  EXPECT_TRUE(same.layers[3].values_are_keys);
  EXPECT_FALSE(same.layers[2].values_are_keys);
  keys["per_layer_config"] = R"({"1": {"head_dim": 24}, "3": {"head_dim": 24}})";
  EXPECT_EQ(Good(keys).layers[3].attention, (AttentionShape{4, 2, 24, 24}));
}

TEST(Gemma4FieldsTest, TheLastLayerHasNoWindow) {
  const ModelConfig config = Good({{"layer_types", R"(["full_attention", "sliding_attention",
                                                       "sliding_attention", "sliding_attention"])"}});
  EXPECT_EQ(config.layers[2].window, 9);
  EXPECT_EQ(config.layers[3].window, 0);
}

TEST(Gemma4FieldsTest, RopeTurnsAPartOfFullHeadsProportionally) {
  const ModelConfig config = Good({{"global_head_dim", "32"}});
  const RopeConfig& full = config.ropes[static_cast<size_t>(config.layers[1].rope)];
  EXPECT_EQ(full.kind, RopeKind::kProportional);
  EXPECT_EQ(full.pairs, 16);
  EXPECT_EQ(full.turning, 4);
  const std::vector<float> frequencies = InverseFrequencies(full);
  EXPECT_EQ(frequencies[0], 1);
  EXPECT_FLOAT_EQ(frequencies[3], std::pow(1e6f, -3.0f / 16));
  EXPECT_EQ(frequencies[4], 0);
  const RopeConfig& sliding = config.ropes[static_cast<size_t>(config.layers[0].rope)];
  EXPECT_EQ(sliding.kind, RopeKind::kDefault);
  EXPECT_EQ(sliding.pairs, 8);
}

TEST(Gemma4FieldsTest, LastLayersAttendKeysOfTheLastOfTheirKindBefore) {
  const ModelConfig config = Good({{"num_kv_shared_layers", "2"}, {"use_double_wide_mlp", "true"}});
  EXPECT_TRUE(config.layers[1].has_own_keys());
  EXPECT_EQ(config.layers[2].keys_of, 0);
  EXPECT_EQ(config.layers[3].keys_of, 1);
  EXPECT_EQ(BlockSize(config, config.layers[1]), 48);
  EXPECT_EQ(BlockSize(config, config.layers[2]), 96);
  ExpectRefused({{"num_kv_shared_layers", "3"}}, "num_kv_shared_layers is 3; allowed: a number of");
  ExpectRefused({{"num_kv_shared_layers", "4"}}, "num_kv_shared_layers is 4; allowed: ");
}

TEST(Gemma4FieldsTest, LayersHaveInputsAndExpertsWhereTheFileSaysSo) {
  const ModelConfig usual = Good({});
  EXPECT_EQ(usual.layer_input_size, 256);
  EXPECT_EQ(usual.layer_input_vocabulary, 262144);
  EXPECT_EQ(usual.experts.count, 0);
  EXPECT_TRUE(usual.traits.norms[LayerNorm::kExpertsInput].empty());
  const ModelConfig experts = Good({{"hidden_size_per_layer_input", "0"},
                                    {"enable_moe_block", "true"},
                                    {"num_experts", "8"},
                                    {"top_k_experts", "3"},
                                    {"moe_intermediate_size", "20"}});
  EXPECT_TRUE(experts.traits.norms[LayerNorm::kLayerInput].empty());
  EXPECT_EQ(experts.experts.count, 8);
  EXPECT_EQ(experts.experts.routing.chosen, 3);
  EXPECT_EQ(experts.experts.intermediate_size, 20);
  EXPECT_EQ(BlockSize(experts, experts.layers[0]), 48);
  EXPECT_TRUE(experts.layers[2].experts);
}

TEST(Gemma4FieldsTest, RefusesWhatItDoesNotMean) {
  ExpectRefused({{"use_bidirectional_attention", "\"all\""}}, "allowed: null or \"vision\"");
  ExpectRefused({{"global_head_dim", "31"}}, "global_head_dim is 31; allowed: an even number");
  ExpectRefused({{"vocab_size_per_layer_input", "63"}}, "vocab_size_per_layer_input is 63");
  ExpectRefused({{"per_layer_config", R"({"4": {"head_dim": 24}})"}}, "per_layer_config.4 is ");
  ExpectRefused({{"per_layer_config", R"({"1": {"window": 24}})"}},
                "per_layer_config.1.window is 24");
  ExpectRefused({{"per_layer_config", "[]"}}, "per_layer_config is []");
  ExpectRefused({{"enable_moe_block", "true"}}, "num_experts is missing");
}

}  // namespace
}  // namespace annulus
