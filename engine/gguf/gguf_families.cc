#include "engine/gguf/gguf_families.h"

#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/gguf/gguf_numbers.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using nlohmann::json;
using Experts = GgufFamily::Experts;
using Names = GgufFamily::Names;

constexpr std::array<GgufFamily, 30> kFamilies = {{
    {.name = "llama", .architecture = "LlamaForCausalLM", .interleaved_rope = true},
    {.name = "qwen2", .architecture = "Qwen2ForCausalLM"},
    {.name = "qwen2vl", .architecture = "Qwen2ForCausalLM"},
    {.name = "qwen3", .architecture = "Qwen3ForCausalLM"},
    {.name = "qwen3vl", .architecture = "Qwen3ForCausalLM"},
    {.name = "qwen2moe", .architecture = "Qwen2MoeForCausalLM", .experts = Experts::kQwen2},
    {.name = "qwen3moe", .architecture = "Qwen3MoeForCausalLM", .experts = Experts::kSeparate},
    {.name = "qwen3vlmoe", .architecture = "Qwen3MoeForCausalLM", .experts = Experts::kSeparate},
    {.name = "phi3", .architecture = "Phi3ForCausalLM", .fused_block = true},
    {.name = "gemma", .architecture = "GemmaForCausalLM", .gemma = true},
    {.name = "gemma2", .architecture = "Gemma2ForCausalLM", .names = Names::kGemma, .gemma = true},
    {.name = "gemma3", .architecture = "Gemma3ForCausalLM", .names = Names::kGemma, .gemma = true},
    {.name = "gemma3n", .architecture = "Gemma3nForCausalLM", .names = Names::kGemma3n},
    {.name = "gemma4",
     .architecture = "Gemma4ForCausalLM",
     .experts = Experts::kGemma4,
     .names = Names::kGemma4},
    {.name = "smollm3", .architecture = "SmolLM3ForCausalLM", .interleaved_rope = true},
    {.name = "olmo2", .architecture = "Olmo2ForCausalLM"},
    {.name = "olmoe", .architecture = "OlmoeForCausalLM", .experts = Experts::kOlmoe},
    {.name = "mistral3", .architecture = "Ministral3ForCausalLM", .interleaved_rope = true},
    {.name = "exaone4", .architecture = "Exaone4ForCausalLM"},
    {.name = "seed_oss", .architecture = "SeedOssForCausalLM"},
    {.name = "granite",
     .architecture = "GraniteForCausalLM",
     .interleaved_rope = true,
     .multipliers = true},
    {.name = "hunyuan-dense",
     .architecture = "HunYuanDenseV1ForCausalLM",
     .names = Names::kHunyuan},
    {.name = "ernie4_5", .architecture = "Ernie4_5ForCausalLM"},
    {.name = "glm4moe", .architecture = "Glm4MoeForCausalLM", .experts = Experts::kGlm4},
    {.name = "minimax-m2", .architecture = "MiniMaxM2ForCausalLM", .experts = Experts::kMiniMax},
    {.name = "command-r", .architecture = "CohereForCausalLM"},
    {.name = "cohere2", .architecture = "Cohere2ForCausalLM"},
    {.name = "stablelm", .architecture = "StableLmForCausalLM", .names = Names::kStableLm},
    {.name = "starcoder2", .architecture = "Starcoder2ForCausalLM", .names = Names::kStarcoder2},
    {.name = "glm4", .architecture = "Glm4ForCausalLM", .names = Names::kGlm4, .fused_block = true},
}};
constexpr GgufFamily kGptOss = {
    .name = "gpt-oss", .architecture = "GptOssForCausalLM", .experts = Experts::kGptOss};
// Architectures that one name stands for, besides those above.
constexpr GgufFamily kMixtral = {.name = "llama",
                                 .architecture = "MixtralForCausalLM",
                                 .experts = Experts::kMixtral,
                                 .interleaved_rope = true};
constexpr GgufFamily kMistral3 = {
    .name = "mistral3", .architecture = "LlamaForCausalLM", .interleaved_rope = true};
constexpr GgufFamily kOlmo3 = {.name = "olmo2", .architecture = "Olmo3ForCausalLM"};

}  // namespace

absl::StatusOr<GgufFamily> FindGgufFamily(const GgufFile& file) {
  constexpr absl::string_view kKey = "general.architecture";
  const absl::string_view name = file.Text(kKey);
  if (name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": the metadata has no ", kKey, "; needed: a string"));
  }
  ANNULUS_ASSIGN_OR_RETURN(const json experts,
                           GgufWholeNumber(file, absl::StrCat(name, ".expert_count")));
  const bool mixture = !experts.is_null() && experts > 0;
  if (name == kMixtral.name && mixture) return kMixtral;
  if (name == kGptOss.name) return kGptOss;
  const auto lacks = [&](absl::string_view key) {
    return file.Find(absl::StrCat(name, ".attention.", key)) == nullptr;
  };
  if (name == kMistral3.name && lacks("temperature_scale")) return kMistral3;
  if (name == kOlmo3.name && !lacks("sliding_window")) return kOlmo3;
  std::vector<absl::string_view> served = {kGptOss.name};
  for (const GgufFamily& family : kFamilies) {
    if (family.name == name) return family;
    served.push_back(family.name);
  }
  return absl::UnimplementedError(absl::StrCat(file.path(), ": ", kKey, " is \"",
                                               absl::CHexEscape(name.substr(0, 64)), "\"",
                                               "; supported: ", absl::StrJoin(served, ", ")));
}

}  // namespace annulus
