// Fields of config.json that only Gemma 3n has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/model_config.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;
using Gemma3nKeys = std::map<std::string, std::string>;

// Five layers, of which the last attends everything, with `keys` and their values as JSON text; an
// empty value takes a key away.
absl::StatusOr<ModelConfig> ParsedGemma3n(const Gemma3nKeys& keys) {
  Gemma3nKeys all = {{"vocab_size", "64"},         {"hidden_size", "64"},
                     {"intermediate_size", "48"},  {"num_hidden_layers", "5"},
                     {"num_attention_heads", "4"}, {"head_dim", "16"},
                     {"sliding_window", "9"},      {"num_kv_shared_layers", "0"}};
  for (const auto& [key, value] : keys) all[key] = value;
  std::string json = R"({"architectures": ["Gemma3nForCausalLM"])";
  for (const auto& [key, value] : all) {
    if (!value.empty()) absl::StrAppend(&json, ", \"", key, "\": ", value);
  }
  return ParseModelConfig(json + "}", "config.json");
}

ModelConfig GoodGemma3n(const Gemma3nKeys& keys) {
  auto config = ParsedGemma3n(keys);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(ModelConfig());
}

void ExpectGemma3nRefused(const Gemma3nKeys& keys, const std::string& message) {
  EXPECT_THAT(std::string(ParsedGemma3n(keys).status().message()), HasSubstr(message));
}

TEST(Gemma3nFieldsTest, AbsentKeysMeanWhatTransformersTakes) {
  const ModelConfig config = GoodGemma3n({});
  EXPECT_EQ(config.streams.count, 4);
  EXPECT_EQ(config.streams.active, 0);
  EXPECT_TRUE(config.streams.scaled);
  EXPECT_EQ(config.laurel_rank, 64);
  EXPECT_EQ(config.layer_input_size, 256);
  EXPECT_EQ(config.layer_input_vocabulary, 262144);
  EXPECT_EQ(config.logits_soft_cap, 30);
  EXPECT_EQ(config.attention_scale, 1);
  EXPECT_TRUE(config.scaled_embeddings);
  EXPECT_FALSE(config.unit_offset_norms);
  EXPECT_TRUE(config.traits.norms_values);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.layers[3].window, 9);
  EXPECT_EQ(config.layers[4].window, 0);
  EXPECT_EQ(config.layers[4].attention, (AttentionShape{4, 2, 16, 16}));
  EXPECT_EQ(config.ropes[0].theta, 1e6);
  EXPECT_EQ(config.ropes[1].theta, 1e4);
  for (const LayerConfig& layer : config.layers) EXPECT_FALSE(layer.cutoff.has_value());
  ExpectGemma3nRefused({{"num_kv_shared_layers", ""}},
                       "num_kv_shared_layers is missing; allowed: ");
}

TEST(Gemma3nFieldsTest, OfManyLayersTheFirstTenCutOff) {
  const ModelConfig config =
      GoodGemma3n({{"num_hidden_layers", "20"}, {"num_kv_shared_layers", "15"}});
  ASSERT_TRUE(config.layers[9].cutoff.has_value());
  EXPECT_FLOAT_EQ(*config.layers[9].cutoff, 1.6448536f);
  EXPECT_FALSE(config.layers[10].cutoff.has_value());
  EXPECT_TRUE(config.layers[4].has_own_keys());
  EXPECT_EQ(config.layers[5].keys_of, 3);
  EXPECT_EQ(config.layers[9].keys_of, 4);
}

TEST(Gemma3nFieldsTest, APartThatIsCutOffIsThatOfANormalDistribution) {
  const ModelConfig config = GoodGemma3n(
      {{"activation_sparsity_pattern", "[0.5, 0.841344746068543, 0, 0.0013498980316301, 1e-9]"}});
  EXPECT_NEAR(*config.layers[0].cutoff, 0, 1e-9);
  EXPECT_FLOAT_EQ(*config.layers[1].cutoff, 1);
  EXPECT_FALSE(config.layers[2].cutoff.has_value());
  EXPECT_FLOAT_EQ(*config.layers[3].cutoff, -3);
  EXPECT_FLOAT_EQ(*config.layers[4].cutoff, -5.997807f);
}

TEST(Gemma3nFieldsTest, BlocksMayHaveAWidthEach) {
  const ModelConfig config = GoodGemma3n({{"intermediate_size", "[48, 64, 80, 48, 1]"}});
  EXPECT_EQ(config.intermediate_size, 48);
  EXPECT_EQ(BlockSize(config, config.layers[2]), 80);
  EXPECT_EQ(BlockSize(config, config.layers[4]), 1);
  EXPECT_EQ(BlockSize(config, GoodGemma3n({}).layers[3]), 48);
}

TEST(Gemma3nFieldsTest, TheTextHalfOfAModelThatSees) {
  const auto config = ParseModelConfig(
      R"({"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text", "vocab_size": 64,
          "hidden_size": 32, "intermediate_size": [8, 8], "num_hidden_layers": 2,
          "num_kv_shared_layers": 0, "altup_active_idx": 2, "altup_correct_scale": false,
          "rope_theta": 5000.0, "rope_local_base_freq": 700.0, "rope_scaling": null,
          "layer_types": ["sliding_attention", "full_attention"]}, "vision_config": {}})",
      "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model_type, "gemma3n_text");
  EXPECT_EQ(config->streams.active, 2);
  EXPECT_FALSE(config->streams.scaled);
  EXPECT_EQ(config->ropes[static_cast<size_t>(config->layers[1].rope)].theta, 5000);
  EXPECT_EQ(config->ropes[static_cast<size_t>(config->layers[0].rope)].theta, 700);
}

TEST(Gemma3nFieldsTest, RefusesWhatItDoesNotMean) {
  ExpectGemma3nRefused({{"altup_num_inputs", "9"}},
                       "altup_num_inputs is 9; allowed: a whole number from 1");
  ExpectGemma3nRefused({{"altup_active_idx", "4"}},
                       "altup_active_idx is 4; allowed: a whole number from 0");
  ExpectGemma3nRefused({{"laurel_rank", "0"}}, "laurel_rank is 0");
  ExpectGemma3nRefused({{"hidden_size_per_layer_input", "0"}}, "hidden_size_per_layer_input is 0");
  ExpectGemma3nRefused({{"vocab_size_per_layer_input", "0"}}, "vocab_size_per_layer_input is 0");
  ExpectGemma3nRefused({{"intermediate_size", "[48, 48]"}},
                       "intermediate_size is [48,48]; allowed: a list");
  ExpectGemma3nRefused({{"intermediate_size", "[48, 48.5, 48, 48, 48]"}}, "allowed: whole numbers");
  ExpectGemma3nRefused({{"activation_sparsity_pattern", "[0.95]"}},
                       "activation_sparsity_pattern is [0.95]");
  ExpectGemma3nRefused({{"activation_sparsity_pattern", "[0, 0, 0, 0, 1]"}},
                       "allowed: a list of 5 numbers");
  ExpectGemma3nRefused({{"num_kv_shared_layers", "5"}}, "num_kv_shared_layers is 5; allowed: ");
  // The last layer alone attends everything.
  ExpectGemma3nRefused({{"num_kv_shared_layers", "1"}}, "layer 4 finds none");
  ExpectGemma3nRefused({{"attn_logit_softcapping", "50"}}, "attn_logit_softcapping is 50");
}

}  // namespace
}  // namespace annulus
