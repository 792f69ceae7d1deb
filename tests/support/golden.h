#ifndef ANNULUS_TESTS_SUPPORT_GOLDEN_H_
#define ANNULUS_TESTS_SUPPORT_GOLDEN_H_

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace annulus::testing {

// What Hugging Face Transformers computed for a checkpoint of tests/golden (see its README.md).
struct Golden {
  std::vector<int32_t> prompt;
  std::vector<float> logits;  // [prompt.size(), vocabulary]
  std::vector<int32_t> greedy;
  int32_t vocabulary = 0;
};

// Model directories under tests/golden, for TEST_P and loops: those that a plain Llama graph
// describes, and all.
inline std::vector<std::string> PlainGoldenNames() {
  return {"llama_mha", "llama_gqa_bf16", "llama_rope3_sharded", "llama_windows", "mistral_window"};
}
inline std::vector<std::string> GoldenNames() {
  std::vector<std::string> names = PlainGoldenNames();
  for (const char* name : {"qwen2",         "qwen3",
                           "phi3",          "phi3_longrope",
                           "llama_dynamic", "yarn",
                           "gemma2",        "gemma3",
                           "gemma3_vision", "smollm3",
                           "olmo2",         "mixtral",
                           "qwen3_moe",     "gpt_oss",
                           "gpt_oss_bf16",  "llama_fp8",
                           "qwen3_vl",      "qwen2_vl",
                           "qwen2_5_vl",    "ministral3",
                           "mistral3",      "olmo3",
                           "exaone4",       "exaone4_full",
                           "seed_oss",      "granite",
                           "granite4",      "gemma",
                           "olmoe",         "hunyuan",
                           "ernie4_5",      "glm4",
                           "glm",           "phi4_multimodal",
                           "qwen2_moe",     "qwen2_moe_windows",
                           "glm4_moe",      "glm4_moe_air",
                           "minimax_m2",    "minimax_m2_whole",
                           "gemma4",        "gemma4_moe",
                           "qwen3_vl_moe",  "qwen3_vl_moe_turned",
                           "cohere",        "cohere_head_norms",
                           "cohere2",       "cohere2_untied",
                           "stablelm",      "stablelm_parallel",
                           "starcoder2",    "starcoder2_plain",
                           "gemma3n",       "gemma3n_three"}) {
    names.emplace_back(name);
  }
  return names;
}

// Reads `directory`/expected.json and logits.f32, or a second pair with `suffix` in its names. The
// files are ours: a malformed one throws.
inline Golden LoadGolden(const std::filesystem::path& directory, const std::string& suffix = "") {
  std::ifstream text(directory / ("expected" + suffix + ".json"));
  const nlohmann::json expected = nlohmann::json::parse(text);
  Golden golden;
  golden.prompt = expected.at("prompt_ids").get<std::vector<int32_t>>();
  golden.greedy = expected.at("greedy_ids").get<std::vector<int32_t>>();
  golden.vocabulary = expected.at("vocabulary").get<int32_t>();
  golden.logits.resize(golden.prompt.size() * static_cast<size_t>(golden.vocabulary));
  std::ifstream numbers(directory / ("logits" + suffix + ".f32"), std::ios::binary);
  numbers.exceptions(std::ios::failbit | std::ios::badbit);
  numbers.read(reinterpret_cast<char*>(golden.logits.data()),
               static_cast<std::streamsize>(golden.logits.size() * sizeof(float)));
  return golden;
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_GOLDEN_H_
