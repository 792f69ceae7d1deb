#ifndef ANNULUS_ENGINE_MODEL_FAMILY_NAMES_H_
#define ANNULUS_ENGINE_MODEL_FAMILY_NAMES_H_

#include <array>

#include "absl/strings/string_view.h"
#include "engine/model/model_config.h"

// Names that rows of the families' table share. Only family_table.cc includes this.

namespace annulus {

// FamilyTraits::norms, in the order of LayerNorm; the others norm inputs alone.
using NormNames = NormTable<absl::string_view>;
inline constexpr NormNames kInputAndHeadNorms = {{"input_layernorm", "post_attention_layernorm", "",
                                                  "", "self_attn.q_norm", "self_attn.k_norm"}};
inline constexpr NormNames kInputAndOutputNorms = {{"input_layernorm", "pre_feedforward_layernorm",
                                                    "post_attention_layernorm",
                                                    "post_feedforward_layernorm"}};
inline constexpr NormNames kGemma3Norms = {
    {"input_layernorm", "pre_feedforward_layernorm", "post_attention_layernorm",
     "post_feedforward_layernorm", "self_attn.q_norm", "self_attn.k_norm"}};
inline constexpr NormNames kGemma4Norms = {
    {"input_layernorm", "pre_feedforward_layernorm", "post_attention_layernorm",
     "post_feedforward_layernorm", "self_attn.q_norm", "self_attn.k_norm", "", "router.scale",
     "pre_feedforward_layernorm_2", "post_feedforward_layernorm_1", "post_feedforward_layernorm_2",
     "post_per_layer_input_norm"}};
inline constexpr NormNames kGemma3nNorms = {
    {"input_layernorm", "pre_feedforward_layernorm", "post_attention_layernorm",
     "post_feedforward_layernorm", "self_attn.q_norm", "self_attn.k_norm", "", "", "", "", "",
     "post_per_layer_input_norm", "altup.router_norm", "laurel.post_laurel_norm"}};
inline constexpr NormNames kGlm4Norms = {{"input_layernorm", "post_attention_layernorm",
                                          "post_self_attn_layernorm", "post_mlp_layernorm"}};
inline constexpr NormNames kHunyuanNorms = {{"input_layernorm", "post_attention_layernorm", "", "",
                                             "self_attn.query_layernorm",
                                             "self_attn.key_layernorm"}};
// Of blocks that read what attention reads.
inline constexpr NormNames kOneInputNorm = {{"input_layernorm"}};
inline constexpr NormNames kOneInputAndHeadNorms = {
    {"input_layernorm", "", "", "", "self_attn.q_norm", "self_attn.k_norm"}};
inline constexpr NormNames kStableLmNorms = {{"input_layernorm", "post_attention_layernorm", "", "",
                                              "self_attn.q_layernorm", "self_attn.k_layernorm"}};
inline constexpr NormNames kOutputAndHeadNorms = {{"", "", "post_attention_layernorm",
                                                   "post_feedforward_layernorm", "self_attn.q_norm",
                                                   "self_attn.k_norm"}};

// Family::turn_ends. Models of many families are trained on chats in ChatML format.
inline constexpr std::array<absl::string_view, 1> kChatMl = {"<|im_end|>"};
inline constexpr std::array<absl::string_view, 3> kLlamaTurnEnds = {"<|eot_id|>", "<|eom_id|>",
                                                                    "<|im_end|>"};
inline constexpr std::array<absl::string_view, 2> kPhi3TurnEnds = {"<|end|>", "<|im_end|>"};
inline constexpr std::array<absl::string_view, 2> kGemmaTurnEnds = {"<end_of_turn>", "<|im_end|>"};
// Behind its calls a model opens the block of what they gave.
inline constexpr std::array<absl::string_view, 3> kGemma4TurnEnds = {"<turn|>", "<|tool_response>",
                                                                     "<|im_end|>"};
inline constexpr std::array<absl::string_view, 2> kGptOssTurnEnds = {"<|return|>", "<|call|>"};
inline constexpr std::array<absl::string_view, 1> kGptOssMessageEnds = {"<|end|>"};
inline constexpr std::array<absl::string_view, 2> kGraniteTurnEnds = {"<|end_of_text|>",
                                                                      "<|im_end|>"};
inline constexpr std::array<absl::string_view, 2> kExaoneTurnEnds = {"[|endofturn|]", "<|im_end|>"};
inline constexpr std::array<absl::string_view, 2> kSeedTurnEnds = {"<seed:eos>", "<|im_end|>"};
inline constexpr std::array<absl::string_view, 2> kMiniMaxTurnEnds = {"[e~[", "<|im_end|>"};
inline constexpr std::array<absl::string_view, 2> kCohereTurnEnds = {"<|END_OF_TURN_TOKEN|>",
                                                                     "<|im_end|>"};
inline constexpr std::array<absl::string_view, 3> kGlmTurnEnds = {"<|user|>", "<|observation|>",
                                                                  "<|im_end|>"};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FAMILY_NAMES_H_
