#include "engine/model/families.h"

#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/nearest_name.h"

namespace annulus {
namespace {

constexpr std::array<Family, 12> kFamilies = {{
    {.architecture = "LlamaForCausalLM", .model_type = "llama", .biases = BiasRule::kAttentionMlp},
    {.architecture = "MistralForCausalLM",
     .model_type = "mistral",
     .context = 131072,
     .kv_heads = 8,
     .window = 4096,
     .windows = WindowRule::kUniform},
    {.architecture = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .context = 32768,
     .kv_heads = 32,
     .window = 4096,
     .biases = BiasRule::kQueryKeyValue,
     .windows = WindowRule::kFromLayer,
     .window_switch = true},
    {.architecture = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .context = 32768,
     .kv_heads = 32,
     .head_dim = 128,
     .window = 4096,
     .biases = BiasRule::kAttention,
     .windows = WindowRule::kFromLayer,
     .window_switch = true,
     .qk_norm = QkNorm::kPerHead},
    {.architecture = "Phi3ForCausalLM",
     .model_type = "phi3",
     .context = 4096,
     .original_context = 4096,
     .epsilon = 1e-5,
     .windows = WindowRule::kUniform,
     .rope = RopeRule::kPhi3,
     .tensors = {.fused = true}},
    {.architecture = "Gemma2ForCausalLM",
     .model_type = "gemma2",
     .context = 8192,
     .kv_heads = 4,
     .head_dim = 256,
     .window = 4096,
     .tied = true,
     .biases = BiasRule::kAttention,
     .windows = WindowRule::kAlternating,
     .post_norms = true,
     .gemma = true,
     .score_cap = 50,
     .logits_cap = 30},
    {.architecture = "Gemma3ForCausalLM",
     .model_type = "gemma3_text",
     .vocabulary = 262208,
     .heads = 8,
     .context = 131072,
     .kv_heads = 4,
     .head_dim = 256,
     .theta = 1e6,
     .window = 4096,
     .tied = true,
     .biases = BiasRule::kAttention,
     .windows = WindowRule::kPattern,
     .rope = RopeRule::kPerLayer,
     .qk_norm = QkNorm::kPerHead,
     .post_norms = true,
     .gemma = true},
    {.architecture = "SmolLM3ForCausalLM",
     .model_type = "smollm3",
     .context = 32768,
     .kv_heads = 4,
     .theta = 2e6,
     .tied = true,
     .biases = BiasRule::kAttentionMlp,
     .windows = WindowRule::kWithoutRope,
     .window_switch = true,
     .rope = RopeRule::kNoLayers},
    {.architecture = "Olmo2ForCausalLM",
     .model_type = "olmo2",
     .context = 2048,
     .epsilon = 1e-5,
     .biases = BiasRule::kAttention,
     .qk_norm = QkNorm::kWhole,
     .pre_norms = false,
     .post_norms = true},
    {.architecture = "MixtralForCausalLM",
     .model_type = "mixtral",
     .context = 131072,
     .kv_heads = 8,
     .theta = 1e6,
     .epsilon = 1e-5,
     .windows = WindowRule::kUniform,
     .experts = ExpertsRule::kMixtral,
     .tensors = {.experts = ExpertTensors::kMixtral}},
    {.architecture = "Qwen3MoeForCausalLM",
     .model_type = "qwen3_moe",
     .context = 32768,
     .kv_heads = 4,
     .window = 4096,
     .biases = BiasRule::kAttention,
     .windows = WindowRule::kUniform,
     .window_switch = true,
     .experts = ExpertsRule::kQwen,
     .qk_norm = QkNorm::kPerHead},
    {.architecture = "GptOssForCausalLM",
     .model_type = "gpt_oss",
     .context = 131072,
     .kv_heads = 8,
     .head_dim = 64,
     .theta = 150000,
     .epsilon = 1e-5,
     .window = 128,
     .attention_bias = true,
     .biases = BiasRule::kAttention,
     .windows = WindowRule::kAlternating,
     .rope_default = R"({"rope_type": "yarn", "factor": 32.0, "truncate": false,
                         "original_max_position_embeddings": 4096})",
     .experts = ExpertsRule::kGptOss,
     .tensors = {.experts = ExpertTensors::kStacked},
     .sinks = true},
}};

// Models that see and read, of which the text half is served.
struct LargerModel {
  absl::string_view architecture;
  absl::string_view text_half;
};
constexpr std::array<LargerModel, 2> kLargerModels = {{
    {"Gemma3ForConditionalGeneration", "Gemma3ForCausalLM"},
    {"Mistral3ForConditionalGeneration", "MistralForCausalLM"},
}};

const Family* Named(absl::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

}  // namespace

std::span<const Family> Families() { return kFamilies; }

std::vector<std::string> SupportedArchitectures() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.architecture);
  for (const LargerModel& larger : kLargerModels) names.emplace_back(larger.architecture);
  return names;
}

absl::StatusOr<FoundFamily> FindFamily(const JsonFields& fields) {
  const std::vector<std::string> supported = SupportedArchitectures();
  const std::string allowed = absl::StrCat("a list with one of ", absl::StrJoin(supported, ", "));
  const nlohmann::json* names = fields.Find("architectures");
  if (names == nullptr || !names->is_array() || names->size() != 1 || !names->at(0).is_string()) {
    return fields.Invalid("architectures", allowed);
  }
  const auto& name = names->at(0).get_ref<const std::string&>();
  if (const Family* family = Named(name)) return FoundFamily{family->architecture, family, false};
  for (const LargerModel& larger : kLargerModels) {
    if (larger.architecture != name) continue;
    return FoundFamily{larger.architecture, Named(larger.text_half), true};
  }
  const std::string nearest = NearestName(name, supported);
  return fields.Unsupported(
      "architectures",
      nearest.empty() ? allowed : absl::StrCat(allowed, " (the nearest is ", nearest, ")"));
}

}  // namespace annulus
