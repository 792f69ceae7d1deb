#ifndef ANNULUS_ENGINE_MODEL_FAMILIES_H_
#define ANNULUS_ENGINE_MODEL_FAMILIES_H_

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/json_fields.h"
#include "engine/model/model_config.h"

namespace annulus {

// How config.json says which layers attend a sliding window. All but kUniform obey a `layer_types`
// list where there is one.
enum class WindowRule : uint8_t {
  kListed,       // without a list every layer is full
  kUniform,      // sliding_window holds for all layers
  kAlternating,  // layers 0, 2, 4, .. slide
  kPattern,      // all slide but every sliding_window_pattern-th
  kFromLayer,    // those from max_window_layers on
  kWithoutRope,  // those without rotary embedding
};

// Which projections have a bias.
enum class BiasRule : uint8_t {
  kNone,
  kAttention,     // attention_bias: query, key, value and output
  kAttentionMlp,  // the same, and mlp_bias: gate, up and down
  kQueryKeyValue,
};

// How config.json describes a mixture of experts.
enum class ExpertsRule : uint8_t { kNone, kMixtral, kQwen, kGptOss };

// How config.json describes rotary embedding, where not as Llama.
enum class RopeRule : uint8_t {
  kOne,
  kPhi3,      // "su" and "yarn" mean longrope; original_max_position_embeddings outside
  kPerLayer,  // one setting for full and one for sliding layers
  kNoLayers,  // no_rope_layers, no_rope_layer_interval
};

// What one architecture's config.json means where it differs from Llama's. This table is all that
// there is of a family; the rest are values in ModelConfig.
struct Family {
  absl::string_view architecture;
  absl::string_view model_type;

  // Defaults of Transformers for keys that are absent.
  int64_t vocabulary = 0;  // 0: the key must be there
  int64_t heads = 0;       // 0: the key must be there
  int64_t context = 2048;
  int64_t original_context = 0;  // 0: none of its own
  int32_t kv_heads = 0;          // 0: as many as heads
  int32_t head_dim = 0;          // 0: hidden_size / heads
  double theta = 10000;
  double epsilon = 1e-6;
  int64_t window = 0;  // 0: none
  bool attention_bias = false;
  bool tied = false;

  BiasRule biases = BiasRule::kNone;
  WindowRule windows = WindowRule::kListed;
  bool window_switch = false;  // sliding_window counts only with use_sliding_window
  RopeRule rope = RopeRule::kOne;
  const char* rope_default = nullptr;  // JSON of an absent rope setting
  ExpertsRule experts = ExpertsRule::kNone;
  TensorLayout tensors = {};
  QkNorm qk_norm = QkNorm::kNone;
  bool pre_norms = true;
  bool post_norms = false;
  bool gemma = false;     // scaled embeddings, 1 + w norms, query_pre_attn_scalar, soft caps,
                          // hidden_activation
  double score_cap = 0;   // gemma: default of attn_logit_softcapping
  double logits_cap = 0;  // gemma: default of final_logit_softcapping
  bool sinks = false;
};

// All families, for messages and loops.
std::span<const Family> Families();

// What `architectures`, or else `model_type`, names.
struct FoundFamily {
  absl::string_view architecture;  // as it is named
  const Family* family;
  bool inside = false;  // its fields are those of `text_config`: the text half of a larger model
};

// Goes by `architectures` if it has one name, else by `model_type`; several names must have that
// type's own among them. UNIMPLEMENTED for an unknown name, with all supported ones, and the one
// that is kin to it if there is one. INVALID_ARGUMENT if neither key says anything, or the first is
// not a list of names.
absl::StatusOr<FoundFamily> FindFamily(const JsonFields& fields);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FAMILIES_H_
