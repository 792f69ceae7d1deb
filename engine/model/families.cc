#include "engine/model/families.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// FamilyTraits::norms, in the order of LayerNorm; the others norm inputs alone.
using NormNames = NormTable<absl::string_view>;
constexpr NormNames kInputAndHeadNorms = {{"input_layernorm", "post_attention_layernorm", "", "",
                                           "self_attn.q_norm", "self_attn.k_norm"}};
constexpr NormNames kInputAndOutputNorms = {{"input_layernorm", "pre_feedforward_layernorm",
                                             "post_attention_layernorm",
                                             "post_feedforward_layernorm"}};
constexpr NormNames kGemma3Norms = {{"input_layernorm", "pre_feedforward_layernorm",
                                     "post_attention_layernorm", "post_feedforward_layernorm",
                                     "self_attn.q_norm", "self_attn.k_norm"}};
constexpr NormNames kOlmo2Norms = {{"", "", "post_attention_layernorm",
                                    "post_feedforward_layernorm", "self_attn.q_norm",
                                    "self_attn.k_norm"}};

// Family::turn_ends. Models of many families are trained on chats in ChatML format.
constexpr std::array<absl::string_view, 1> kChatMl = {"<|im_end|>"};
constexpr std::array<absl::string_view, 3> kLlamaTurnEnds = {"<|eot_id|>", "<|eom_id|>",
                                                             "<|im_end|>"};
constexpr std::array<absl::string_view, 2> kPhi3TurnEnds = {"<|end|>", "<|im_end|>"};
constexpr std::array<absl::string_view, 2> kGemmaTurnEnds = {"<end_of_turn>", "<|im_end|>"};
constexpr std::array<absl::string_view, 2> kGptOssTurnEnds = {"<|return|>", "<|call|>"};
constexpr std::array<absl::string_view, 1> kGptOssMessageEnds = {"<|end|>"};

constexpr std::array<Family, 12> kFamilies = {{
    {.architecture = "LlamaForCausalLM",
     .model_type = "llama",
     .biases = BiasRule::kAttentionMlp,
     .turn_ends = kLlamaTurnEnds},
    {.architecture = "MistralForCausalLM",
     .model_type = "mistral",
     .context = 131072,
     .kv_heads = 8,
     .window = 4096,
     .windows = WindowRule::kUniform,
     .turn_ends = kLlamaTurnEnds},
    {.architecture = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .context = 32768,
     .kv_heads = 32,
     .window = 4096,
     .biases = BiasRule::kQueryKeyValue,
     .windows = WindowRule::kFromLayer,
     .window_switch = true,
     .turn_ends = kChatMl},
    {.architecture = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .context = 32768,
     .kv_heads = 32,
     .head_dim = 128,
     .window = 4096,
     .biases = BiasRule::kAttention,
     .windows = WindowRule::kFromLayer,
     .window_switch = true,
     .traits = {.norms = kInputAndHeadNorms},
     .turn_ends = kChatMl},
    {.architecture = "Phi3ForCausalLM",
     .model_type = "phi3",
     .context = 4096,
     .original_context = 4096,
     .norm = {.epsilon = 1e-5f},
     .windows = WindowRule::kUniform,
     .rope = RopeRule::kPhi3,
     .traits = {.tensors = {.fused = true}},
     .turn_ends = kPhi3TurnEnds},
    {.architecture = "Gemma2ForCausalLM",
     .model_type = "gemma2",
     .context = 8192,
     .kv_heads = 4,
     .head_dim = 256,
     .window = 4096,
     .tied = true,
     .biases = BiasRule::kAttention,
     .windows = WindowRule::kAlternating,
     .traits = {.norms = kInputAndOutputNorms},
     .gemma = true,
     .score_cap = 50,
     .logits_cap = 30,
     .turn_ends = kGemmaTurnEnds},
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
     .traits = {.norms = kGemma3Norms},
     .gemma = true,
     .turn_ends = kGemmaTurnEnds},
    {.architecture = "SmolLM3ForCausalLM",
     .model_type = "smollm3",
     .context = 32768,
     .kv_heads = 4,
     .theta = 2e6,
     .tied = true,
     .biases = BiasRule::kAttentionMlp,
     .windows = WindowRule::kWithoutRope,
     .window_switch = true,
     .rope = RopeRule::kNoLayers,
     .turn_ends = kChatMl},
    {.architecture = "Olmo2ForCausalLM",
     .model_type = "olmo2",
     .context = 2048,
     .norm = {.epsilon = 1e-5f},
     .biases = BiasRule::kAttention,
     .traits = {.norms = kOlmo2Norms, .norms_each_head = false},
     .turn_ends = kChatMl},
    {.architecture = "MixtralForCausalLM",
     .model_type = "mixtral",
     .context = 131072,
     .kv_heads = 8,
     .theta = 1e6,
     .norm = {.epsilon = 1e-5f},
     .windows = WindowRule::kUniform,
     .experts = ExpertsRule::kMixtral,
     .traits = {.tensors = {.experts = ExpertTensors::kMixtral}},
     .turn_ends = kLlamaTurnEnds},
    {.architecture = "Qwen3MoeForCausalLM",
     .model_type = "qwen3_moe",
     .context = 32768,
     .kv_heads = 4,
     .window = 4096,
     .biases = BiasRule::kAttention,
     .windows = WindowRule::kUniform,
     .window_switch = true,
     .experts = ExpertsRule::kQwen,
     .traits = {.norms = kInputAndHeadNorms},
     .turn_ends = kChatMl},
    {.architecture = "GptOssForCausalLM",
     .model_type = "gpt_oss",
     .context = 131072,
     .kv_heads = 8,
     .head_dim = 64,
     .theta = 150000,
     .norm = {.epsilon = 1e-5f},
     .window = 128,
     .attention_bias = true,
     .biases = BiasRule::kAttention,
     .windows = WindowRule::kAlternating,
     .rope_default = R"({"rope_type": "yarn", "factor": 32.0, "truncate": false,
                         "original_max_position_embeddings": 4096})",
     .experts = ExpertsRule::kGptOss,
     .traits = {.sinks = true, .tensors = {.experts = ExpertTensors::kStacked}},
     .turn_ends = kGptOssTurnEnds,
     .message_ends = kGptOssMessageEnds},
}};

// Models that see and read, of which the text half is served.
struct LargerModel {
  absl::string_view architecture;
  absl::string_view model_type;
  absl::string_view text_half;
};
constexpr std::array<LargerModel, 2> kLargerModels = {{
    {"Gemma3ForConditionalGeneration", "gemma3", "Gemma3ForCausalLM"},
    {"Mistral3ForConditionalGeneration", "mistral3", "MistralForCausalLM"},
}};

// Families that are not served and the ones here that they descend from or led to, each by the part
// of its architecture's name before "For" or "Model".
struct Relative {
  absl::string_view stem;
  absl::string_view served;
};
constexpr std::array<Relative, 25> kRelatives = {{
    {"Llama4", "LlamaForCausalLM"},       {"Mllama", "LlamaForCausalLM"},
    {"Ministral", "MistralForCausalLM"},  {"Ministral3", "MistralForCausalLM"},
    {"QWenLMHead", "Qwen2ForCausalLM"},   {"Qwen2VL", "Qwen2ForCausalLM"},
    {"Qwen2_5_VL", "Qwen2ForCausalLM"},   {"Qwen2Audio", "Qwen2ForCausalLM"},
    {"Qwen2Moe", "Qwen3MoeForCausalLM"},  {"Qwen3VL", "Qwen3ForCausalLM"},
    {"Qwen3_5", "Qwen3ForCausalLM"},      {"Qwen3VLMoe", "Qwen3MoeForCausalLM"},
    {"Qwen3Next", "Qwen3MoeForCausalLM"}, {"Phi", "Phi3ForCausalLM"},
    {"Phi3V", "Phi3ForCausalLM"},         {"Phi3Small", "Phi3ForCausalLM"},
    {"PhiMoE", "Phi3ForCausalLM"},        {"Phi4MM", "Phi3ForCausalLM"},
    {"Gemma", "Gemma2ForCausalLM"},       {"RecurrentGemma", "Gemma2ForCausalLM"},
    {"PaliGemma", "Gemma2ForCausalLM"},   {"Gemma3n", "Gemma3ForCausalLM"},
    {"Olmo", "Olmo2ForCausalLM"},         {"Olmo3", "Olmo2ForCausalLM"},
    {"Olmoe", "Olmo2ForCausalLM"},
}};

const Family* Named(absl::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

std::optional<FoundFamily> OfArchitecture(absl::string_view name) {
  if (const Family* family = Named(name)) return FoundFamily{family->architecture, family, false};
  for (const LargerModel& larger : kLargerModels) {
    if (larger.architecture != name) continue;
    return FoundFamily{larger.architecture, Named(larger.text_half), true};
  }
  return std::nullopt;
}

std::optional<FoundFamily> OfModelType(absl::string_view name) {
  for (const Family& family : kFamilies) {
    if (family.model_type == name) return FoundFamily{family.architecture, &family, false};
  }
  for (const LargerModel& larger : kLargerModels) {
    if (larger.model_type == name) return OfArchitecture(larger.architecture);
  }
  return std::nullopt;
}

// "Falcon" of "FalconForCausalLM" and of "FalconModel".
absl::string_view Stem(absl::string_view architecture) {
  for (const absl::string_view end : {"For", "Model"}) {
    const size_t at = architecture.find(end);
    if (at != absl::string_view::npos && at > 0) return architecture.substr(0, at);
  }
  return architecture;
}

// The served architecture that is kin to this one, or empty. Names that only look alike are not.
absl::string_view RelativeOf(absl::string_view architecture) {
  const absl::string_view stem = Stem(architecture);
  for (const Family& family : kFamilies) {
    if (absl::EqualsIgnoreCase(Stem(family.architecture), stem)) return family.architecture;
  }
  for (const Relative& relative : kRelatives) {
    if (absl::EqualsIgnoreCase(relative.stem, stem)) return relative.served;
  }
  return "";
}

std::string Allowed() {
  return absl::StrCat("a list with one of ", absl::StrJoin(SupportedArchitectures(), ", "));
}

// Where the architectures are absent or several: as Transformers, by the model's type.
absl::StatusOr<FoundFamily> FindByType(const JsonFields& fields,
                                       const std::vector<absl::string_view>& named) {
  constexpr char kKey[] = "model_type";
  if (!fields.Has(kKey)) {
    return fields.Invalid("architectures", absl::StrCat(Allowed(), ", or a known model_type"));
  }
  ANNULUS_ASSIGN_OR_RETURN(const std::string type, fields.String(kKey, ""));
  const std::optional<FoundFamily> found = OfModelType(type);
  if (!found.has_value()) {
    std::vector<absl::string_view> types;
    for (const Family& family : kFamilies) types.push_back(family.model_type);
    for (const LargerModel& larger : kLargerModels) types.push_back(larger.model_type);
    return fields.Unsupported(kKey, absl::StrCat("one of ", absl::StrJoin(types, ", ")));
  }
  const bool among = std::find(named.begin(), named.end(), found->architecture) != named.end();
  if (named.empty() || among) return *found;
  return fields.Unsupported("architectures", absl::StrCat("with the model_type \"", type,
                                                          "\": a list with ", found->architecture));
}

}  // namespace

std::span<const Family> Families() { return kFamilies; }

const Family& FamilyOf(absl::string_view model_type) {
  const auto found = std::find_if(kFamilies.begin(), kFamilies.end(), [&](const Family& family) {
    return family.model_type == model_type;
  });
  ANNULUS_CHECK(found != kFamilies.end()) << model_type;
  return *found;
}

std::vector<std::string> SupportedArchitectures() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.architecture);
  for (const LargerModel& larger : kLargerModels) names.emplace_back(larger.architecture);
  return names;
}

absl::StatusOr<FoundFamily> FindFamily(const JsonFields& fields) {
  constexpr char kKey[] = "architectures";
  std::vector<absl::string_view> named;
  if (const nlohmann::json* list = fields.Find(kKey)) {
    if (!list->is_array()) return fields.Invalid(kKey, Allowed());
    for (const nlohmann::json& name : *list) {
      if (!name.is_string()) return fields.Invalid(kKey, Allowed());
      named.push_back(name.get_ref<const std::string&>());
    }
  }
  if (named.size() != 1) return FindByType(fields, named);
  if (const auto found = OfArchitecture(named[0])) return *found;
  const absl::string_view relative = RelativeOf(named[0]);
  return fields.Unsupported(
      kKey,
      relative.empty() ? Allowed() : absl::StrCat(Allowed(), " (the nearest is ", relative, ")"));
}

}  // namespace annulus
