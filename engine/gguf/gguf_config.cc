#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/gguf/gguf_families.h"
#include "engine/gguf/gguf_gemma3n.h"
#include "engine/gguf/gguf_gemma4.h"
#include "engine/gguf/gguf_numbers.h"
#include "engine/model/families.h"
#include "engine/model/fields/config_limits.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using nlohmann::json;
using Experts = GgufFamily::Experts;
using Names = GgufFamily::Names;

// Layers of the two Gemma models whose scores are scaled by hidden_size / heads, which no key says.
constexpr uint64_t kGemma2Layers27B = 46;
constexpr uint64_t kGemma3Layers27B = 62;

// Writes config.json key by key.
class ConfigWriter {
 public:
  ConfigWriter(const GgufFile& file, const GgufFamily& family) : file_(file), family_(family) {}

  absl::StatusOr<std::string> Write();

 private:
  // The value of "ARCHITECTURE.key", or null.
  json Value(absl::string_view key) const {
    const GgufValue* const value = file_.Find(absl::StrCat(family_.name, ".", key));
    return value == nullptr ? json() : value->Scalar();
  }
  absl::StatusOr<json> Number(absl::string_view from) const {
    return GgufNumber(file_, absl::StrCat(family_.name, ".", from));
  }
  absl::Status Copy(const char* to, absl::string_view from) {
    ANNULUS_ASSIGN_OR_RETURN(const json value, Number(from));
    if (!value.is_null()) config_[to] = value;
    return absl::OkStatus();
  }
  // Of this family WriteGemma4Config writes what differs between layers.
  bool IsGemma4() const { return family_.names == Names::kGemma4; }
  // Of this one WriteGemma3nConfig.
  bool IsGemma3n() const { return family_.names == Names::kGemma3n; }
  bool Has(absl::string_view tensor) const { return file_.FindTensor(tensor) != nullptr; }
  // Numbers that are the same in all layers; models whose layers differ store arrays.
  absl::Status CopySame(const char* to, absl::string_view from);
  absl::Status WriteSizes();
  absl::Status WriteRope();
  absl::Status WriteFactors(const char* to, absl::string_view tensor, json& rope) const;
  absl::Status WriteYarn(json& rope) const;
  absl::Status WriteSlidingTheta();
  absl::Status WriteGrowth(const json& original, json& rope) const;
  absl::Status WriteGemma();
  absl::Status WriteMultipliers();
  absl::Status WriteWindow();
  absl::Status WriteExperts();
  absl::Status WriteGlm4Experts();
  absl::Status WriteTokens();
  void WriteKind();

  const GgufFile& file_;
  const GgufFamily& family_;
  json config_ = json::object();
};

absl::Status ConfigWriter::CopySame(const char* to, absl::string_view from) {
  const std::string key = absl::StrCat(family_.name, ".", from);
  const GgufValue* const value = file_.Find(key);
  if (value == nullptr) return absl::OkStatus();
  if (value->kind != GgufValue::Kind::kArray) return Copy(to, from);
  if (value->count == 0 || value->element == GgufValue::Kind::kString) {
    return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": ", key, " is ", value->Shown(),
                                                   "; allowed: numbers, one for each layer"));
  }
  for (uint64_t i = 0; i < value->count; ++i) {
    if (i > 0 && value->At(i) != value->At(0)) {
      return absl::UnimplementedError(
          absl::StrCat(file_.path(), ": ", key, " differs between layers (", value->At(0).dump(),
                       " and ", value->At(i).dump(), "); supported: one number for all layers"));
    }
    config_[to] = value->At(0);
  }
  return absl::OkStatus();
}

absl::Status ConfigWriter::WriteSizes() {
  ANNULUS_RETURN_IF_ERROR(Copy("hidden_size", "embedding_length"));
  ANNULUS_RETURN_IF_ERROR(Copy("num_hidden_layers", "block_count"));
  ANNULUS_RETURN_IF_ERROR(CopySame("num_attention_heads", "attention.head_count"));
  if (!IsGemma4() && !IsGemma3n()) {
    ANNULUS_RETURN_IF_ERROR(CopySame("intermediate_size", "feed_forward_length"));
  }
  if (!IsGemma4()) {
    ANNULUS_RETURN_IF_ERROR(CopySame("num_key_value_heads", "attention.head_count_kv"));
  }
  ANNULUS_RETURN_IF_ERROR(Copy("head_dim", "attention.key_length"));
  ANNULUS_RETURN_IF_ERROR(Copy("max_position_embeddings", "context_length"));
  const Family& family = FamilyOf(config_.value("model_type", ""));
  ANNULUS_RETURN_IF_ERROR(Copy(family.epsilon, family.norm.centred
                                                   ? "attention.layer_norm_epsilon"
                                                   : "attention.layer_norm_rms_epsilon"));
  // llama.cpp's converter writes a key for it, which llama.cpp does not read.
  if (family.parallel_switch != nullptr) {
    config_[family.parallel_switch] = !Has("blk.0.ffn_norm.weight");
  }
  ANNULUS_ASSIGN_OR_RETURN(const json values, Number("attention.value_length"));
  const json keys = Value("attention.key_length");
  if (!values.is_null() && values != keys) {
    return absl::UnimplementedError(
        absl::StrCat(file_.path(), ": ", family_.name, ".attention.value_length is ", values.dump(),
                     " and key_length ", keys.dump(), "; supported: the same for both"));
  }
  const GgufTensor* const embedding = file_.FindTensor("token_embd.weight");
  if (embedding != nullptr && embedding->shape.size() == 2) {
    config_["vocab_size"] = static_cast<uint64_t>(embedding->shape[0]);
  } else {
    ANNULUS_RETURN_IF_ERROR(Copy("vocab_size", "vocab_size"));
  }
  config_["tie_word_embeddings"] = !Has("output.weight");
  for (const char* key : {"attention_bias", "use_bias", "qkv_bias", "use_qkv_bias"}) {
    config_[key] = Has("blk.0.attn_q.bias");
  }
  for (const char* key : {"use_qk_norm", "qk_layernorm"}) {
    config_[key] = Has("blk.0.attn_q_norm.weight");
  }
  config_["attention_out_bias"] = Has("blk.0.attn_output.bias");
  config_["mlp_bias"] = Has("blk.0.ffn_down.bias");
  return absl::OkStatus();
}

absl::Status ConfigWriter::WriteFactors(const char* to, absl::string_view tensor,
                                        json& rope) const {
  const GgufTensor* const factors = file_.FindTensor(tensor);
  if (factors == nullptr) return absl::OkStatus();
  if (factors->bytes > size_t{1} << 16) {
    return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": tensor ", tensor, " has ",
                                                   factors->bytes,
                                                   " bytes; allowed: a number for each rope pair"));
  }
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<float> values, file_.ReadAsFloat(*factors));
  rope[to] = values;
  return absl::OkStatus();
}

// What few files say of YaRN. The multiplier is that of Ministral 3, whose two scales cancel.
absl::Status ConfigWriter::WriteYarn(json& rope) const {
  const auto copy = [&](const char* to, absl::string_view from) -> absl::Status {
    ANNULUS_ASSIGN_OR_RETURN(const json value, Number(from));
    if (!value.is_null()) rope[to] = value;
    return absl::OkStatus();
  };
  ANNULUS_RETURN_IF_ERROR(copy("beta_fast", "rope.scaling.yarn_beta_fast"));
  ANNULUS_RETURN_IF_ERROR(copy("beta_slow", "rope.scaling.yarn_beta_slow"));
  ANNULUS_RETURN_IF_ERROR(copy("mscale", "rope.scaling.yarn_log_multiplier"));
  return copy("mscale_all_dim", "rope.scaling.yarn_log_multiplier");
}

// Of Ministral 3, whose scales grow from the `original` context on, or else from the whole one.
absl::Status ConfigWriter::WriteGrowth(const json& original, json& rope) const {
  ANNULUS_ASSIGN_OR_RETURN(const json growth, Number("attention.temperature_scale"));
  if (growth.is_null()) return absl::OkStatus();
  rope["llama_4_scaling_beta"] = growth;
  const json context = config_.value("max_position_embeddings", json());
  if (const json& from = original.is_null() ? context : original; !from.is_null()) {
    rope["original_max_position_embeddings"] = from;
  }
  return absl::OkStatus();
}

// Without the key sliding layers have Gemma's own, or in other families that of all layers.
absl::Status ConfigWriter::WriteSlidingTheta() {
  ANNULUS_ASSIGN_OR_RETURN(const json theta, Number("rope.freq_base_swa"));
  if (theta.is_null()) return absl::OkStatus();
  if (FamilyOf(config_.value("model_type", "")).rope == RopeRule::kPerLayer) {
    config_["rope_local_base_freq"] = theta;
    return absl::OkStatus();
  }
  const json all = config_.value("rope_theta", json());
  if (theta == all) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      file_.path(), ": ", family_.name, ".rope.freq_base_swa is ", theta.dump(),
      "; supported for this family: the same as rope.freq_base, which is ", all.dump()));
}

// Tensors of factors divide frequencies: one list is what Llama 3 makes of its settings, two are
// longrope's. Both are written as longrope, which is exactly that.
absl::Status ConfigWriter::WriteRope() {
  ANNULUS_RETURN_IF_ERROR(Copy("rope_theta", "rope.freq_base"));
  ANNULUS_RETURN_IF_ERROR(WriteSlidingTheta());
  ANNULUS_ASSIGN_OR_RETURN(
      const json rotated,
      GgufWholeNumber(file_, absl::StrCat(family_.name, ".rope.dimension_count")));
  const json heads = config_.value("num_attention_heads", json());
  const json hidden = config_.value("hidden_size", json());
  json head_dim = config_.value("head_dim", json());
  if (head_dim.is_null() && heads.is_number_unsigned() && hidden.is_number_unsigned() &&
      heads.get<uint64_t>() > 0) {
    head_dim = hidden.get<uint64_t>() / heads.get<uint64_t>();
  }
  // Without the key all of a head is rotated, unlike in some families' config.json.
  const bool part =
      !rotated.is_null() && head_dim.is_number_unsigned() && head_dim.get<uint64_t>() > 0;
  config_["partial_rotary_factor"] = part ? rotated.get<double>() / head_dim.get<double>() : 1.0;
  json rope = json::object();
  ANNULUS_ASSIGN_OR_RETURN(const json original, Number("rope.scaling.original_context_length"));
  const GgufValue* const scaling = file_.Find(absl::StrCat(family_.name, ".rope.scaling.type"));
  const json type = scaling != nullptr ? scaling->Scalar() : json();
  const std::vector<absl::string_view> factors = GgufConfigTensors(file_);
  if (!factors.empty()) {
    const bool two = factors.size() == 2;
    rope["rope_type"] = "longrope";
    ANNULUS_RETURN_IF_ERROR(WriteFactors("short_factor", factors.front(), rope));
    ANNULUS_RETURN_IF_ERROR(WriteFactors("long_factor", factors.back(), rope));
    ANNULUS_ASSIGN_OR_RETURN(const json scale, Number("rope.scaling.attn_factor"));
    if (!two) rope["attention_factor"] = 1.0;
    if (two && !scale.is_null()) rope["attention_factor"] = scale;
    if (two && !original.is_null()) config_["original_max_position_embeddings"] = original;
  } else if (type == "linear" || type == "yarn") {
    rope["rope_type"] = type;
    ANNULUS_ASSIGN_OR_RETURN(const json factor, Number("rope.scaling.factor"));
    if (!factor.is_null()) rope["factor"] = factor;
    if (!original.is_null()) rope["original_max_position_embeddings"] = original;
    if (family_.experts == Experts::kGptOss) rope["truncate"] = false;
    ANNULUS_RETURN_IF_ERROR(WriteYarn(rope));
  } else if (scaling != nullptr && type != "none") {
    return absl::UnimplementedError(absl::StrCat(
        file_.path(), ": ", family_.name, ".rope.scaling.type is ", scaling->Shown(),
        "; supported: none, linear, yarn, and factors in tensors (longrope, Llama 3)"));
  } else if (FamilyOf(config_.value("model_type", "")).rope_default != nullptr) {
    rope["rope_type"] = "default";
  }
  ANNULUS_RETURN_IF_ERROR(WriteGrowth(original, rope));
  if (!rope.empty()) config_["rope_scaling"] = std::move(rope);
  return absl::OkStatus();
}

absl::Status ConfigWriter::WriteGemma() {
  if (IsGemma3n()) config_["final_logit_softcapping"] = nullptr;  // without the key there is none
  if (IsGemma4() || IsGemma3n()) return Copy("final_logit_softcapping", "final_logit_softcapping");
  if (family_.names != Names::kGemma) return absl::OkStatus();
  const json layers = Value("block_count");
  const bool by_hidden = layers == (family_.name == "gemma2" ? kGemma2Layers27B : kGemma3Layers27B);
  const json heads = config_.value("num_attention_heads", json());
  const json hidden = config_.value("hidden_size", json());
  const json head_dim = config_.value("head_dim", json());
  if (by_hidden && heads.is_number_unsigned() && hidden.is_number_unsigned() &&
      heads.get<uint64_t>() > 0) {
    config_["query_pre_attn_scalar"] = hidden.get<uint64_t>() / heads.get<uint64_t>();
  } else if (!head_dim.is_null()) {
    config_["query_pre_attn_scalar"] = head_dim;
  }
  ANNULUS_ASSIGN_OR_RETURN(const json score_cap, Number("attn_logit_softcapping"));
  ANNULUS_ASSIGN_OR_RETURN(const json logits_cap, Number("final_logit_softcapping"));
  // Without the keys Gemma 2 has its publisher's caps, in llama.cpp as in config.json.
  if (!score_cap.is_null()) config_["attn_logit_softcapping"] = score_cap;
  if (!logits_cap.is_null()) config_["final_logit_softcapping"] = logits_cap;
  return absl::OkStatus();
}

absl::Status ConfigWriter::WriteMultipliers() {
  if (FamilyOf(config_.value("model_type", "")).logit_scale > 0) {
    return Copy("logit_scale", "logit_scale");
  }
  if (!family_.multipliers) return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(Copy("attention_multiplier", "attention.scale"));
  ANNULUS_RETURN_IF_ERROR(Copy("embedding_multiplier", "embedding_scale"));
  ANNULUS_RETURN_IF_ERROR(Copy("residual_multiplier", "residual_scale"));
  return Copy("logits_scaling", "logit_scale");
}

// 0 means none, and so does an absent key, though some families have a window of their own.
absl::Status ConfigWriter::WriteWindow() {
  ANNULUS_ASSIGN_OR_RETURN(const json window, Number("attention.sliding_window"));
  // Without the key EXAONE 4 and Gemma 3 have none: converters leave it out if a checkpoint says
  // so.
  const bool none = family_.name == "exaone4" || family_.name == "gemma3";
  if (window.is_null() && !none) return absl::OkStatus();
  config_["sliding_window"] = window == 0 ? json() : window;
  const std::string key = absl::StrCat(family_.name, ".attention.sliding_window_pattern");
  const GgufValue* const pattern = file_.Find(key);
  if (pattern == nullptr) return absl::OkStatus();
  json types = json::array();
  const auto add = [&](bool slides) {
    types.push_back(slides ? "sliding_attention" : "full_attention");
  };
  if (pattern->kind == GgufValue::Kind::kArray) {
    for (uint64_t i = 0; i < std::min(pattern->count, uint64_t{kMostLayers}); ++i) {
      using Kind = GgufValue::Kind;
      const bool readable = pattern->element != Kind::kString && pattern->element != Kind::kArray;
      const json flag = readable ? pattern->At(i) : json();
      if (!flag.is_boolean() && flag != 0 && flag != 1) {
        return absl::InvalidArgumentError(absl::StrCat(
            file_.path(), ": ", key, " is ", pattern->Shown(), ", and that of layer ", i,
            " neither true nor false; allowed: these, or 1 and 0, for each layer, "
            "or one period"));
      }
      add(flag == true || flag == 1);
    }
  } else {
    // Of so many layers the last attends everything; with 0 none does.
    ANNULUS_ASSIGN_OR_RETURN(const json number, GgufWholeNumber(file_, key));
    ANNULUS_ASSIGN_OR_RETURN(const json layers,
                             GgufWholeNumber(file_, absl::StrCat(family_.name, ".block_count")));
    const auto period = number.get<uint64_t>();
    const uint64_t count = layers.is_null() ? 0 : layers.get<uint64_t>();
    for (uint64_t i = 0; i < std::min(count, uint64_t{kMostLayers}); ++i) {
      add(period == 0 || (i + 1) % period != 0);
    }
  }
  config_["layer_types"] = std::move(types);
  return absl::OkStatus();
}

absl::Status ConfigWriter::WriteExperts() {
  if (IsGemma4()) return WriteGemma4Config(file_, config_);
  if (IsGemma3n()) return WriteGemma3nConfig(file_, config_);
  if (family_.experts == Experts::kNone) return absl::OkStatus();
  if (family_.experts == Experts::kOlmoe) {
    ANNULUS_RETURN_IF_ERROR(Copy("num_experts", "expert_count"));
    return Copy("num_experts_per_tok", "expert_used_count");
  }
  if (family_.experts == Experts::kGlm4) return WriteGlm4Experts();
  const bool older = family_.experts == Experts::kQwen2;
  const bool qwen = older || family_.experts == Experts::kSeparate;
  ANNULUS_RETURN_IF_ERROR(Copy(qwen ? "num_experts" : "num_local_experts", "expert_count"));
  ANNULUS_RETURN_IF_ERROR(Copy("num_experts_per_tok", "expert_used_count"));
  ANNULUS_RETURN_IF_ERROR(
      Copy(qwen ? "moe_intermediate_size" : "intermediate_size", "expert_feed_forward_length"));
  if (older) {
    ANNULUS_RETURN_IF_ERROR(
        Copy("shared_expert_intermediate_size", "expert_shared_feed_forward_length"));
  }
  if (qwen) config_["norm_topk_prob"] = !older;
  return absl::OkStatus();
}

absl::Status ConfigWriter::WriteGlm4Experts() {
  constexpr int kSigmoid = 2;
  if (const json scores = Value("expert_gating_func"); !scores.is_null() && scores != kSigmoid) {
    return absl::UnimplementedError(absl::StrCat(file_.path(), ": ", family_.name,
                                                 ".expert_gating_func is ", scores.dump(),
                                                 "; supported: 2 (sigmoid)"));
  }
  for (const auto& [to, from] : {std::pair("n_routed_experts", "expert_count"),
                                 std::pair("num_experts_per_tok", "expert_used_count"),
                                 std::pair("moe_intermediate_size", "expert_feed_forward_length"),
                                 std::pair("n_shared_experts", "expert_shared_count"),
                                 std::pair("first_k_dense_replace", "leading_dense_block_count"),
                                 std::pair("routed_scaling_factor", "expert_weights_scale"),
                                 std::pair("n_group", "expert_group_count"),
                                 std::pair("topk_group", "expert_group_used_count")}) {
    ANNULUS_RETURN_IF_ERROR(Copy(to, from));
  }
  const json normalised = Value("expert_weights_norm");
  config_["norm_topk_prob"] = normalised.is_null() ? json(false) : normalised;
  // The layers of the file are those for guessing, too, at its end.
  ANNULUS_ASSIGN_OR_RETURN(
      const json guessing,
      GgufWholeNumber(file_, absl::StrCat(family_.name, ".nextn_predict_layers")));
  ANNULUS_ASSIGN_OR_RETURN(const json blocks,
                           GgufWholeNumber(file_, absl::StrCat(family_.name, ".block_count")));
  config_["num_nextn_predict_layers"] = guessing.is_null() ? json(0) : guessing;
  if (!guessing.is_null() && !blocks.is_null() && guessing < blocks) {
    config_["num_hidden_layers"] = blocks.get<uint64_t>() - guessing.get<uint64_t>();
  }
  return absl::OkStatus();
}

// End of text, and end of a turn, which publishers keep apart.
absl::Status ConfigWriter::WriteTokens() {
  ANNULUS_ASSIGN_OR_RETURN(const json bos, GgufWholeNumber(file_, "tokenizer.ggml.bos_token_id"));
  if (!bos.is_null()) config_["bos_token_id"] = bos;
  json ends = json::array();
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    ANNULUS_ASSIGN_OR_RETURN(const json id, GgufWholeNumber(file_, key));
    if (!id.is_null() && std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  }
  if (!ends.empty()) config_["eos_token_id"] = std::move(ends);
  return absl::OkStatus();
}

// The dtype is that of the embedding, which is what embeddings are scaled in (Gemma). A quantized
// one says none that it was computed in.
void ConfigWriter::WriteKind() {
  config_["architectures"] = json::array({std::string(family_.architecture)});
  for (const Family& family : Families()) {
    if (family.architecture == family_.architecture) {
      config_["model_type"] = std::string(family.model_type);
    }
  }
  const GgufTensor* const embedding = file_.FindTensor("token_embd.weight");
  if (embedding == nullptr) return;
  const DType dtype = embedding->type->plain.value_or(DType::kF32);
  config_["torch_dtype"] = dtype == DType::kBF16  ? "bfloat16"
                           : dtype == DType::kF16 ? "float16"
                                                  : "float32";
}

absl::StatusOr<std::string> ConfigWriter::Write() {
  WriteKind();
  ANNULUS_RETURN_IF_ERROR(WriteSizes());
  if (!IsGemma4()) ANNULUS_RETURN_IF_ERROR(WriteRope());
  ANNULUS_RETURN_IF_ERROR(WriteGemma());
  ANNULUS_RETURN_IF_ERROR(WriteMultipliers());
  ANNULUS_RETURN_IF_ERROR(WriteWindow());
  ANNULUS_RETURN_IF_ERROR(WriteExperts());
  ANNULUS_RETURN_IF_ERROR(WriteTokens());
  return config_.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

std::vector<absl::string_view> GgufConfigTensors(const GgufFile& file) {
  if (file.FindTensor("rope_factors_long.weight") != nullptr) {
    return {"rope_factors_short.weight", "rope_factors_long.weight"};
  }
  if (file.FindTensor("rope_freqs.weight") != nullptr) return {"rope_freqs.weight"};
  return {};
}

absl::StatusOr<std::string> GgufConfigJson(const GgufFile& file, const GgufFamily& family) {
  return ConfigWriter(file, family).Write();
}

}  // namespace annulus
