#include "engine/model/family_table.h"

namespace annulus {
namespace {

constexpr absl::string_view kLinear = "layers of linear attention";
constexpr absl::string_view kStateSpace = "state-space layers";
constexpr absl::string_view kLatent = "compressed keys and values (latent attention)";
constexpr absl::string_view kLayerNorm = "norms by mean and variance";
constexpr absl::string_view kShort = "layers of short convolutions";
constexpr absl::string_view kRecurrent = "recurrent layers";
constexpr absl::string_view kOneEncoder =
    "images and sound that its decoder takes in without a tower";
constexpr absl::string_view kDiffusion = "answers that are made by diffusion";
constexpr absl::string_view kBothWays = "prompts that attend both ways";
constexpr absl::string_view kChunked = "attention in chunks";
constexpr absl::string_view kCross = "cross-attention to images";
constexpr absl::string_view kOtherExperts = "experts of another layout";
constexpr absl::string_view kSpeech = "audio among its inputs";
constexpr absl::string_view kEncoderDecoder = "an encoder before its decoder";

// By model_type. Names that only look alike are no kin.
constexpr RefusedType kRefusedTypes[] = {
    {"bailing_hybrid", kLinear, ""},
    {"bamba", kStateSpace, ""},
    {"bart", kEncoderDecoder, ""},
    {"bloom", kLayerNorm, ""},
    {"codegen", kLayerNorm, ""},
    {"cohere2_moe", kOtherExperts, "cohere2"},
    {"dbrx", kLayerNorm, ""},
    {"deepseek_v2", kLatent, ""},
    {"deepseek_v3", kLatent, ""},
    {"deepseek_v32", kLatent, ""},
    {"diffusion_gemma", kDiffusion, "gemma4"},
    {"ernie4_5_moe", kOtherExperts, "ernie4_5"},
    {"falcon", kLayerNorm, ""},
    {"falcon_h1", kStateSpace, ""},
    {"falcon_mamba", kStateSpace, ""},
    {"gemma4_unified", kOneEncoder, "gemma4"},
    {"gemma4_unified_text", kOneEncoder, "gemma4"},
    {"glm4_moe_lite", kLatent, "glm4_moe"},
    {"glm_moe_dsa", kLatent, "glm4_moe"},
    {"gpt2", kLayerNorm, ""},
    {"gpt_bigcode", kLayerNorm, ""},
    {"gpt_neo", kLayerNorm, ""},
    {"gpt_neox", kLayerNorm, ""},
    {"gptj", kLayerNorm, ""},
    {"granitemoe", kOtherExperts, "granite"},
    {"granitemoeshared", kOtherExperts, "granite"},
    {"hunyuan_v1_moe", kOtherExperts, "hunyuan_v1_dense"},
    {"jamba", kStateSpace, ""},
    {"kimi_k2", kLatent, ""},
    {"kimi_k25", kLatent, ""},
    {"kimi_linear", kLinear, ""},
    {"lfm2", kShort, ""},
    {"lfm2_moe", kShort, ""},
    {"lfm2_vl", kShort, ""},
    {"llama4", kChunked, "llama"},
    {"llama4_text", kChunked, "llama"},
    {"longcat_flash", kLatent, ""},
    {"mamba", kStateSpace, ""},
    {"mamba2", kStateSpace, ""},
    {"marian", kEncoderDecoder, ""},
    {"mbart", kEncoderDecoder, ""},
    {"minicpm3", kLatent, ""},
    {"minimax", kLinear, "minimax_m2"},
    {"mistral4", kLatent, "mistral3"},
    {"mllama", kCross, "llama"},
    {"mpt", kLayerNorm, ""},
    {"nemotron", kLayerNorm, ""},
    {"nemotron_h", kStateSpace, ""},
    {"olmo", kLayerNorm, "olmo2"},
    {"olmo_hybrid", kLinear, "olmo3"},
    {"opt", kLayerNorm, ""},
    {"paligemma", kBothWays, "gemma2"},
    {"pegasus", kEncoderDecoder, ""},
    {"persimmon", kLayerNorm, ""},
    {"phi", kLayerNorm, "phi3"},
    {"phimoe", kLayerNorm, "phi3"},
    {"qwen2_5_omni", kSpeech, "qwen2_5_vl"},
    {"qwen2_5_omni_thinker", kSpeech, "qwen2_5_vl"},
    {"qwen3_5", kLinear, "qwen3"},
    {"qwen3_5_moe", kLinear, "qwen3_moe"},
    {"qwen3_5_moe_text", kLinear, "qwen3_moe"},
    {"qwen3_5_text", kLinear, "qwen3"},
    {"qwen3_next", kLinear, "qwen3_moe"},
    {"qwen3_omni_moe", kSpeech, "qwen3_vl"},
    {"qwen3_omni_moe_thinker", kSpeech, "qwen3_vl"},
    {"recurrent_gemma", kRecurrent, "gemma2"},
    {"rwkv", kStateSpace, ""},
    {"t5", kEncoderDecoder, ""},
    {"whisper", kEncoderDecoder, ""},
    {"xlstm", kStateSpace, ""},
    {"youtu", kLatent, ""},
    {"zamba", kStateSpace, ""},
    {"zamba2", kStateSpace, ""},
};

}  // namespace

std::span<const RefusedType> RefusedTypes() { return kRefusedTypes; }

}  // namespace annulus
