#include "engine/gguf/gguf_gemma3n.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/gguf/gguf_numbers.h"
#include "engine/model/fields/config_limits.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using nlohmann::json;

constexpr uint64_t kLayersWithKeys = 20;

// The part of a normal distribution below so many standard deviations above its mean, for each
// layer; null if the file has no such key.
absl::StatusOr<json> CutParts(const GgufFile& file, uint64_t layers) {
  constexpr absl::string_view kKey = "gemma3n.activation_sparsity_scale";
  const GgufValue* const value = file.Find(kKey);
  if (value == nullptr) return json();
  const bool readable = value->kind == GgufValue::Kind::kArray &&
                        value->element == GgufValue::Kind::kFloat && value->count == layers;
  json parts = json::array();
  for (uint64_t i = 0; readable && i < layers; ++i) {
    const double deviations = value->At(i).get<double>();
    if (!(deviations < std::numeric_limits<double>::infinity())) break;  // NaN, too
    parts.push_back(std::erfc(-deviations / std::sqrt(2.0)) / 2);
  }
  if (parts.size() == layers) return parts;
  return absl::InvalidArgumentError(absl::StrCat(
      file.path(), ": ", kKey, " is ", value->Shown(),
      "; allowed: a number, or minus infinity where nothing is cut off, for each of the ", layers,
      " layers"));
}

// Rows of a matrix, which no key says.
void CopyRows(const GgufFile& file, absl::string_view tensor, const char* to, json& config) {
  const GgufTensor* const found = file.FindTensor(tensor);
  if (found != nullptr && found->shape.size() == 2) config[to] = found->shape[0];
}

}  // namespace

absl::Status WriteGemma3nConfig(const GgufFile& file, json& config) {
  for (const auto& [to, from] :
       {std::pair("altup_num_inputs", "gemma3n.altup.num_inputs"),
        std::pair("altup_active_idx", "gemma3n.altup.active_idx"),
        std::pair("hidden_size_per_layer_input", "gemma3n.embedding_length_per_layer_input"),
        std::pair("num_kv_shared_layers", "gemma3n.attention.shared_kv_layers")}) {
    ANNULUS_ASSIGN_OR_RETURN(const json value, GgufWholeNumber(file, from));
    if (!value.is_null()) config[to] = value;
  }
  CopyRows(file, "blk.0.laurel_l.weight", "laurel_rank", config);
  CopyRows(file, "per_layer_token_embd.weight", "vocab_size_per_layer_input", config);
  ANNULUS_ASSIGN_OR_RETURN(const json blocks, GgufWholeNumber(file, "gemma3n.block_count"));
  if (blocks.is_null() || blocks > kMostLayers) return absl::OkStatus();  // the parser refuses it
  const auto layers = blocks.get<uint64_t>();
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<uint64_t> widths,
                           GgufNumbersByLayer(file, "gemma3n.feed_forward_length", layers));
  if (!widths.empty()) config["intermediate_size"] = widths;
  if (!config.contains("num_kv_shared_layers")) {
    config["num_kv_shared_layers"] = layers > kLayersWithKeys ? layers - kLayersWithKeys : 0;
  }
  ANNULUS_ASSIGN_OR_RETURN(json parts, CutParts(file, layers));
  if (!parts.is_null()) config["activation_sparsity_pattern"] = std::move(parts);
  return absl::OkStatus();
}

}  // namespace annulus
