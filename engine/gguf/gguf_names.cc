#include "engine/gguf/gguf_names.h"

#include <array>
#include <span>

namespace annulus {
namespace {

using Experts = GgufFamily::Experts;
using Names = GgufFamily::Names;

struct NamePair {
  absl::string_view gguf;
  absl::string_view ours;
};

constexpr NamePair kModelNames[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output_norm.bias", "model.norm.bias"},
    {"output.weight", "lm_head.weight"},
    {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
    {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
    {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"},
};

// What a family names otherwise than most.
constexpr NamePair kGemmaNames[] = {{"ffn_norm", "pre_feedforward_layernorm"}};
constexpr NamePair kGemma4Names[] = {
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
    {"ffn_gate_inp", "router.proj"},
    {"ffn_gate_inp.scale", "router.scale"},
    {"ffn_down_exps.scale", "router.per_expert_scale"},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm"},
    {"layer_output_scale", "layer_scalar"},
};
constexpr NamePair kGemma3nNames[] = {
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm"},
    {"altup_router", "altup.modality_router"},
    {"altup_router_norm", "altup.router_norm"},
    {"altup_predict_coef", "altup.prediction_coefs"},
    {"altup_correct_coef", "altup.correction_coefs"},
    {"altup_correct_scale", "altup.correct_output_scale"},
    {"laurel_l", "laurel.linear_left"},
    {"laurel_r", "laurel.linear_right"},
    {"laurel_post_norm", "laurel.post_laurel_norm"},
};
constexpr NamePair kHunyuanNames[] = {{"attn_q_norm", "self_attn.query_layernorm"},
                                      {"attn_k_norm", "self_attn.key_layernorm"}};
constexpr NamePair kStableLmNames[] = {{"attn_q_norm", "self_attn.q_layernorm"},
                                       {"attn_k_norm", "self_attn.k_layernorm"}};
constexpr NamePair kStarcoder2Names[] = {{"ffn_up", "mlp.c_fc"}, {"ffn_down", "mlp.c_proj"}};
constexpr NamePair kGlm4Names[] = {{"post_attention_norm", "post_self_attn_layernorm"},
                                   {"post_ffw_norm", "post_mlp_layernorm"}};
constexpr NamePair kFusedNames[] = {{"ffn_up", "mlp.gate_up_proj"}};
constexpr NamePair kMixtralNames[] = {{"ffn_gate_inp", "block_sparse_moe.gate"},
                                      {"exp_probs_b", "block_sparse_moe.e_score_correction_bias"}};
constexpr NamePair kGptOssNames[] = {{"ffn_gate_inp", "mlp.router"}};
constexpr NamePair kGlm4MoeNames[] = {{"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
                                      {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
                                      {"ffn_down_shexp", "mlp.shared_experts.down_proj"}};

// What most do.
constexpr NamePair kLayerNames[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"attn_sinks", "self_attn.sinks"},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
    {"exp_probs_b", "mlp.gate.e_score_correction_bias"},
};

absl::string_view Find(std::span<const NamePair> names, absl::string_view name) {
  for (const NamePair& pair : names) {
    if (pair.gguf == name) return pair.ours;
  }
  return "";
}

std::span<const NamePair> OwnNames(Names names) {
  switch (names) {
    case Names::kUsual:
      return {};
    case Names::kGemma:
      return kGemmaNames;
    case Names::kGemma3n:
      return kGemma3nNames;
    case Names::kGemma4:
      return kGemma4Names;
    case Names::kGlm4:
      return kGlm4Names;
    case Names::kHunyuan:
      return kHunyuanNames;
    case Names::kStableLm:
      return kStableLmNames;
    case Names::kStarcoder2:
      return kStarcoder2Names;
  }
  return {};
}

std::span<const NamePair> OwnNames(Experts experts) {
  switch (experts) {
    case Experts::kMixtral:
    case Experts::kMiniMax:
      return kMixtralNames;
    case Experts::kGptOss:
      return kGptOssNames;
    case Experts::kGlm4:
      return kGlm4MoeNames;
    case Experts::kNone:
    case Experts::kSeparate:
    case Experts::kQwen2:
    case Experts::kOlmoe:
    case Experts::kGemma4:
      return {};
  }
  return {};
}

constexpr NamePair kExpertNames[] = {{"ffn_gate_exps.weight", "gate_proj.weight"},
                                     {"ffn_up_exps.weight", "up_proj.weight"},
                                     {"ffn_down_exps.weight", "down_proj.weight"}};
constexpr NamePair kMixtralExpertNames[] = {{"ffn_gate_exps.weight", "w1.weight"},
                                            {"ffn_up_exps.weight", "w3.weight"},
                                            {"ffn_down_exps.weight", "w2.weight"}};

}  // namespace

absl::string_view GgufModelTensor(absl::string_view name) { return Find(kModelNames, name); }

absl::string_view GgufLayerTensor(const GgufFamily& family, absl::string_view name) {
  for (const std::span<const NamePair> names :
       {OwnNames(family.names), OwnNames(family.experts),
        family.fused_block ? std::span<const NamePair>(kFusedNames) : std::span<const NamePair>(),
        std::span<const NamePair>(kLayerNames)}) {
    if (const absl::string_view ours = Find(names, name); !ours.empty()) return ours;
  }
  return "";
}

GgufExpertNames GgufExpertTensor(const GgufFamily& family, absl::string_view name) {
  if (family.experts == Experts::kMixtral || family.experts == Experts::kMiniMax) {
    return {"block_sparse_moe.", Find(kMixtralExpertNames, name)};
  }
  return {family.experts == Experts::kGemma4 ? "" : "mlp.", Find(kExpertNames, name)};
}

}  // namespace annulus
