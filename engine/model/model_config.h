#ifndef ANNULUS_ENGINE_MODEL_MODEL_CONFIG_H_
#define ANNULUS_ENGINE_MODEL_MODEL_CONFIG_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/attention_shape.h"
#include "engine/model/rope.h"
#include "kernels/base/dtype.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/experts.h"
#include "kernels/ops/norm_rule.h"

namespace annulus {

inline constexpr int32_t kNoRope = -1;
inline constexpr int32_t kOwnKeys = -1;

// Properties that may differ between layers. Those without a window have one shape of attention.
struct LayerConfig {
  int32_t window = 0;            // 0: full attention; w: row i attends j with i - w < j <= i
  int32_t rope = 0;              // index into ModelConfig::ropes, or kNoRope
  int32_t query_rope = kNoRope;  // the same for queries alone; kNoRope: that of keys
  bool experts = false;          // a mixture of experts follows attention
  AttentionShape attention = {};
  // The layer before it, of the same shape and window, whose keys and values it attends; kOwnKeys:
  // it has its own.
  int32_t keys_of = kOwnKeys;
  bool values_are_keys = false;   // values are projected by the matrix of keys; they are normed
  int32_t intermediate_size = 0;  // of the block that every row meets; 0: see BlockSize
  // Of the block: what its gate gives is cut off at so many deviations above its mean
  // (CutOffParams).
  std::optional<float> cutoff = std::nullopt;

  bool has_own_keys() const { return keys_of == kOwnKeys; }
};

// Where a layer may norm.
enum class LayerNorm : uint8_t {
  kAttentionInput,
  kBlockInput,       // of the gated block, or of the router and the experts
  kAttentionOutput,  // before it is added to the residual
  kBlockOutput,      // likewise
  kQuery,            // before rotation, or after it: see FamilyTraits
  kKey,              // likewise
  kValue,            // each head, without a weight: FamilyTraits::norms_values
  // Of experts that stand beside a block with norms of its own, which are those above.
  kRouterInput,  // the weight is multiplied by 1 / sqrt(hidden_size)
  kExpertsInput,
  kSharedOutput,   // of the block, before what experts give is added
  kExpertsOutput,  // of the sum of the chosen experts, before it is added to that
  kLayerInput,     // of what a layer's own input adds to the residual
  kStreamRouter,   // of StreamsConfig; the weight is multiplied by 1 / hidden_size
  kLaurel,         // of what ModelConfig::laurel_rank adds
};
inline constexpr size_t kLayerNorms = static_cast<size_t>(LayerNorm::kLaurel) + 1;

// Something for each of them.
template <class Value>
struct NormTable {
  std::array<Value, kLayerNorms> values = {};  // in the order of LayerNorm

  constexpr Value& operator[](LayerNorm norm) { return values[static_cast<size_t>(norm)]; }
  constexpr const Value& operator[](LayerNorm norm) const {
    return values[static_cast<size_t>(norm)];
  }
};

// A mixture of experts: for every row, a router chooses `routing.chosen` of `count` gated blocks.
struct ExpertsConfig {
  int32_t count = 0;                                        // 0: no experts; at most kMostExperts
  RoutingRule routing = {.chosen = 0, .normalised = true};  // chosen: 1..count, at most 64
  int32_t intermediate_size = 0;                            // of each expert
  bool biases = false;                                      // router and experts have biases
  // Width of a gated block that every row meets beside those that it chose; 0: there is none.
  int32_t shared_size = 0;
  bool choice_bias = false;  // RouteParams::bias
  bool factors = false;      // RouteParams::factors
  bool shared_gate = false;  // its output is multiplied by the sigmoid of a projection of the input
};

// Residuals that a row has at once (AltUp, kernels/ops/streams.h). Layers predict all of them,
// compute one and correct all by what came out.
struct StreamsConfig {
  int32_t count = 0;    // 0: a row has one residual, as usual; otherwise at most kMostStreams
  int32_t active = 0;   // the one that layers compute
  bool scaled = false;  // a layer's own input meets the corrected stream times a learned vector

  constexpr bool used() const { return count > 0; }
};

// How the checkpoint names and groups a layer's tensors.
enum class ExpertTensors : uint8_t {
  kSeparate,  // mlp.gate, mlp.experts.N.{gate,up,down}_proj
  kMixtral,   // block_sparse_moe.gate, block_sparse_moe.experts.N.{w1,w3,w2}
  kStacked,   // mlp.router, mlp.experts.{gate_up,down}_proj of all experts, [in, out], gate and up
              // interleaved
  kGemma4,    // router.{proj, per_expert_scale}, experts.gate_up_proj of all experts, gate before
              // up, and experts.down_proj, both [out, in]
  kHalves,    // mlp.gate, mlp.experts.{gate_up,down}_proj like kGemma4, or both [in, out]
};
struct TensorLayout {
  bool fused_heads = false;  // qkv_proj holds query, key and value, one after the other
  bool fused_block = false;  // `gate_up` holds gate and up, one after the other
  absl::string_view block = "mlp.";
  absl::string_view gate_up = "gate_up_proj";  // also a plain block's one projection (HasGate)
  absl::string_view down = "down_proj";
  // Rope turns neighbouring rows of a head, not rows that are half of the rotated ones apart.
  bool rope_pairs_neighbours = false;
  // Projections may have low-rank adapters, which only inputs other than text use. They are left
  // out.
  bool adapters = false;
  ExpertTensors experts = ExpertTensors::kSeparate;
  absl::string_view shared = "";  // the block beside the experts; its gate has "_gate" behind
};

// How queries and keys are normed, in families that do.
enum class HeadNorms : uint8_t {
  kEach,        // head by head, with one weight of [k_dim]
  kOwnWeights,  // head by head, each with its own of [heads, k_dim] or [kv_heads, k_dim]
  kTogether,    // all heads of a row, with one of [heads * k_dim] or [kv_heads * k_dim]
};

// What all models of a family have in common, so that config.json does not say it. A row of the
// families' table sets it, and LayerGraphs and the list of tensors follow it.
struct FamilyTraits {
  // How a layer's tensors name the norms that it has, without ".weight"; "": there is none.
  NormTable<absl::string_view> norms = {{"input_layernorm", "post_attention_layernorm"}};
  HeadNorms head_norms = HeadNorms::kEach;
  bool norm_biases = false;  // of all norms but those of queries and keys
  // The block reads what attention reads, and both are added to the residual. Needs a norm of
  // attention's input, and none of the block's or of either's output.
  bool parallel_blocks = false;
  bool norms_after_rope = false;  // those of queries and keys
  bool norms_values = false;      // values are normed head by head, without a weight
  bool sinks = false;             // every head has a learned sink
  bool scaled_layers = false;     // a layer ends by multiplying the residual by a learned number
  TensorLayout tensors = {};
};

// A decoder as data. There is one layer graph, and a family is a set of values here:
//   x = embedding[id] * embedding_scale
//   per layer: x += post(output(attention(rope(norm(query(pre(x)))), rope(norm(key(..))),
//   value(..))))
//              x += post(down(activation(gate(pre(x)), up(pre(x)))))     or a mixture of such
//              blocks
//              (of parallel blocks the pre(x) of attention)
//              x += post(output(activation(gate(x)) * input)), if layers have inputs
//              (with a laurel_rank, after attention, x = (x + pre(x before attention) +
//              post(right(left(pre(x before attention))))) / sqrt(2))
//   logits = soft_cap(head(norm(x)))
//   input of a layer = (norm(projection(embedding)) + second embedding[id] * sqrt(size)) / sqrt(2)
// where pre, post and the norms of query and key may be absent. ParseModelConfig returns values
// within the ranges below, so products of two of them fit int64_t.
struct ModelConfig {
  std::string architecture;         // "LlamaForCausalLM", as config.json names it
  std::string model_type;           // "llama"
  int32_t vocabulary = 0;           // 1..2^24
  int32_t hidden_size = 0;          // 1..65536
  int32_t intermediate_size = 0;    // 1..2^20; of layers without experts
  std::vector<LayerConfig> layers;  // 1..1024 layers
  NormRule norm;                    // epsilon is in (0, 1]
  std::vector<RopeConfig> ropes;    // settings that layers refer to by index; may be empty

  float attention_scale = 0;       // scale of scores; 0: 1 / sqrt(k_dim)
  float attention_soft_cap = 0;    // limit of scores; 0: none
  float logits_soft_cap = 0;       // limit of logits; 0: none
  float logits_scale = 1;          // factor of logits, before the cap
  float embedding_scale = 1;       // factor of embeddings
  bool scaled_embeddings = false;  // multiplied by sqrt(hidden_size), rounded to the dtype that the
                                   // checkpoint stores embeddings in
  bool unit_offset_norms = false;  // norms multiply by 1 + weight
  FamilyTraits traits;
  Activation activation = Activation::kSilu;
  float activation_alpha = 0;  // kClampedSwiglu
  float activation_limit = 0;  // kClampedSwiglu
  ExpertsConfig experts;
  // Elements of the input that each layer has of a token, besides the residual; 0: none.
  int32_t layer_input_size = 0;
  // Tokens that have one in the second embedding, only with such inputs; further ones have that of
  // token 0.
  int32_t layer_input_vocabulary = 0;
  StreamsConfig streams;  // only of models whose layers have inputs, norms of all kinds, no experts
  int32_t laurel_rank = 0;  // of the detour around attention (LAuReL); 0: there is none
  // Layers behind the others that files may have, for guessing tokens ahead. They are left out.
  int32_t guessing_layers = 0;

  bool attention_bias = false;       // query, key and value projections have a bias
  bool output_bias = false;          // the output projection has a bias
  bool mlp_bias = false;             // gate, up and down projections have a bias
  bool tie_word_embeddings = false;  // the head equals the embedding
  // Rows and columns per scale of a float8 matrix, if the checkpoint uses blocks
  // (`weight_block_size`).
  int32_t fp8_block_rows = 128;
  int32_t fp8_block_cols = 128;

  int64_t max_context = 0;            // trained length in tokens, 1..2^31-1
  int64_t rope_context = 0;           // the length that an explicit rope setting is made for;
                                      // max_context if there is none
  std::optional<int32_t> bos_id;      // beginning of text, below vocabulary
  std::vector<int32_t> eos_ids;       // end of text, each below vocabulary; may be empty
  std::optional<DType> stored_dtype;  // according to config.json; the files decide
  std::string sha256;                 // of config.json's text, in hexadecimal; empty: none
};

// Parses the text of a Hugging Face config.json. `file_name` is used only in messages. Keys have
// the same defaults as in Transformers. INVALID_ARGUMENT: a key is missing, of the wrong type or
// out of range; names file, key, value and what is allowed. UNIMPLEMENTED: an unsupported
// architecture, activation, rope type or quantization; lists the supported ones.
absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json, absl::string_view file_name);

// Replaces the end-of-text ids by those of a generation_config.json, if it has any.
absl::Status ApplyGenerationConfig(absl::string_view json, absl::string_view file_name,
                                   ModelConfig& config);

// Reads both files from a model directory. generation_config.json may be absent.
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& directory);

// The longest allowed sequence in tokens, if the operator asks for `asked` (0: the trained length).
// More than the trained length is allowed only as far as an explicit rope setting in config.json is
// made for; otherwise INVALID_ARGUMENT with both lengths.
absl::StatusOr<int64_t> ContextLimit(const ModelConfig& config, int64_t asked);

// Width of the gated block that every row meets in this layer, beside experts if it has any. 0:
// there is none.
int32_t BlockSize(const ModelConfig& config, const LayerConfig& layer);

// The last layer that has keys of its own. From it on only rows whose logits are wanted pass: no
// later step attends what the others would give. Requires a layer.
int LastLayerWithKeys(const ModelConfig& config);

// Whether blocks have a gate: down(activation(gate(x), up(x))). Otherwise they are
// down(activation(gate(x))), and their one wide projection is LayerWeights' gate.
bool HasGate(const ModelConfig& config);

// Gives all layers the same shape of attention.
void SetAttention(ModelConfig& config, const AttentionShape& shape);

bool HasOneShape(const ModelConfig& config);

// The shape of layers without a window, which are those that attention policies thin out. Of the
// first layer if all have a window. Requires a layer.
const AttentionShape& WidestAttention(const ModelConfig& config);

// The factor that attention scores of a layer of this shape are multiplied by.
float AttentionScale(const ModelConfig& config, const AttentionShape& shape);

// The architectures that ParseModelConfig accepts, for messages and help.
std::vector<std::string> SupportedArchitectures();

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_MODEL_CONFIG_H_
