#include "engine/model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/model/families.h"
#include "engine/model/family_table.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Keys and their values as JSON text.
using Keys = std::map<std::string, std::string>;

// A small Llama with `changes`; an empty value removes the key.
std::string Json(const Keys& changes = {}) {
  Keys keys = {{"architectures", "[\"LlamaForCausalLM\"]"},
               {"vocab_size", "512"},
               {"hidden_size", "64"},
               {"intermediate_size", "172"},
               {"num_hidden_layers", "3"},
               {"num_attention_heads", "8"},
               {"num_key_value_heads", "4"},
               {"max_position_embeddings", "2048"}};
  for (const auto& [key, value] : changes) keys[key] = value;
  std::string json = "{";
  for (const auto& [key, value] : keys) {
    if (value.empty()) continue;
    absl::StrAppend(&json, json.size() > 1 ? "," : "", "\"", key, "\":", value);
  }
  return json + "}";
}

ModelConfig Good(const Keys& changes = {}) {
  const auto config = ParseModelConfig(Json(changes), "config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(ModelConfig());
}

TEST(ModelConfigTest, ReadsAllFields) {
  const ModelConfig config = Good({{"rms_norm_eps", "1e-05"},
                                   {"rope_theta", "500000.0"},
                                   {"head_dim", "16"},
                                   {"attention_bias", "true"},
                                   {"mlp_bias", "true"},
                                   {"tie_word_embeddings", "true"},
                                   {"bos_token_id", "1"},
                                   {"eos_token_id", "[2,511]"},
                                   {"torch_dtype", "\"bfloat16\""},
                                   {"hidden_act", "\"silu\""}});
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.vocabulary, 512);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.intermediate_size, 172);
  EXPECT_EQ(config.layers.size(), 3u);
  EXPECT_EQ(config.layers[0].attention.heads, 8);
  EXPECT_EQ(config.layers[0].attention.kv_heads, 4);
  EXPECT_EQ(config.layers[0].attention.k_dim, 16);
  EXPECT_EQ(config.layers[0].attention.v_dim, 16);
  EXPECT_EQ(config.norm.epsilon, 1e-5f);
  EXPECT_EQ(config.ropes[0].theta, 500000);
  EXPECT_EQ(config.ropes[0].pairs, 8);
  EXPECT_TRUE(config.attention_bias);
  EXPECT_TRUE(config.mlp_bias);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.max_context, 2048);
  EXPECT_EQ(config.bos_id, 1);
  EXPECT_THAT(config.eos_ids, ElementsAre(2, 511));
  EXPECT_EQ(config.stored_dtype, DType::kBF16);
}

TEST(ModelConfigTest, HasTheDefaultsOfTransformers) {
  const ModelConfig config = Good({{"num_key_value_heads", ""}, {"max_position_embeddings", ""}});
  EXPECT_EQ(config.layers[0].attention.kv_heads, 8);
  EXPECT_EQ(config.layers[0].attention.k_dim, 8);
  EXPECT_EQ(config.layers[0].attention.v_dim, 8);
  EXPECT_EQ(config.norm.epsilon, 1e-6f);
  EXPECT_EQ(config.ropes[0].theta, 10000);
  EXPECT_EQ(config.ropes[0].kind, RopeKind::kDefault);
  EXPECT_EQ(config.max_context, 2048);
  EXPECT_FALSE(config.attention_bias);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_FALSE(config.bos_id.has_value());
  EXPECT_THAT(config.eos_ids, IsEmpty());
  EXPECT_EQ(config.stored_dtype, std::nullopt);
}

TEST(ModelConfigTest, NullCountsAsAbsent) {
  const ModelConfig config = Good({{"num_key_value_heads", "null"},
                                   {"head_dim", "null"},
                                   {"rope_scaling", "null"},
                                   {"eos_token_id", "null"},
                                   {"sliding_window", "null"},
                                   {"quantization_config", "null"}});
  EXPECT_EQ(config.layers[0].attention.kv_heads, 8);
  EXPECT_EQ(config.layers[0].attention.k_dim, 8);
  EXPECT_EQ(config.layers[0].attention.v_dim, 8);
}

TEST(ModelConfigTest, ReadsBothStylesOfRope) {
  const std::string scaling =
      "{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
      "\"original_max_position_embeddings\":8192";
  const ModelConfig older = Good({{"rope_scaling", scaling + "}"}, {"rope_theta", "500000.0"}});
  const ModelConfig newer = Good({{"rope_parameters", scaling + ",\"rope_theta\":500000.0}"}});
  for (const ModelConfig& config : {older, newer}) {
    EXPECT_EQ(config.ropes[0].kind, RopeKind::kLlama3);
    EXPECT_EQ(config.ropes[0].theta, 500000);
    EXPECT_EQ(config.ropes[0].factor, 8);
    EXPECT_EQ(config.ropes[0].low_frequency_factor, 1);
    EXPECT_EQ(config.ropes[0].high_frequency_factor, 4);
    EXPECT_EQ(config.ropes[0].original_context, 8192);
  }
  const ModelConfig linear = Good({{"rope_scaling", "{\"type\":\"linear\",\"factor\":4}"}});
  EXPECT_EQ(linear.ropes[0].kind, RopeKind::kLinear);
  EXPECT_EQ(linear.ropes[0].factor, 4);
}

TEST(ModelConfigTest, ReadsWindowsPerLayer) {
  const ModelConfig config =
      Good({{"sliding_window", "17"},
            {"layer_types", "[\"sliding_attention\",\"full_attention\",\"sliding_attention\"]"}});
  EXPECT_EQ(config.layers[0].window, 17);
  EXPECT_EQ(config.layers[1].window, 0);
  EXPECT_EQ(config.layers[2].window, 17);
  // As in Transformers, a Llama's sliding_window alone means nothing.
  EXPECT_EQ(Good({{"sliding_window", "17"}}).layers[0].window, 0);
}

TEST(ModelConfigTest, MistralHasOneWindowForAllLayers) {
  const Keys mistral = {{"architectures", "[\"MistralForCausalLM\"]"}};
  EXPECT_EQ(Good(mistral).layers[2].window, 4096);
  Keys keys = mistral;
  keys["sliding_window"] = "null";
  EXPECT_EQ(Good(keys).layers[2].window, 0);
  keys["sliding_window"] = "9";
  EXPECT_EQ(Good(keys).layers[2].window, 9);
  EXPECT_EQ(Good(keys).model_type, "mistral");
}

// A config of another family: the small Llama's sizes under its name.
Keys FamilyKeys(const std::string& architecture, const Keys& more = {}) {
  Keys keys = {{"architectures", absl::StrCat("[\"", architecture, "\"]")}};
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

TEST(ModelConfigTest, EveryFamilyIsReadWithItsDefaults) {
  for (const Family& family : Families()) {
    const std::string name(family.architecture);
    if (name.ends_with("TextModel")) continue;  // has no directory of its own
    Keys keys = {};
    if (family.windows == WindowRule::kAttentionOnly) {
      keys["layer_types"] = "[\"attention\",\"attention\",\"attention\"]";
      keys["num_local_experts"] = "0";
    }
    if (family.gemma3n) keys["num_kv_shared_layers"] = "0";  // its default is for more layers
    const ModelConfig config = Good(FamilyKeys(name, keys));
    EXPECT_EQ(config.architecture, name);
    EXPECT_FALSE(config.ropes.empty());
    EXPECT_GE(config.rope_context, config.max_context);
    for (const LayerConfig& layer : config.layers) {
      EXPECT_LT(layer.rope, static_cast<int32_t>(config.ropes.size()));
    }
  }
  EXPECT_EQ(Families().size(), 38u);
}

// As publishers write it: what the family's defaults say is left out.
constexpr char kGemma3[] = R"({
  "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
  "eos_token_id": [1, 106], "torch_dtype": "bfloat16",
  "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
                  "num_hidden_layers": 34, "sliding_window": 1024,
                  "rope_scaling": {"factor": 8.0, "rope_type": "linear"}},
  "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "vocab_size": 7}})";

TEST(ModelConfigTest, ReadsTheTextHalfOfALargerModel) {
  const auto config = ParseModelConfig(kGemma3, "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, "Gemma3ForConditionalGeneration");
  EXPECT_EQ(config->model_type, "gemma3_text");
  EXPECT_EQ(config->vocabulary, 262208);
  EXPECT_EQ(config->hidden_size, 2560);
  EXPECT_EQ(config->layers[0].attention.heads, 8);
  EXPECT_EQ(config->layers[0].attention.kv_heads, 4);
  EXPECT_EQ(config->layers[0].attention.k_dim, 256);
  EXPECT_EQ(config->layers[0].attention.v_dim, 256);
  EXPECT_EQ(config->layers.size(), 34u);
  EXPECT_EQ(config->layers[4].window, 1024);
  EXPECT_EQ(config->layers[5].window, 0);
  EXPECT_EQ(config->ropes.at(0).factor, 8);
  EXPECT_EQ(config->ropes.at(0).theta, 1e6);
  EXPECT_EQ(config->ropes.at(1).theta, 1e4);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_EQ(config->eos_ids, (std::vector<int32_t>{1, 106}));
  EXPECT_EQ(config->stored_dtype, DType::kBF16);
}

// Of both places that may say it, Transformers heeds the whole model's.
TEST(ModelConfigTest, TheWholeModelSaysWhetherTheHeadIsTied) {
  const std::string json = absl::StrReplaceAll(
      kGemma3, {{"\"model_type\": \"gemma3\",", "\"tie_word_embeddings\": false,"},
                {"\"model_type\": \"gemma3_text\"", "\"tie_word_embeddings\": true"}});
  const auto config = ParseModelConfig(json, "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->tie_word_embeddings);
}

// Messages say where the key is.
TEST(ModelConfigTest, RefusesABadTextHalf) {
  const auto refused = [](absl::string_view from, absl::string_view to) {
    const std::string json = absl::StrReplaceAll(kGemma3, {{from, to}});
    return std::string(ParseModelConfig(json, "config.json").status().message());
  };
  EXPECT_THAT(refused("text_config", "text"), HasSubstr("config.json: text_config is missing"));
  EXPECT_THAT(refused("gemma3_text", "gemma4_text"),
              HasSubstr("text_config.model_type is \"gemma4_text\"; allowed: \"gemma3_text\""));
  EXPECT_THAT(refused("\"hidden_size\": 2560", "\"hidden_size\": 0"),
              HasSubstr("text_config.hidden_size is 0"));
  EXPECT_THAT(refused("\"factor\": 8.0", "\"factor\": 0"),
              HasSubstr("text_config.rope_scaling.factor is 0"));
  EXPECT_THAT(refused("106", "262208"), HasSubstr("config.json: eos_token_id is [1,262208]"));
}

// The architecture and whether the fields are those of text_config; or the refusal.
std::string FoundBy(const std::string& architectures, const std::string& model_type) {
  nlohmann::json object = nlohmann::json::object();
  if (!architectures.empty()) object["architectures"] = nlohmann::json::parse(architectures);
  if (!model_type.empty()) object["model_type"] = nlohmann::json::parse(model_type);
  const auto found = FindFamily(JsonFields("f", "", object));
  if (!found.ok()) return std::string(found.status().message());
  return absl::StrCat(found->architecture, found->inside ? " inside" : "");
}

// Which one it is, the text half says.
TEST(ModelConfigTest, AModelThatSeesMayHaveOneOfSeveralTextHalves) {
  const auto with = [](const std::string& type) {
    return ParseModelConfig(
        absl::StrCat(R"({"architectures": ["Mistral3ForConditionalGeneration"], "text_config": {)",
                     type, R"("vocab_size": 64, "hidden_size": 32, "intermediate_size": 32,
                              "num_hidden_layers": 1, "num_attention_heads": 8}})"),
        "config.json");
  };
  EXPECT_EQ(with("")->model_type, "mistral");
  EXPECT_EQ(with(R"("model_type": "mistral",)")->model_type, "mistral");
  EXPECT_EQ(with(R"("model_type": "ministral3",)")->model_type, "ministral3");
  EXPECT_THAT(std::string(with(R"("model_type": "mistral4",)").status().message()),
              HasSubstr("text_config.model_type is \"mistral4\"; allowed: \"mistral\" or "
                        "\"ministral3\""));
}

TEST(ModelConfigTest, OlderFilesOfQwenVlHaveTheTextHalfsKeysAtTheTop) {
  for (const char* name : {"Qwen2VL", "Qwen2_5_VL"}) {
    const ModelConfig config =
        Good({{"architectures", absl::StrCat("[\"", name, "ForConditionalGeneration\"]")},
              {"model_type", ""},
              {"rope_scaling", "{\"type\":\"mrope\",\"mrope_section\":[1,1,2]}"}});
    EXPECT_EQ(config.ropes[0].kind, RopeKind::kDefault) << name;
    EXPECT_TRUE(config.attention_bias) << name;
    EXPECT_FALSE(config.output_bias) << name;
  }
  EXPECT_THAT(FoundBy("", "\"qwen3_vl\""), HasSubstr("inside"));
}

// The defaults of families whose files may leave keys out.
TEST(ModelConfigTest, LayersOfTheFamiliesOf2025) {
  const ModelConfig olmo = Good(FamilyKeys("Olmo3ForCausalLM", {{"num_hidden_layers", "8"}}));
  EXPECT_EQ(olmo.layers[2].window, 4096);
  EXPECT_EQ(olmo.layers[3].window, 0);
  EXPECT_EQ(olmo.ropes[1].theta, 500000);
  const std::string yarn =
      R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 64)";
  for (const Keys& one : {Keys{{"rope_theta", "2e6"}, {"rope_scaling", yarn + "}"}},
                          Keys{{"rope_parameters", yarn + R"(, "rope_theta": 2e6})"}}}) {
    const ModelConfig both = Good(FamilyKeys("Olmo3ForCausalLM", one));
    EXPECT_EQ(both.ropes[0].theta, 2e6);
    EXPECT_EQ(both.ropes[0].kind, RopeKind::kYarn);
    EXPECT_EQ(both.ropes[1].theta, 2e6);
    EXPECT_EQ(both.ropes[1].kind, RopeKind::kDefault);
  }
  const ModelConfig each = Good(FamilyKeys(
      "Olmo3ForCausalLM",
      {{"rope_parameters",
        R"({"full_attention": {"rope_theta": 2e6}, "sliding_attention": {"rope_theta": 3e5}})"}}));
  EXPECT_EQ(each.ropes[0].theta, 2e6);
  EXPECT_EQ(each.ropes[1].theta, 3e5);
  const ModelConfig exaone = Good(FamilyKeys("Exaone4ForCausalLM", {{"num_hidden_layers", "4"}}));
  EXPECT_EQ(exaone.layers[2].rope, 0);
  EXPECT_EQ(exaone.layers[3].rope, kNoRope);
  const ModelConfig full = Good(FamilyKeys("Exaone4ForCausalLM", {{"sliding_window", "null"}}));
  EXPECT_EQ(full.layers[2].window, 0);
  EXPECT_EQ(full.layers[2].rope, 0);
  const ModelConfig ministral = Good(FamilyKeys("Ministral3ForCausalLM"));
  EXPECT_EQ(ministral.ropes[0].kind, RopeKind::kYarn);
  EXPECT_EQ(ministral.ropes[0].growth, 0);
  EXPECT_EQ(ministral.ropes[1].growth, 0.1);
  EXPECT_EQ(ministral.ropes[1].original_context, 16384);
  EXPECT_EQ(ministral.layers[0].query_rope, 1);
  EXPECT_EQ(Good(FamilyKeys("Glm4ForCausalLM", {{"head_dim", "16"}})).ropes[0].pairs, 4);
}

TEST(ModelConfigTest, BothStylesOfGemma3MeanTheSame) {
  const Keys older = {{"sliding_window", "32"},
                      {"sliding_window_pattern", "3"},
                      {"rope_theta", "1000000.0"},
                      {"rope_local_base_freq", "20000.0"},
                      {"rope_scaling", "{\"rope_type\":\"linear\",\"factor\":8.0}"}};
  const Keys newer = {
      {"sliding_window", "32"},
      {"layer_types", "[\"sliding_attention\",\"sliding_attention\",\"full_attention\"]"},
      {"rope_parameters",
       "{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8.0,\"rope_theta\":1000000.0},"
       "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":20000.0}}"}};
  for (const Keys& keys : {older, newer}) {
    const ModelConfig config = Good(FamilyKeys("Gemma3ForCausalLM", keys));
    ASSERT_EQ(config.ropes.size(), 2u);
    EXPECT_EQ(config.ropes[0].kind, RopeKind::kLinear);
    EXPECT_EQ(config.ropes[0].theta, 1e6);
    EXPECT_EQ(config.ropes[1].kind, RopeKind::kDefault);
    EXPECT_EQ(config.ropes[1].theta, 20000);
    EXPECT_EQ(config.layers[0].window, 32);
    EXPECT_EQ(config.layers[1].rope, 1);
    EXPECT_EQ(config.layers[2].window, 0);
    EXPECT_EQ(config.layers[2].rope, 0);
    EXPECT_EQ(config.attention_soft_cap, 0);
  }
}

TEST(ModelConfigTest, SoftCapsAreNullOrTheFamilysOwn) {
  EXPECT_EQ(Good(FamilyKeys("Gemma2ForCausalLM")).attention_soft_cap, 50);
  EXPECT_EQ(Good(FamilyKeys("Gemma2ForCausalLM")).logits_soft_cap, 30);
  const Keys none = {{"attn_logit_softcapping", "null"}, {"final_logit_softcapping", "5"}};
  EXPECT_EQ(Good(FamilyKeys("Gemma2ForCausalLM", none)).attention_soft_cap, 0);
  EXPECT_EQ(Good(FamilyKeys("Gemma2ForCausalLM", none)).logits_soft_cap, 5);
  EXPECT_EQ(Good(FamilyKeys("Gemma3ForCausalLM", none)).logits_soft_cap, 5);
}

// Nothing is stretched silently: beyond the trained length only with a rope setting made for it.
TEST(ModelConfigTest, ContextBeyondTheTrainedLengthNeedsARopeSetting) {
  const ModelConfig plain = Good();
  EXPECT_EQ(*ContextLimit(plain, 0), 2048);
  EXPECT_EQ(*ContextLimit(plain, 100), 100);
  const absl::Status refused = ContextLimit(plain, 2049).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("trained length of 2048 tokens"));
  const Keys yarn = {{"rope_scaling",
                      "{\"type\":\"yarn\",\"factor\":4.0,"
                      "\"original_max_position_embeddings\":2048}"}};
  EXPECT_EQ(*ContextLimit(Good(yarn), 0), 2048);
  EXPECT_EQ(*ContextLimit(Good(yarn), 8192), 8192);
  const absl::Status beyond = ContextLimit(Good(yarn), 8193).status();
  EXPECT_THAT(std::string(beyond.message()),
              HasSubstr("is made for 8192; give at most this value"));
  const Keys dynamic = {{"rope_scaling", "{\"type\":\"dynamic\",\"factor\":2.0}"}};
  EXPECT_EQ(*ContextLimit(Good(dynamic), 4096), 4096);
  EXPECT_FALSE(ContextLimit(Good(dynamic), 4097).ok());
}

struct BadConfig {
  const char* what;
  Keys changes;
  const char* message;  // part of it
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

std::vector<BadConfig> BadConfigs() {
  constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
  const auto llama3 = [](absl::string_view rest) {
    return Keys{{"rope_scaling", absl::StrCat("{\"rope_type\":\"llama3\"", rest, "}")}};
  };
  return {
      {"NoArchitecture", {{"architectures", ""}}, "architectures is missing"},
      {"ArchitectureIsAString",
       {{"architectures", "\"LlamaForCausalLM\""}},
       "a list with an architecture of the types llama"},
      {"UnknownArchitecture",
       {{"architectures", "[\"Qwen3NextForCausalLM\"]"}, {"model_type", "\"qwen3_next\""}},
       "model_type is \"qwen3_next\"; allowed: one of "
       "llama, mistral, qwen2, qwen3, phi3, gemma2, gemma3_text, gemma4_text, gemma3n_text, "
       "smollm3, olmo2, "
       "mixtral, qwen3_moe, gpt_oss, ministral3, olmo3, exaone4, seed_oss, granite, "
       "granitemoehybrid, gemma, olmoe, hunyuan_v1_dense, ernie4_5, glm, glm4, qwen2_moe, "
       "glm4_moe, minimax_m2, phi4_multimodal, cohere, cohere2, stablelm, starcoder2, gemma3, "
       "gemma3n, gemma4, "
       "mistral3, "
       "qwen2_vl, "
       "qwen2_5_vl, qwen3_vl, qwen3_vl_moe. Such a model has layers of linear attention, which is "
       "not served; "
       "the nearest type is qwen3_moe",
       kUnimplemented},
      {"HeadsZero", {{"num_attention_heads", "0"}}, "num_attention_heads is 0; allowed: a whole"},
      {"HeadsNegative", {{"num_attention_heads", "-8"}}, "num_attention_heads is -8"},
      {"HeadsString", {{"num_attention_heads", "\"8\""}}, "num_attention_heads is \"8\""},
      {"HeadsFloat", {{"num_attention_heads", "8.0"}}, "num_attention_heads is 8.0"},
      {"HeadsNotDividingHidden",
       {{"num_attention_heads", "9"}, {"num_key_value_heads", "3"}},
       "a divisor of hidden_size, 64"},
      {"KvHeadsZero", {{"num_key_value_heads", "0"}}, "from 1 to 8"},
      {"KvHeadsNotDividing",
       {{"num_key_value_heads", "3"}},
       "num_key_value_heads is 3; allowed: a divisor of num_attention_heads, 8"},
      {"KvHeadsMoreThanHeads", {{"num_key_value_heads", "16"}}, "from 1 to 8"},
      {"LayersZero", {{"num_hidden_layers", "0"}}, "from 1 to 1024"},
      {"Layers2To31", {{"num_hidden_layers", "2147483648"}}, "num_hidden_layers is 2147483648"},
      {"Layers2To64", {{"num_hidden_layers", "18446744073709551615"}}, "num_hidden_layers is 1844"},
      {"Layers1e3", {{"num_hidden_layers", "1e2"}}, "a whole number"},
      {"LayersMissing", {{"num_hidden_layers", ""}}, "num_hidden_layers is missing; allowed:"},
      {"LayersList", {{"num_hidden_layers", "[3]"}}, "num_hidden_layers is [3]"},
      {"VocabularyZero", {{"vocab_size", "0"}}, "vocab_size is 0"},
      {"VocabularyHuge", {{"vocab_size", "16777217"}}, "from 1 to 16777216"},
      {"HiddenHuge", {{"hidden_size", "65537"}}, "hidden_size is 65537"},
      {"HiddenBoolean", {{"hidden_size", "true"}}, "hidden_size is true"},
      {"IntermediateZero", {{"intermediate_size", "0"}}, "intermediate_size is 0"},
      {"HeadDimOdd", {{"head_dim", "15"}}, "head_dim is 15; allowed: an even number"},
      {"HeadDimHuge", {{"head_dim", "514"}}, "head_dim is 514"},
      {"HeadDimDerivedOdd", {{"hidden_size", "56"}}, "hidden_size / num_attention_heads, now 7"},
      {"HeadDimDerivedHuge", {{"hidden_size", "65536"}}, "now 8192"},
      {"ContextZero", {{"max_position_embeddings", "0"}}, "max_position_embeddings is 0"},
      {"Context2To31", {{"max_position_embeddings", "2147483648"}}, "from 1 to 2147483647"},
      {"EpsilonZero", {{"rms_norm_eps", "0"}}, "rms_norm_eps is 0"},
      {"EpsilonNegative", {{"rms_norm_eps", "-1e-5"}}, "rms_norm_eps is -1e-05"},
      {"EpsilonString", {{"rms_norm_eps", "\"1e-5\""}}, "rms_norm_eps is \"1e-5\""},
      {"ThetaZero", {{"rope_theta", "0"}}, "rope_theta is 0; allowed: a number from 1 to 1e+38"},
      {"ThetaNan", {{"rope_theta", "NaN"}}, "rope_theta is NaN; allowed: a number from 1 to 1e+38"},
      {"ThetaBeyondADouble", {{"rope_theta", "1e999"}}, "rope_theta is 1e999; allowed: numbers"},
      {"ThetaBeyondAFloat", {{"rope_theta", "1e39"}}, "rope_theta is 1e+39"},
      {"ThetaString", {{"rope_theta", "\"10000\""}}, "rope_theta is \"10000\""},
      {"ThetaInParameters",
       {{"rope_parameters", "{\"rope_theta\":-1}"}},
       "rope_parameters.rope_theta is -1"},
      {"ScalingString", {{"rope_scaling", "\"linear\""}}, "an object or null"},
      {"ScalingUnknown",
       {{"rope_scaling", "{\"rope_type\":\"spiral\",\"factor\":4}"}},
       "rope_scaling.rope_type is \"spiral\"; allowed: \"default\", \"linear\", \"dynamic\", "
       "\"llama3\", \"yarn\", \"longrope\"",
       kUnimplemented},
      {"ScalingPerLayer",
       {{"rope_parameters", "{\"full_attention\":{}}"}},
       "one rope setting for all layers",
       kUnimplemented},
      {"LinearWithoutFactor",
       {{"rope_scaling", "{\"type\":\"linear\"}"}},
       "rope_scaling.factor is missing"},
      {"LinearFactorZero",
       {{"rope_scaling", "{\"type\":\"linear\",\"factor\":0}"}},
       "rope_scaling.factor is 0; allowed: a number from 1 to 1e+06"},
      {"LinearFactorBeyondADouble",
       {{"rope_scaling", "{\"type\":\"linear\",\"factor\":1e999}"}},
       "rope_scaling.factor is 1e999"},
      {"Llama3WithoutFactors", llama3(",\"factor\":8"), "low_freq_factor is missing"},
      {"Llama3FactorsEqual", llama3(",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4"),
       "high_freq_factor is 4; allowed: more than low_freq_factor, 4"},
      {"Llama3ContextZero",
       llama3(",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
              "\"original_max_position_embeddings\":0"),
       "rope_scaling.original_max_position_embeddings is 0"},
      {"PartialRotary",
       {{"partial_rotary_factor", "0.5"}},
       "partial_rotary_factor is 0.5",
       kUnimplemented},
      {"Gelu",
       {{"hidden_act", "\"gelu\""}},
       "hidden_act is \"gelu\"; allowed: \"silu\" or \"gelu_pytorch_tanh\"",
       kUnimplemented},
      {"Quantized",
       {{"quantization_config", "{\"quant_method\":\"gptq\"}"}},
       "quantization_config.quant_method is \"gptq\"; allowed: quant_method \"fp8\", "
       "\"fbgemm_fp8\", \"compressed-tensors\" with float8 weights, or \"mxfp4\" of gpt-oss. Take "
       "a GGUF file of the same model (Q4_0, Q4_1 and Q8_0 stay as they are), or its files without "
       "quantization and --weights-dtype int4_g32 or int8",
       kUnimplemented},
      {"QuantizedAwq",
       {{"quantization_config", "{\"quant_method\":\"awq\",\"bits\":4}"}},
       "quantization_config.quant_method is \"awq\"; allowed: quant_method \"fp8\"",
       kUnimplemented},
      {"QuantizedBitsandbytes",
       {{"quantization_config", "{\"quant_method\":\"bitsandbytes\"}"}},
       "quantization_config.quant_method is \"bitsandbytes\"",
       kUnimplemented},
      {"QuantizedPackedIntegers",
       {{"quantization_config",
         "{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\"}"}},
       "quantization_config.format is \"pack-quantized\"; allowed: \"float-quantized\" (float8 "
       "weights). Take a GGUF file of the same model",
       kUnimplemented},
      {"Mxfp4OfAnotherFamily",
       {{"quantization_config", "{\"quant_method\":\"mxfp4\"}"}},
       "quantization_config.quant_method is \"mxfp4\"",
       kUnimplemented},
      {"Fp8BlockZero",
       {{"quantization_config", "{\"quant_method\":\"fp8\",\"weight_block_size\":[0,128]}"}},
       "weight_block_size is [0,128]; allowed: a list of 2 numbers from 1"},
      {"LongropeShortList",
       FamilyKeys("Phi3ForCausalLM",
                  {{"rope_scaling",
                    "{\"type\":\"longrope\",\"short_factor\":[1,1,1,1],\"long_factor\":[2,2]}"}}),
       "rope_scaling.long_factor is [2,2]; allowed: a list of 4 numbers"},
      {"LongropeWithoutFactors",
       FamilyKeys("Phi3ForCausalLM", {{"rope_scaling", "{\"type\":\"su\"}"}}),
       "rope_scaling.short_factor is missing"},
      {"YarnTruncateNumber",
       {{"rope_scaling", "{\"type\":\"yarn\",\"factor\":4,\"truncate\":1}"}},
       "rope_scaling.truncate is 1; allowed: true or false"},
      {"YarnAttentionFactorZero",
       {{"rope_scaling", "{\"type\":\"yarn\",\"factor\":4,\"attention_factor\":0}"}},
       "rope_scaling.attention_factor is 0"},
      {"DynamicWithoutFactor",
       {{"rope_scaling", "{\"type\":\"dynamic\"}"}},
       "rope_scaling.factor is missing"},
      {"PartialRotaryOdd", FamilyKeys("Phi3ForCausalLM", {{"partial_rotary_factor", "0.4"}}),
       "partial_rotary_factor is 0.4; allowed: a number whose product with the head_dim of 8"},
      {"MoreExpertsChosenThanThereAre",
       FamilyKeys("MixtralForCausalLM", {{"num_local_experts", "4"}, {"num_experts_per_tok", "5"}}),
       "num_experts_per_tok is 5; allowed: at most the number of experts, 4"},
      {"NoExperts", FamilyKeys("Qwen3MoeForCausalLM", {{"num_experts", "0"}}),
       "num_experts is 0; allowed: a whole number from 1 to 1024"},
      {"SoftCapNegative", FamilyKeys("Gemma2ForCausalLM", {{"attn_logit_softcapping", "-50"}}),
       "attn_logit_softcapping is -50"},
      {"ScoreCapOfGemma3", FamilyKeys("Gemma3ForCausalLM", {{"attn_logit_softcapping", "50.0"}}),
       "attn_logit_softcapping is 50.0; allowed: null, because gemma3_text is computed without",
       kUnimplemented},
      {"ScoreCapOfGemma1", FamilyKeys("GemmaForCausalLM", {{"attn_logit_softcapping", "50.0"}}),
       "attn_logit_softcapping is 50.0; allowed: null, because gemma is computed without",
       kUnimplemented},
      {"LogitsCapOfGemma1", FamilyKeys("GemmaForCausalLM", {{"final_logit_softcapping", "30.0"}}),
       "final_logit_softcapping is 30.0; allowed: null, because gemma is computed without",
       kUnimplemented},
      {"ScalarZero", FamilyKeys("Gemma3ForCausalLM", {{"query_pre_attn_scalar", "0"}}),
       "query_pre_attn_scalar is 0"},
      {"Bidirectional", FamilyKeys("Gemma3ForCausalLM", {{"use_bidirectional_attention", "true"}}),
       "use_bidirectional_attention is true; allowed: false", kUnimplemented},
      {"NoRopeLayersShort", FamilyKeys("SmolLM3ForCausalLM", {{"no_rope_layers", "[1,0]"}}),
       "no_rope_layers is [1,0]; allowed: a list of at least 3 numbers from 0 to 1"},
      {"EosBeyondVocabulary",
       {{"eos_token_id", "512"}},
       "eos_token_id is 512; allowed: token ids from 0 to 511 (vocab_size is 512)"},
      {"EosNegative", {{"eos_token_id", "-1"}}, "eos_token_id is -1"},
      {"EosInList", {{"eos_token_id", "[1,4096]"}}, "eos_token_id is [1,4096]"},
      {"EosString", {{"eos_token_id", "\"</s>\""}}, "eos_token_id is \"</s>\""},
      {"EosBeyond64Bits", {{"eos_token_id", "18446744073709551616"}}, "token ids from 0 to 511"},
      {"BosBeyondVocabulary", {{"bos_token_id", "512"}}, "bos_token_id is 512"},
      {"TieString", {{"tie_word_embeddings", "\"yes\""}}, "allowed: true or false"},
      {"BiasNumber", {{"attention_bias", "1"}}, "attention_bias is 1; allowed: true or false"},
      {"WindowZero", {{"sliding_window", "0"}}, "sliding_window is 0"},
      {"WindowNegative", {{"sliding_window", "-1"}}, "sliding_window is -1"},
      {"LayerTypesShort",
       {{"layer_types", "[\"full_attention\"]"}},
       "a list of num_hidden_layers, 3, names"},
      {"LayerTypesUnknown",
       {{"layer_types", "[\"full_attention\",\"linear_attention\",\"full_attention\"]"}},
       "\"full_attention\" and \"sliding_attention\"",
       kUnimplemented},
      {"LayerTypesWithoutWindow",
       {{"layer_types", "[\"full_attention\",\"sliding_attention\",\"full_attention\"]"}},
       "because layer_types has sliding_attention"},
      {"LayerTypesOfMistral",
       {{"architectures", "[\"MistralForCausalLM\"]"},
        {"layer_types", "[\"full_attention\",\"full_attention\",\"full_attention\"]"}},
       "one sliding_window for all layers",
       kUnimplemented},
      {"ExpertsOfQwen3VlNotNormalised",
       {{"architectures", "[\"Qwen3VLMoeForConditionalGeneration\"]"},
        {"text_config", R"({"vocab_size": 9, "hidden_size": 8, "intermediate_size": 8,
                            "num_hidden_layers": 1, "num_attention_heads": 1,
                            "num_key_value_heads": 1, "norm_topk_prob": false})"}},
       "text_config.norm_topk_prob is false; allowed: true",
       kUnimplemented},
      {"OlmoeClips", FamilyKeys("OlmoeForCausalLM", {{"clip_qkv", "8"}}), "clip_qkv is 8",
       kUnimplemented},
      {"StateSpaceLayers",
       FamilyKeys("GraniteMoeHybridForCausalLM",
                  {{"layer_types", "[\"mamba\",\"attention\",\"mamba\"]"}}),
       "layer_types is [\"mamba\",\"attention\",\"mamba\"]; allowed: \"attention\"",
       kUnimplemented},
      {"SharedExpertsAmongOthers",
       FamilyKeys("GraniteMoeHybridForCausalLM",
                  {{"layer_types", "[\"attention\",\"attention\",\"attention\"]"}}),
       "num_local_experts is missing; allowed: 0", kUnimplemented},
      {"ResidualsTooSmall", FamilyKeys("GraniteForCausalLM", {{"residual_multiplier", "0.0001"}}),
       "residual_multiplier is 0.0001; allowed: a number whose square"},
      {"DuplicateKey", {{"vocab_size", "512,\"vocab_size\":513"}}, "vocab_size is given twice"},
      {"LongValueIsCut",
       {{"head_dim", absl::StrCat("\"", std::string(5000, 'z'), "\"")}},
       "zzz..."},
  };
}

// Python's json writes them so; publishers do in fields of other kinds of models.
TEST(ModelConfigTest, ReadsInfinityWhereNothingIsComputedWithIt) {
  const auto config = ParseModelConfig(
      Json({{"time_step_limit", "[0.0, Infinity]"}, {"floor", "{\"a\": [-Infinity, NaN]}"}}), "c");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->vocabulary, 512);
  ModelConfig with_ends = *config;
  EXPECT_TRUE(
      ApplyGenerationConfig(R"({"eos_token_id": 7, "guidance": Infinity})", "g", with_ends).ok());
  EXPECT_THAT(with_ends.eos_ids, ElementsAre(7));
}

TEST(ModelConfigTest, RefusesInfinityInEveryFieldThatIsComputedWith) {
  const char* keys[] = {
      "vocab_size",          "hidden_size",         "intermediate_size", "num_hidden_layers",
      "num_attention_heads", "num_key_value_heads", "head_dim",          "max_position_embeddings",
      "rms_norm_eps",        "rope_theta",          "sliding_window",    "attention_bias",
      "tie_word_embeddings", "eos_token_id",        "bos_token_id",      "torch_dtype"};
  for (const char* key : keys) {
    for (const char* number : {"NaN", "Infinity", "-Infinity"}) {
      const auto config = ParseModelConfig(Json({{key, number}}), "dir/config.json");
      EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << key;
      EXPECT_THAT(std::string(config.status().message()),
                  HasSubstr(absl::StrCat("dir/config.json: ", key, " is ", number, "; allowed: ")));
    }
  }
  for (const char* rope : {R"({"rope_type": "linear", "factor": Infinity})",
                           R"({"rope_type": "yarn", "factor": 2, "beta_fast": Infinity})"}) {
    const auto config = ParseModelConfig(Json({{"rope_scaling", rope}}), "c");
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(" is Infinity; allowed: a num"));
  }
}

class BadConfigTest : public ::testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigTest, IsRefusedWithFileKeyValueAndWhatIsAllowed) {
  const auto config = ParseModelConfig(Json(GetParam().changes), "dir/config.json");
  EXPECT_EQ(config.status().code(), GetParam().code) << config.status();
  EXPECT_THAT(std::string(config.status().message()), HasSubstr(GetParam().message));
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("dir/config.json: "));
  EXPECT_LT(config.status().message().size(), 640u);
}

INSTANTIATE_TEST_SUITE_P(All, BadConfigTest, ::testing::ValuesIn(BadConfigs()),
                         [](const auto& info) { return info.param.what; });

TEST(ModelConfigTest, TheModelTypeSaysWhichWhereTheArchitecturesDoNot) {
  for (const std::string architectures : {"", "null", "[]"}) {
    EXPECT_EQ(FoundBy(architectures, "\"qwen3\""), "Qwen3ForCausalLM") << architectures;
    EXPECT_EQ(FoundBy(architectures, "\"gemma3\""), "Gemma3ForConditionalGeneration inside");
    EXPECT_THAT(FoundBy(architectures, ""), HasSubstr("; allowed: a list with an architecture of"));
    EXPECT_THAT(FoundBy(architectures, "\"falcon\""),
                HasSubstr("model_type is \"falcon\"; allowed: one of llama, mistral, "));
    EXPECT_THAT(FoundBy(architectures, "7"), HasSubstr("model_type is 7"));
  }
  EXPECT_EQ(FoundBy(R"(["MistralForCausalLM", "LlamaForCausalLM"])", "\"llama\""),
            "LlamaForCausalLM");
  EXPECT_EQ(FoundBy(R"(["LlamaForCausalLM", "LlamaForCausalLM"])", "\"llama\""),
            "LlamaForCausalLM");
  EXPECT_THAT(FoundBy(R"(["LlamaForSequenceClassification", "LlamaModel"])", "\"llama\""),
              HasSubstr("with the model_type \"llama\": a list with LlamaForCausalLM"));
  EXPECT_THAT(FoundBy(R"(["LlamaForCausalLM", 3])", "\"llama\""),
              HasSubstr("a list with an architecture of"));
  EXPECT_EQ(FoundBy(R"(["LlamaForCausalLM"])", "\"mistral\""), "LlamaForCausalLM");
}

// By what such a model has, and by the nearest type, which is served; by no name that only looks
// alike.
TEST(ModelConfigTest, SaysWhyATypeIsRefused) {
  const auto reason = [](const std::string& type) -> std::string {
    const std::string refusal = FoundBy(R"(["OtherForCausalLM"])", absl::StrCat("\"", type, "\""));
    EXPECT_THAT(refusal, HasSubstr(absl::StrCat("model_type is \"", type, "\"; allowed: one of")));
    const size_t at = refusal.find(". Such a model has ");
    return at == std::string::npos ? "" : refusal.substr(at + 19);
  };
  EXPECT_EQ(reason("qwen3_5_moe"),
            "layers of linear attention, which is not served; the nearest type is qwen3_moe");
  EXPECT_EQ(reason("falcon"), "norms by mean and variance, which is not served");
  for (const char* unknown : {"bert", "llama5", "qwen3_", "x"}) EXPECT_EQ(reason(unknown), "");
  for (const RefusedType& refused : RefusedTypes()) {
    EXPECT_THAT(reason(std::string(refused.model_type)), HasSubstr(refused.has));
    if (refused.nearest.empty()) continue;
    EXPECT_THAT(FoundBy("", absl::StrCat("\"", refused.nearest, "\"")), HasSubstr("For"));
  }
  EXPECT_THAT(FoundBy(R"(["LlamaForSequenceClassification"])", "\"llama\""),
              HasSubstr("with the model_type \"llama\": a list with LlamaForCausalLM"));
  EXPECT_THAT(FoundBy(R"(["Qwen3NextForCausalLM"])", ""),
              HasSubstr("a list with an architecture of the types llama"));
  for (const std::string& served : SupportedArchitectures()) {
    EXPECT_EQ(FoundBy(absl::StrCat("[\"", served, "\"]"), "").substr(0, served.size()), served);
  }
}

TEST(ModelConfigTest, RefusesWhatIsNoObject) {
  for (const char* text : {"", "[]", "3", "null", "{", "{}{}", "\xEF\xBB\xBF{}", "{'a':1}"}) {
    EXPECT_EQ(ParseModelConfig(text, "c").status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

class ModelDirectoryTest : public ::testing::Test {
 protected:
  auto Load() const { return LoadModelConfig(directory_.path().string()); }
  testing::TempDirectory directory_;
};

TEST_F(ModelDirectoryTest, GenerationConfigReplacesEndOfText) {
  directory_.Write("config.json", Json({{"eos_token_id", "2"}}));
  EXPECT_THAT(Load()->eos_ids, ElementsAre(2));
  directory_.Write("generation_config.json", "{\"temperature\":0.6}");
  EXPECT_THAT(Load()->eos_ids, ElementsAre(2));
  directory_.Write("generation_config.json", "{\"eos_token_id\":[5,6]}");
  EXPECT_THAT(Load()->eos_ids, ElementsAre(5, 6));
  directory_.Write("generation_config.json", "{\"eos_token_id\":512}");
  EXPECT_EQ(Load().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Load().status().message()),
              HasSubstr("generation_config.json: eos_token_id is 512"));
  directory_.Write("generation_config.json", "{");
  EXPECT_EQ(Load().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ModelDirectoryTest, ExplainsWhatIsNoModelDirectory) {
  EXPECT_EQ(Load().status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Load().status().message()), HasSubstr("config.json: no such file"));
  directory_.Write("m.gguf", "GGUF");
  const auto gguf = LoadModelConfig((directory_.path() / "m.gguf").string());
  EXPECT_EQ(gguf.status().code(), absl::StatusCode::kInvalidArgument);
  const auto absent = LoadModelConfig((directory_.path() / "absent").string());
  EXPECT_EQ(absent.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(absent.status().message()),
              HasSubstr("does not exist; needed: a GGUF file, or a Hugging"));
}

TEST_F(ModelDirectoryTest, RefusesHugeFiles) {
  directory_.Write("config.json", std::string((4 << 20) + 1, ' '));
  EXPECT_EQ(Load().status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace annulus
