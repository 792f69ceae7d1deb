#include "engine/model/fields/layer_fields.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/fields/config_limits.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr int64_t kMostChosen = 64;

// `sliding_window`, or 0 where there is none.
absl::StatusOr<int64_t> SlidingWindow(const JsonFields& fields, const Family& family) {
  if (family.window_switch) {
    ANNULUS_ASSIGN_OR_RETURN(const bool used, fields.Boolean("use_sliding_window", false));
    if (!used) return 0;
  }
  // An explicit null means no window also where the key's absence means a default one.
  const int64_t absent = fields.Contains("sliding_window") ? 0 : family.window;
  return fields.Integer("sliding_window", 1, kMostContext, absent);
}

absl::StatusOr<int32_t> ListedWindow(const JsonFields& fields, const nlohmann::json& layer_type,
                                     int64_t window) {
  if (layer_type == "full_attention") return 0;
  if (layer_type != "sliding_attention") {
    return fields.Unsupported("layer_types", "\"full_attention\" and \"sliding_attention\"");
  }
  if (window > 0) return static_cast<int32_t>(window);
  return fields.Invalid("sliding_window", absl::StrCat("a whole number from 1 to ", kMostContext,
                                                       ", because layer_types has "
                                                       "sliding_attention"));
}

absl::Status ParseListedWindows(const JsonFields& fields, const nlohmann::json& types,
                                int64_t window, ModelConfig& config) {
  if (!types.is_array() || types.size() != config.layers.size()) {
    return fields.Invalid("layer_types", absl::StrCat("a list of num_hidden_layers, ",
                                                      config.layers.size(), ", names"));
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    ANNULUS_ASSIGN_OR_RETURN(config.layers[i].window, ListedWindow(fields, types.at(i), window));
  }
  return absl::OkStatus();
}

// Whether layer i slides where config.json does not list the layers.
absl::StatusOr<std::vector<bool>> SlidingLayers(const JsonFields& fields, const Family& family,
                                                const ModelConfig& config) {
  std::vector<bool> sliding(config.layers.size());
  int64_t pattern = 2;
  int64_t first = 0;
  if (family.windows == WindowRule::kPattern) {
    ANNULUS_ASSIGN_OR_RETURN(
        pattern, fields.Integer("sliding_window_pattern", 1, kMostLayers, family.window_pattern));
  }
  if (family.windows == WindowRule::kFromLayer || family.windows == WindowRule::kBeforeLayer) {
    ANNULUS_ASSIGN_OR_RETURN(
        first, fields.Integer("max_window_layers", 0, kMostLayers, family.window_start));
  }
  for (size_t i = 0; i < sliding.size(); ++i) {
    switch (family.windows) {
      case WindowRule::kListed:
      case WindowRule::kAttentionOnly:
        break;
      case WindowRule::kUniform:
        sliding[i] = true;
        break;
      case WindowRule::kAlternating:
      case WindowRule::kPattern:
        sliding[i] = (i + 1) % static_cast<size_t>(pattern) != 0;
        break;
      case WindowRule::kFromLayer:
        sliding[i] = i >= static_cast<size_t>(first);
        break;
      case WindowRule::kBeforeLayer:
        sliding[i] = i % 2 == 0 && i < static_cast<size_t>(first);
        break;
      case WindowRule::kWithoutRope:
        sliding[i] = config.layers[i].rope == kNoRope;
        break;
    }
  }
  return sliding;
}

// Of a family that has layers without attention.
absl::Status CheckAttentionOnly(const JsonFields& fields, const ModelConfig& config) {
  const nlohmann::json* types = fields.Find("layer_types");
  bool all = types != nullptr && types->is_array() && types->size() == config.layers.size();
  for (size_t i = 0; all && i < types->size(); ++i) {
    all = types->at(i) == "attention" || types->at(i) == "full_attention";
  }
  if (all) return absl::OkStatus();
  return fields.Unsupported("layer_types", "\"attention\" for each of num_hidden_layers");
}

// How many experts there are, by the field `count`, and how many of them a token takes.
absl::Status ParseCounts(const JsonFields& fields, const char* count, int64_t usual_count,
                         int64_t usual_chosen, ExpertsConfig& experts) {
  ANNULUS_ASSIGN_OR_RETURN(experts.count, fields.Integer(count, 1, kMostExperts, usual_count));
  ANNULUS_ASSIGN_OR_RETURN(experts.routing.chosen,
                           fields.Integer("num_experts_per_tok", 1, kMostChosen, usual_chosen));
  return absl::OkStatus();
}

// Experts instead of each plain block, and as wide as one.
void UseInAllLayers(ModelConfig& config) {
  config.experts.intermediate_size = config.intermediate_size;
  for (LayerConfig& layer : config.layers) layer.experts = true;
}

// Experts beside the block of every layer.
absl::Status ParseGemma4Experts(const JsonFields& fields, ModelConfig& config) {
  ExpertsConfig& experts = config.experts;
  ANNULUS_ASSIGN_OR_RETURN(const bool used, fields.Boolean("enable_moe_block", false));
  if (!used) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(experts.count, fields.Integer("num_experts", 1, kMostExperts));
  constexpr char kChosen[] = "top_k_experts";
  ANNULUS_ASSIGN_OR_RETURN(
      experts.routing.chosen,
      fields.Integer(kChosen, 1, std::min<int64_t>(kMostChosen, experts.count)));
  ANNULUS_ASSIGN_OR_RETURN(experts.intermediate_size,
                           fields.Integer("moe_intermediate_size", 1, kMostIntermediate));
  experts.shared_size = config.intermediate_size;
  experts.factors = true;
  for (LayerConfig& layer : config.layers) layer.experts = true;
  return absl::OkStatus();
}

absl::Status ParseMixtral(const JsonFields& fields, ModelConfig& config) {
  ANNULUS_RETURN_IF_ERROR(ParseCounts(fields, "num_local_experts", 8, 2, config.experts));
  UseInAllLayers(config);
  return absl::OkStatus();
}

absl::Status ParseOlmoe(const JsonFields& fields, ModelConfig& config) {
  ExpertsConfig& experts = config.experts;
  const char* count = fields.Has("num_local_experts") ? "num_local_experts" : "num_experts";
  ANNULUS_RETURN_IF_ERROR(ParseCounts(fields, count, 64, 8, experts));
  ANNULUS_ASSIGN_OR_RETURN(experts.routing.normalised, fields.Boolean("norm_topk_prob", false));
  if (fields.Has("clip_qkv")) return fields.Unsupported("clip_qkv", "null");
  UseInAllLayers(config);
  return absl::OkStatus();
}

// A shared expert alone is a plain block.
absl::Status ParseSharedOnly(const JsonFields& fields, ModelConfig& config) {
  constexpr int64_t kAbsent = 8;
  ANNULUS_ASSIGN_OR_RETURN(const int64_t count,
                           fields.Integer("num_local_experts", 0, kMostExperts, kAbsent));
  if (count > 0) return fields.Unsupported("num_local_experts", "0");
  ANNULUS_ASSIGN_OR_RETURN(config.intermediate_size,
                           fields.Integer("shared_intermediate_size", 1, kMostIntermediate, 1024));
  return absl::OkStatus();
}

absl::Status ParseGptOss(const JsonFields& fields, ModelConfig& config) {
  ExpertsConfig& experts = config.experts;
  const char* count = fields.Has("num_experts") ? "num_experts" : "num_local_experts";
  ANNULUS_RETURN_IF_ERROR(ParseCounts(fields, count, 128, 4, experts));
  experts.biases = true;
  UseInAllLayers(config);
  config.activation = Activation::kClampedSwiglu;
  ANNULUS_ASSIGN_OR_RETURN(const double alpha, fields.Number("swiglu_alpha", 0, 1e3, 1.702));
  ANNULUS_ASSIGN_OR_RETURN(const double limit, fields.Number("swiglu_limit", 1e-3, 1e6, 7));
  config.activation_alpha = static_cast<float>(alpha);
  config.activation_limit = static_cast<float>(limit);
  return absl::OkStatus();
}

absl::Status ParseMiniMax(const JsonFields& fields, ModelConfig& config) {
  ExpertsConfig& experts = config.experts;
  const char* count = fields.Has("num_experts") ? "num_experts" : "num_local_experts";
  ANNULUS_RETURN_IF_ERROR(ParseCounts(fields, count, 256, 8, experts));
  experts.routing.scores = RoutingRule::Scores::kSigmoid;
  experts.choice_bias = true;
  UseInAllLayers(config);
  return absl::OkStatus();
}

// Qwen 3's, or of a rule that has other defaults.
absl::Status ParseQwenExperts(const JsonFields& fields, ExpertsRule rule, ModelConfig& config) {
  ExpertsConfig& experts = config.experts;
  const bool usual = rule == ExpertsRule::kQwen;
  const char* count = fields.Has("num_local_experts") ? "num_local_experts" : "num_experts";
  ANNULUS_RETURN_IF_ERROR(ParseCounts(fields, count, usual ? 128 : 60, usual ? 8 : 4, experts));
  ANNULUS_ASSIGN_OR_RETURN(
      experts.intermediate_size,
      fields.Integer("moe_intermediate_size", 1, kMostIntermediate, usual ? 768 : 1408));
  experts.shared_gate = rule == ExpertsRule::kQwen2;
  if (experts.shared_gate) {
    ANNULUS_ASSIGN_OR_RETURN(experts.shared_size, fields.Integer("shared_expert_intermediate_size",
                                                                 1, kMostIntermediate, 5632));
  }
  const bool always = rule == ExpertsRule::kQwen3Vl;
  ANNULUS_ASSIGN_OR_RETURN(experts.routing.normalised, fields.Boolean("norm_topk_prob", always));
  if (always && !experts.routing.normalised) return fields.Unsupported("norm_topk_prob", "true");
  ANNULUS_ASSIGN_OR_RETURN(const int64_t step,
                           fields.Integer("decoder_sparse_step", 1, kMostLayers, 1));
  std::vector<double> plain;
  if (fields.Has("mlp_only_layers")) {
    ANNULUS_ASSIGN_OR_RETURN(plain, fields.Numbers("mlp_only_layers", 0, true, 0, kMostLayers - 1));
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const bool listed =
        std::find(plain.begin(), plain.end(), static_cast<double>(i)) != plain.end();
    config.layers[i].experts = !listed && (i + 1) % static_cast<size_t>(step) == 0;
  }
  return absl::OkStatus();
}

absl::Status ParseGroups(const JsonFields& fields, ExpertsConfig& experts) {
  RoutingRule& routing = experts.routing;
  ANNULUS_ASSIGN_OR_RETURN(routing.groups, fields.Integer("n_group", 1, kMostExperts, 1));
  ANNULUS_ASSIGN_OR_RETURN(routing.chosen_groups,
                           fields.Integer("topk_group", 1, routing.groups, 1));
  const int32_t size = experts.count / routing.groups;
  if (experts.count % routing.groups != 0 || (routing.groups > 1 && size < 2)) {
    return fields.Invalid("n_group", absl::StrCat("1, or a divisor of the number of experts, ",
                                                  experts.count, ", that is at most half of it"));
  }
  if (routing.chosen <= routing.chosen_groups * size) return absl::OkStatus();
  return fields.Invalid("num_experts_per_tok",
                        absl::StrCat("at most as many as topk_group, ", routing.chosen_groups,
                                     ", groups of experts have, ", routing.chosen_groups * size));
}

absl::Status ParseGlm4Experts(const JsonFields& fields, ModelConfig& config) {
  ExpertsConfig& experts = config.experts;
  const char* count = fields.Has("num_local_experts") ? "num_local_experts" : "n_routed_experts";
  ANNULUS_RETURN_IF_ERROR(ParseCounts(fields, count, 128, 8, experts));
  ANNULUS_ASSIGN_OR_RETURN(experts.intermediate_size,
                           fields.Integer("moe_intermediate_size", 1, kMostIntermediate, 1408));
  ANNULUS_ASSIGN_OR_RETURN(
      const int64_t shared,
      fields.Integer("n_shared_experts", 1, kMostIntermediate / experts.intermediate_size, 1));
  experts.shared_size = static_cast<int32_t>(shared * experts.intermediate_size);
  experts.choice_bias = true;
  experts.routing.scores = RoutingRule::Scores::kSigmoid;
  ANNULUS_ASSIGN_OR_RETURN(experts.routing.normalised, fields.Boolean("norm_topk_prob", true));
  ANNULUS_ASSIGN_OR_RETURN(const double scale,
                           fields.Number("routed_scaling_factor", 1e-4, 1e4, 1));
  experts.routing.scale = static_cast<float>(scale);
  ANNULUS_RETURN_IF_ERROR(ParseGroups(fields, experts));
  ANNULUS_ASSIGN_OR_RETURN(const int64_t plain,
                           fields.Integer("first_k_dense_replace", 0, kMostLayers, 1));
  for (size_t i = static_cast<size_t>(plain); i < config.layers.size(); ++i) {
    config.layers[i].experts = true;
  }
  const char* guessing =
      fields.Has("num_mtp_layers") ? "num_mtp_layers" : "num_nextn_predict_layers";
  ANNULUS_ASSIGN_OR_RETURN(config.guessing_layers, fields.Integer(guessing, 0, kMostLayers, 1));
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseNoRopeLayers(const JsonFields& fields, const Family& family,
                               ModelConfig& config) {
  if (family.rope != RopeRule::kNoLayers) return absl::OkStatus();
  if (fields.Has("no_rope_layers")) {
    // A 1 means that the layer has rope.
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<double> has_rope,
                             fields.Numbers("no_rope_layers", config.layers.size(), true, 0, 1));
    for (size_t i = 0; i < config.layers.size(); ++i) {
      if (has_rope[i] == 0) config.layers[i].rope = kNoRope;
    }
    return absl::OkStatus();
  }
  ANNULUS_ASSIGN_OR_RETURN(const int64_t interval,
                           fields.Integer("no_rope_layer_interval", 1, kMostLayers, 4));
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if ((i + 1) % static_cast<size_t>(interval) == 0) config.layers[i].rope = kNoRope;
  }
  return absl::OkStatus();
}

absl::Status ParseWindows(const JsonFields& fields, const Family& family, ModelConfig& config) {
  if (family.windows == WindowRule::kAttentionOnly) return CheckAttentionOnly(fields, config);
  ANNULUS_ASSIGN_OR_RETURN(const int64_t window, SlidingWindow(fields, family));
  const nlohmann::json* types = fields.Find("layer_types");
  if (types != nullptr && family.windows == WindowRule::kUniform) {
    return fields.Unsupported("layer_types",
                              absl::StrCat("nothing here: ", family.architecture,
                                           " has one sliding_window for all layers"));
  }
  if (types != nullptr) {
    ANNULUS_RETURN_IF_ERROR(ParseListedWindows(fields, *types, window, config));
  } else {
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<bool> sliding,
                             SlidingLayers(fields, family, config));
    for (size_t i = 0; i < sliding.size(); ++i) {
      if (sliding[i]) config.layers[i].window = static_cast<int32_t>(window);
    }
  }
  const bool never_full = family.rope == RopeRule::kNeverFull;
  if (never_full && window == 0) {
    return fields.Invalid("sliding_window",
                          absl::StrCat("a whole number from 1 to ", kMostContext));
  }
  if (never_full || (family.rope == RopeRule::kSlidingOnly && window > 0)) {
    for (LayerConfig& layer : config.layers) {
      if (layer.window == 0) layer.rope = kNoRope;
    }
  }
  return absl::OkStatus();
}

absl::Status ParseExperts(const JsonFields& fields, const Family& family, ModelConfig& config) {
  switch (family.experts) {
    case ExpertsRule::kNone:
      return absl::OkStatus();
    case ExpertsRule::kMixtral:
      ANNULUS_RETURN_IF_ERROR(ParseMixtral(fields, config));
      break;
    case ExpertsRule::kQwen:
    case ExpertsRule::kQwen2:
    case ExpertsRule::kQwen3Vl:
      ANNULUS_RETURN_IF_ERROR(ParseQwenExperts(fields, family.experts, config));
      break;
    case ExpertsRule::kGlm4:
      ANNULUS_RETURN_IF_ERROR(ParseGlm4Experts(fields, config));
      break;
    case ExpertsRule::kOlmoe:
      ANNULUS_RETURN_IF_ERROR(ParseOlmoe(fields, config));
      break;
    case ExpertsRule::kGptOss:
      ANNULUS_RETURN_IF_ERROR(ParseGptOss(fields, config));
      break;
    case ExpertsRule::kMiniMax:
      ANNULUS_RETURN_IF_ERROR(ParseMiniMax(fields, config));
      break;
    case ExpertsRule::kGemma4:
      return ParseGemma4Experts(fields, config);
    case ExpertsRule::kSharedOnly:
      return ParseSharedOnly(fields, config);
  }
  if (config.experts.routing.chosen > config.experts.count) {
    return fields.Invalid("num_experts_per_tok",
                          absl::StrCat("at most the number of experts, ", config.experts.count));
  }
  // A model whose layers are all listed as plain has none, whatever the other keys say.
  const bool used = std::any_of(config.layers.begin(), config.layers.end(),
                                [](const LayerConfig& layer) { return layer.experts; });
  if (!used) config.experts = {};
  return absl::OkStatus();
}

}  // namespace annulus
