#include "engine/model/fields/gemma_fields.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/model/fields/config_limits.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/streams.h"

namespace annulus {
namespace {

constexpr int64_t kMostLayerInput = 1 << 13;

// Reads what `fields` say of a layer's heads; what they do not say stays.
absl::Status ParseShape(const JsonFields& fields, const char* dim_key, const char* heads_key,
                        AttentionShape& shape) {
  ANNULUS_ASSIGN_OR_RETURN(shape.k_dim, fields.Integer(dim_key, 2, kMostHeadDim, shape.k_dim));
  if (shape.k_dim % 2 != 0) return fields.Invalid(dim_key, "an even number");
  shape.v_dim = shape.k_dim;
  if (heads_key == nullptr) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(shape.kv_heads,
                           fields.Integer(heads_key, 1, shape.heads, shape.kv_heads));
  if (shape.heads % shape.kv_heads == 0) return absl::OkStatus();
  return fields.Invalid(heads_key, absl::StrCat("a divisor of num_attention_heads, ", shape.heads));
}

// {"LAYER": {"head_dim": .., "num_key_value_heads": ..}, ..}, as Transformers from 5.24 on writes.
absl::Status ParseListedShapes(const JsonFields& fields, ModelConfig& config) {
  constexpr char kKey[] = "per_layer_config";
  const nlohmann::json& listed = *fields.Find(kKey);
  if (!listed.is_object()) return fields.Invalid(kKey, "an object with numbers of layers as keys");
  const JsonFields layers = fields.Inside(kKey, listed);
  for (const auto& [name, value] : listed.items()) {
    uint32_t layer = 0;
    if (!absl::SimpleAtoi(name, &layer) || layer >= config.layers.size() || !value.is_object()) {
      return layers.Invalid(
          name.c_str(),
          absl::StrCat("objects, by the numbers of layers from 0 to ", config.layers.size() - 1));
    }
    const JsonFields one = layers.Inside(name.c_str(), value);
    for (const auto& [key, unused] : value.items()) {
      if (key == "head_dim" || key == "num_key_value_heads") continue;
      return one.Unsupported(key.c_str(), "head_dim and num_key_value_heads");
    }
    ANNULUS_RETURN_IF_ERROR(
        ParseShape(one, "head_dim", "num_key_value_heads", config.layers[layer].attention));
  }
  return absl::OkStatus();
}

absl::Status ParseShapes(const JsonFields& fields, bool values_are_keys, ModelConfig& config) {
  if (fields.Has("per_layer_config")) return ParseListedShapes(fields, config);
  constexpr int32_t kUsualDim = 512;
  for (LayerConfig& layer : config.layers) {
    if (layer.window > 0) continue;
    layer.attention.k_dim = kUsualDim;
    ANNULUS_RETURN_IF_ERROR(ParseShape(fields, "global_head_dim",
                                       values_are_keys ? "num_global_key_value_heads" : nullptr,
                                       layer.attention));
  }
  return absl::OkStatus();
}

// The last layers attend the keys and values of the last layer of their kind before them.
absl::Status ShareKeys(const JsonFields& fields, int64_t usual, ModelConfig& config) {
  constexpr char kKey[] = "num_kv_shared_layers";
  const auto layers = static_cast<int32_t>(config.layers.size());
  ANNULUS_ASSIGN_OR_RETURN(const int32_t shared, fields.Integer(kKey, 0, layers - 1, usual));
  if (shared >= layers) {  // the usual number, of a model with few layers
    return fields.Invalid(kKey, absl::StrCat("a whole number from 0 to ", layers - 1));
  }
  for (int32_t i = layers - shared; i < layers; ++i) {
    LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    for (int32_t from = 0; from < layers - shared; ++from) {
      const LayerConfig& other = config.layers[static_cast<size_t>(from)];
      if (other.window == layer.window && other.attention == layer.attention) layer.keys_of = from;
    }
    if (!layer.has_own_keys()) continue;
    return fields.Invalid(
        kKey,
        absl::StrCat("a number of layers at the end that leaves one of each kind with keys and "
                     "values of its own; layer ",
                     i, " finds none"));
  }
  return absl::OkStatus();
}

// Layers that attend another's keys may have blocks twice as wide.
absl::Status WidenBlocks(const JsonFields& fields, ModelConfig& config) {
  ANNULUS_ASSIGN_OR_RETURN(const bool wide, fields.Boolean("use_double_wide_mlp", false));
  if (!wide) return absl::OkStatus();
  if (2 * int64_t{config.intermediate_size} > kMostIntermediate) {
    return fields.Invalid("intermediate_size",
                          absl::StrCat("at most ", kMostIntermediate / 2,
                                       ", because use_double_wide_mlp doubles it"));
  }
  for (LayerConfig& layer : config.layers) {
    if (!layer.has_own_keys()) layer.intermediate_size = 2 * config.intermediate_size;
  }
  return absl::OkStatus();
}

// One width for all blocks, or a list of theirs.
absl::Status ParseWidths(const JsonFields& fields, ModelConfig& config) {
  constexpr char kKey[] = "intermediate_size";
  const nlohmann::json* value = fields.Find(kKey);
  if (value == nullptr || !value->is_array()) {
    ANNULUS_ASSIGN_OR_RETURN(config.intermediate_size, fields.Integer(kKey, 1, kMostIntermediate));
    return absl::OkStatus();
  }
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<double> widths,
                           fields.Numbers(kKey, config.layers.size(), false, 1, kMostIntermediate));
  for (size_t i = 0; i < widths.size(); ++i) {
    const auto width = static_cast<int32_t>(widths[i]);
    if (width != widths[i]) return fields.Invalid(kKey, "whole numbers, one for each layer");
    config.layers[i].intermediate_size = width;
  }
  config.intermediate_size = config.layers.front().intermediate_size;
  return absl::OkStatus();
}

// So many standard deviations above its mean a normally distributed number is with the probability
// 1 - part.
float Deviations(double part) {
  double low = -40, high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < part ? low : high) = middle;
  }
  return static_cast<float>((low + high) / 2);
}

// The part of each block's gate that is cut off; 0: nothing is.
absl::Status ParseCutoffs(const JsonFields& fields, ModelConfig& config) {
  constexpr char kKey[] = "activation_sparsity_pattern";
  constexpr double kMostPart = 0.999999;
  constexpr size_t kUsualLayers = 10;
  std::vector<double> parts(config.layers.size());
  if (fields.Has(kKey)) {
    ANNULUS_ASSIGN_OR_RETURN(parts, fields.Numbers(kKey, parts.size(), false, 0, kMostPart));
  } else if (parts.size() > kUsualLayers) {
    std::fill_n(parts.begin(), kUsualLayers, 0.95);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] > 0) config.layers[i].cutoff = Deviations(parts[i]);
  }
  return absl::OkStatus();
}

}  // namespace

// A soft cap, or 0 where the key holds null.
absl::StatusOr<float> SoftCap(const JsonFields& fields, const char* key, double absent) {
  if (fields.Contains(key) && !fields.Has(key)) return 0.0f;
  if (!fields.Has(key)) return static_cast<float>(absent);
  ANNULUS_ASSIGN_OR_RETURN(const double cap, fields.Number(key, 1e-3, 1e6));
  return static_cast<float>(cap);
}

absl::Status ParseGemma4Layers(const JsonFields& fields, ModelConfig& config) {
  // As in Transformers, whatever the list says.
  config.layers.back().window = 0;
  ANNULUS_ASSIGN_OR_RETURN(const bool values_are_keys, fields.Boolean("attention_k_eq_v", false));
  ANNULUS_RETURN_IF_ERROR(ParseShapes(fields, values_are_keys, config));
  for (LayerConfig& layer : config.layers) {
    layer.values_are_keys = values_are_keys && layer.window == 0;
  }
  ANNULUS_RETURN_IF_ERROR(ShareKeys(fields, 0, config));
  return WidenBlocks(fields, config);
}

absl::Status ParseGemma3nLayers(const JsonFields& fields, ModelConfig& config) {
  constexpr int64_t kUsualShared = 15;
  ANNULUS_RETURN_IF_ERROR(ParseWidths(fields, config));
  ANNULUS_RETURN_IF_ERROR(ParseCutoffs(fields, config));
  return ShareKeys(fields, kUsualShared, config);
}

// altup_coef_clip bounds weights in training alone.
absl::Status ParseGemma3n(const JsonFields& fields, double logits_cap, ModelConfig& config) {
  config.attention_scale = 1;
  ANNULUS_ASSIGN_OR_RETURN(config.logits_soft_cap,
                           SoftCap(fields, "final_logit_softcapping", logits_cap));
  ANNULUS_ASSIGN_OR_RETURN(config.layer_input_size,
                           fields.Integer("hidden_size_per_layer_input", 1, kMostLayerInput, 256));
  ANNULUS_ASSIGN_OR_RETURN(
      config.layer_input_vocabulary,
      fields.Integer("vocab_size_per_layer_input", 1, kMostVocabulary, 262144));
  StreamsConfig& streams = config.streams;
  ANNULUS_ASSIGN_OR_RETURN(streams.count, fields.Integer("altup_num_inputs", 1, kMostStreams, 4));
  ANNULUS_ASSIGN_OR_RETURN(streams.active,
                           fields.Integer("altup_active_idx", 0, streams.count - 1, 0));
  ANNULUS_ASSIGN_OR_RETURN(streams.scaled, fields.Boolean("altup_correct_scale", true));
  ANNULUS_ASSIGN_OR_RETURN(config.laurel_rank,
                           fields.Integer("laurel_rank", 1, kMostLayerInput, 64));
  return absl::OkStatus();
}

absl::Status ParseGemma4(const JsonFields& fields, ModelConfig& config) {
  config.attention_scale = 1;
  ANNULUS_ASSIGN_OR_RETURN(config.logits_soft_cap, SoftCap(fields, "final_logit_softcapping", 0));
  ANNULUS_ASSIGN_OR_RETURN(const std::string both_ways,
                           fields.String("use_bidirectional_attention", ""));
  if (!both_ways.empty() && both_ways != "vision") {
    return fields.Unsupported("use_bidirectional_attention", "null or \"vision\"");
  }
  ANNULUS_ASSIGN_OR_RETURN(config.layer_input_size,
                           fields.Integer("hidden_size_per_layer_input", 0, kMostLayerInput, 256));
  NormTable<absl::string_view>& norms = config.traits.norms;
  if (config.layer_input_size == 0) {
    norms[LayerNorm::kLayerInput] = "";
  } else {
    ANNULUS_ASSIGN_OR_RETURN(
        config.layer_input_vocabulary,
        fields.Integer("vocab_size_per_layer_input", config.vocabulary, kMostVocabulary, 262144));
  }
  if (config.experts.count > 0) return absl::OkStatus();
  for (const LayerNorm norm : {LayerNorm::kRouterInput, LayerNorm::kExpertsInput,
                               LayerNorm::kSharedOutput, LayerNorm::kExpertsOutput}) {
    norms[norm] = "";
  }
  return absl::OkStatus();
}

}  // namespace annulus
