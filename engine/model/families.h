#ifndef ANNULUS_ENGINE_MODEL_FAMILIES_H_
#define ANNULUS_ENGINE_MODEL_FAMILIES_H_

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/json_fields.h"
#include "engine/model/model_config.h"

namespace annulus {

// How config.json says which layers attend a sliding window. All rules except kUniform follow a
// `layer_types` list if there is one.
enum class WindowRule : uint8_t {
  kListed,       // without a list every layer attends everything
  kUniform,      // sliding_window applies to all layers
  kAlternating,  // layers 0, 2, 4, .. slide
  kPattern,      // all layers slide except every sliding_window_pattern-th
  kFromLayer,    // layers from max_window_layers on slide
  kBeforeLayer,  // layers 0, 2, 4, .. before max_window_layers slide
  kWithoutRope,  // layers without rotary embedding slide
  // None slides; layer_types must be there, and must say "attention" or "full_attention" of every
  // layer: the family has layers of other kinds, which are not served.
  kAttentionOnly,
};

// Which projections have a bias.
enum class BiasRule : uint8_t {
  kNone,
  kAttention,     // attention_bias: query, key, value and output
  kAttentionMlp,  // the same, and mlp_bias: gate, up and down
  kQueryKeyValue,
  kSwitched,        // qkv_bias: query, key and value
  kSwitchedUse,     // use_qkv_bias: likewise
  kSeparateOutput,  // attention_bias: query, key and value; attention_out_bias: output; and
                    // mlp_bias
  kEverywhere,      // use_bias: all of them
};

// How config.json describes a mixture of experts.
enum class ExpertsRule : uint8_t {
  kNone,
  kMixtral,
  kQwen,
  kQwen2,    // like kQwen, and a shared block with a gate
  kQwen3Vl,  // like kQwen, always normalised
  kGlm4,     // sigmoid scores; a shared block; layers without experts first
  kOlmoe,
  kGptOss,
  kMiniMax,     // sigmoid scores
  kGemma4,      // enable_moe_block; beside the block
  kSharedOnly,  // num_local_experts must be 0; the block has shared_intermediate_size
};

// How config.json describes rotary embedding, if it differs from Llama.
enum class RopeRule : uint8_t {
  kOne,
  kPhi3,         // "su" and "yarn" mean longrope; original_max_position_embeddings is at top level
  kPerLayer,     // one setting for full and one for sliding layers
  kScaledFull,   // the same, but of an older file's one setting sliding layers take the theta alone
  kNoLayers,     // no_rope_layers, no_rope_layer_interval
  kSlidingOnly,  // if sliding_window is set, layers that do not slide have no rope
  kNeverFull,    // layers that do not slide have no rope; sliding_window must not be null
  kNamed,        // no rope unless position_embedding_type is "rope"
  kMrope,        // "mrope" means the default: the three positions of a text's token are the same
  kNtkAlpha,     // "dynamic" with `alpha` means a theta that grows by it once and for all
  kRotaryDim,    // rotary_dim rows of a head are rotated, without partial_rotary_factor
  kGrowingQueries,  // llama_4_scaling_beta: queries are scaled by a factor that grows with their
                    // position
};

// How one architecture's config.json differs from Llama's. This table is everything that is
// specific to a family; the rest is values in ModelConfig.
struct Family {
  absl::string_view architecture;
  absl::string_view model_type;

  // Defaults in Transformers for absent keys.
  int64_t vocabulary = 0;  // 0: the key is required
  int64_t heads = 0;       // 0: the key is required
  int64_t context = 2048;
  int64_t original_context = 0;  // 0: none
  int32_t kv_heads = 0;          // 0: equal to heads
  int32_t head_dim = 0;          // 0: hidden_size / heads
  double theta = 10000;
  NormRule norm = {};
  const char* epsilon = "rms_norm_eps";  // the key
  int64_t window = 0;                    // 0: none
  bool attention_bias = false;
  bool tied = false;

  BiasRule biases = BiasRule::kNone;
  WindowRule windows = WindowRule::kListed;
  int64_t window_pattern = 6;  // default of sliding_window_pattern
  int64_t window_start = 28;   // default of max_window_layers
  bool window_switch = false;  // sliding_window applies only if use_sliding_window is set
  RopeRule rope = RopeRule::kOne;
  const char* rope_default = nullptr;  // JSON used if the rope setting is absent
  double partial_rotary = 0;  // default of partial_rotary_factor; 0: the key must be absent or 1
  ExpertsRule experts = ExpertsRule::kNone;
  FamilyTraits traits = {};
  bool gemma = false;       // scaled embeddings, 1 + w norms, query_pre_attn_scalar, soft caps,
                            // hidden_activation
  bool gemma4 = false;      // of these, scaled embeddings, the cap of logits and hidden_activation;
                            // see ParseGemma4
  bool gemma3n = false;     // likewise; see ParseGemma3n
  double score_scalar = 0;  // gemma: default of query_pre_attn_scalar; 0: not read, scores are
                            // scaled as in Llama, and final_logit_softcapping is refused
  double score_cap = 0;     // gemma: default of attn_logit_softcapping; 0: the key is refused
  double logits_cap = 0;    // gemma: default of final_logit_softcapping
  // Keys that must be true if queries and keys are normed, and if attention and the block read the
  // same; null: the traits say it.
  const char* head_norm_switch = nullptr;
  const char* parallel_switch = nullptr;
  bool plain_block = false;  // HasGate
  double logit_scale = 0;    // default of logit_scale, a factor of logits; 0: the key is not read
  bool multipliers = false;  // embedding_multiplier, residual_multiplier, attention_multiplier and
                             // logits_scaling

  // Texts of tokens with which the family's chats, or those of models made from it, end a turn; and
  // of those that end a message inside a turn, which never end an answer.
  std::span<const absl::string_view> turn_ends;
  std::span<const absl::string_view> message_ends = {};
};

// The family with this ModelConfig::model_type.
const Family& FamilyOf(absl::string_view model_type);

// All families, for messages and loops.
std::span<const Family> Families();

// The family that config.json names.
struct FoundFamily {
  absl::string_view architecture;  // as spelled in config.json
  const Family* family;
  bool inside = false;  // the fields are in `text_config`: this is the text half of a larger model
  // Model types that `text_config` may name, if `inside`; "": none.
  std::span<const absl::string_view> text_types = {};
};

// Uses `architectures` if it has exactly one name and that is known, otherwise `model_type`; if
// there are names, that type's architecture must be among them. Of a larger model, `text_config`
// says which text half it has. UNIMPLEMENTED for an unknown type, with all supported ones; and of
// well-known types (RefusedTypes) with what such models have that is not served, and the nearest
// served type. INVALID_ARGUMENT if both keys are absent or empty, or the first is not a list of
// names.
absl::StatusOr<FoundFamily> FindFamily(const JsonFields& fields);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FAMILIES_H_
