#include "engine/gguf/gguf_pre_tokenizers.h"

#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"

namespace annulus {
namespace {

constexpr absl::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr absl::string_view kSeed =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::array<absl::string_view, 2> kNumbersAndHan = {R"(\p{N}{1,3})",
                                                             "[一-龥぀-ゟ゠-ヿ]+"};
constexpr absl::string_view kMarksWithWords =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array<GgufPreTokenizer, 24> kPreTokenizers = {{
    {.name = "gpt-2"},
    {.name = "olmo", .composes = true},
    {.name = "phi-2"},
    {.name = "smollm", .digits_apart = true},
    {.name = "starcoder", .digits_apart = true},
    {.name = "refact", .digits_apart = true},
    {.name = "command-r", .digits_apart = true, .composes = true},
    {.name = "llama-bpe", .pattern = kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "llama3", .pattern = kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "llama-v3", .pattern = kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "dbrx", .pattern = kLlama3},
    {.name = "qwen2", .pattern = kQwen2, .composes = true},
    {.name = "deepseek-r1-qwen", .pattern = kQwen2, .composes = true},
    {.name = "megrez", .pattern = kQwen2, .composes = true},
    {.name = "tekken", .pattern = kTekken, .ignore_merges = true, .adds_bos = true},
    {.name = "gpt-4o", .pattern = kGpt4o},
    {.name = "llama4", .pattern = kGpt4o},
    {.name = "minimax-m2", .pattern = kGpt4o},
    {.name = "glm4", .pattern = kLlama3},
    {.name = "chatglm-bpe", .pattern = kLlama3},
    {.name = "exaone4"},
    {.name = "seed-coder", .pattern = kSeed},
    {.name = "hunyuan", .pattern = kQwen2},
    {.name = "hunyuan-dense", .first = kNumbersAndHan, .pattern = kMarksWithWords},
}};

}  // namespace

using nlohmann::json;

json ByteLevelJson(bool own_pattern) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", own_pattern}};
}

json GgufPreTokenizerJson(const GgufPreTokenizer& kind) {
  json steps = json::array();
  if (kind.digits_apart) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  const auto split = [&](absl::string_view pattern) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", std::string(pattern)}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  };
  for (const absl::string_view pattern : kind.first) split(pattern);
  if (!kind.pattern.empty()) split(kind.pattern);
  steps.push_back(ByteLevelJson(kind.pattern.empty()));
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

const GgufPreTokenizer* FindGgufPreTokenizer(absl::string_view name) {
  for (const GgufPreTokenizer& kind : kPreTokenizers) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

std::string GgufPreTokenizers() {
  std::vector<absl::string_view> names;
  for (const GgufPreTokenizer& known : kPreTokenizers) names.push_back(known.name);
  return absl::StrJoin(names, ", ");
}

}  // namespace annulus
