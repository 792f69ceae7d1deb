#ifndef ANNULUS_ENGINE_MODEL_MODEL_CONFIG_H_
#define ANNULUS_ENGINE_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/rope.h"
#include "kernels/base/dtype.h"
#include "kernels/ops/elementwise.h"

namespace annulus {

// What may differ from one layer to the next.
struct LayerConfig {
  int32_t window = 0;    // 0: full attention; w: the row at i attends j with i - w < j <= i
  int32_t rope = 0;      // index into ModelConfig::ropes, or kNoRope
  bool experts = false;  // the block after attention is a mixture of experts
};
inline constexpr int32_t kNoRope = -1;

// A norm of query and key before they are rotated.
enum class QkNorm : uint8_t {
  kNone,
  kPerHead,  // each head by itself, one weight of [head_dim]
  kWhole,    // all heads together, a weight of [heads * head_dim] or [kv_heads * head_dim]
};

// A mixture of experts: a router chooses `chosen` of `count` gated blocks for every row.
struct ExpertsConfig {
  int32_t count = 0;              // 0: the model has none; else at most 1024
  int32_t chosen = 0;             // 1..count, at most 64
  int32_t intermediate_size = 0;  // of one expert
  bool weights_of_chosen = true;  // softmax over the chosen logits; else over all of them
  bool biases = false;            // router and experts have biases
};

// How the checkpoint names and groups the tensors of a layer.
enum class ExpertTensors : uint8_t {
  kSeparate,  // mlp.gate, mlp.experts.N.{gate,up,down}_proj
  kMixtral,   // block_sparse_moe.gate, block_sparse_moe.experts.N.{w1,w3,w2}
  kStacked,   // mlp.router, mlp.experts.{gate_up,down}_proj of all experts, [in, out], gate and up
              // interleaved
};
struct TensorLayout {
  bool fused = false;  // qkv_proj and gate_up_proj hold several projections, one after the other
  ExpertTensors experts = ExpertTensors::kSeparate;
};

// One decoder as data. There is one layer graph, and a family is a set of values here:
//   x = embedding[id] * embedding_scale
//   per layer: x += post(output(attention(rope(norm(query(pre(x)))), rope(norm(key(..))),
//   value(..))))
//              x += post(down(activation(gate(pre(x)), up(pre(x)))))     or a mixture of such
//              blocks
//   logits = soft_cap(head(norm(x)))
// where pre, post and the norms of query and key may be absent. Values from ParseModelConfig lie in
// the ranges below, so products of two of them fit int64_t.
struct ModelConfig {
  std::string architecture;         // "LlamaForCausalLM", as config.json names it
  std::string model_type;           // "llama"
  int32_t vocabulary = 0;           // 1..2^24
  int32_t hidden_size = 0;          // 1..65536
  int32_t intermediate_size = 0;    // 1..2^20; of layers without experts
  std::vector<LayerConfig> layers;  // 1..1024 of them
  int32_t heads = 0;                // 1..1024, a multiple of kv_heads
  int32_t kv_heads = 0;             // >= 1
  int32_t head_dim = 0;             // 2..512, even
  float rms_norm_eps = 1e-6f;       // (0, 1]
  std::vector<RopeConfig> ropes;    // the settings that layers name by index; may be empty

  float attention_scale = 0;       // of scores; 0: 1 / sqrt(head_dim)
  float attention_soft_cap = 0;    // of scores; 0: none
  float logits_soft_cap = 0;       // 0: none
  bool scaled_embeddings = false;  // by sqrt(hidden_size), rounded to the dtype that the
                                   // checkpoint stores embeddings in
  bool pre_norms = true;           // of what attention and the gated block read
  bool post_norms = false;         // of what they add to the residual stream
  bool unit_offset_norms = false;  // norms multiply by 1 + weight
  bool sinks = false;              // every head has a learned sink
  QkNorm qk_norm = QkNorm::kNone;
  Activation activation = Activation::kSilu;
  float activation_alpha = 0;  // kClampedSwiglu
  float activation_limit = 0;  // kClampedSwiglu
  ExpertsConfig experts;

  bool attention_bias = false;       // query, key and value projections have a bias
  bool output_bias = false;          // the output projection has one
  bool mlp_bias = false;             // gate, up and down projections have a bias
  bool tie_word_embeddings = false;  // the head is the embedding
  TensorLayout tensors;
  // One scale per so many rows and columns of a float8 matrix (`weight_block_size`), where the
  // checkpoint has blocks.
  int32_t fp8_block_rows = 128;
  int32_t fp8_block_cols = 128;

  int64_t max_context = 0;            // trained length in tokens, 1..2^31-1
  int64_t rope_context = 0;           // the length that an explicit rope setting is made for;
                                      // max_context where there is none
  std::optional<int32_t> bos_id;      // beginning of text, below vocabulary
  std::vector<int32_t> eos_ids;       // end of text, each below vocabulary; may be empty
  std::optional<DType> stored_dtype;  // what config.json says of the weights; the files decide
  std::string sha256;  // of the config.json's text, in hexadecimal digits; empty: none
};

// Reads the text of a Hugging Face config.json. `file_name` is only for messages. Anything missing,
// of the wrong type or out of range is INVALID_ARGUMENT: file, key, value given, what is allowed.
// An architecture, activation, rope type or quantization that is not supported is UNIMPLEMENTED and
// lists what is. Keys with a default in Transformers have the same default here.
absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json, absl::string_view file_name);

// Replaces end-of-text ids by those of a generation_config.json, where it has any.
absl::Status ApplyGenerationConfig(absl::string_view json, absl::string_view file_name,
                                   ModelConfig& config);

// Both files of a model directory; generation_config.json may be absent.
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& directory);

// The most tokens of a sequence where `asked` are wanted (0: the trained length). Beyond the
// trained length only as far as an explicit rope setting of config.json is made for; else
// INVALID_ARGUMENT with both lengths. Nothing is stretched silently.
absl::StatusOr<int64_t> ContextLimit(const ModelConfig& config, int64_t asked);

// The factor of attention scores that `config` means.
float AttentionScale(const ModelConfig& config);

// The architectures that ParseModelConfig accepts, for messages and help.
std::vector<std::string> SupportedArchitectures();

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_MODEL_CONFIG_H_
