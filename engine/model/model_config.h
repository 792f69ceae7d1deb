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

namespace annulus {

// What may differ from one layer to the next.
struct LayerConfig {
  int32_t window = 0;  // 0: full attention; w: the row at i attends j with i - w < j <= i
};

// One decoder as data. There is one layer graph, and a family is a set of values here:
//   x = embedding[id]
//   per layer: x += output(attention(rope(query(norm(x))), rope(key(..)), value(..)))
//              x += down(silu(gate(norm(x))) * up(norm(x)))
//   logits = head(norm(x))
// Values from ParseModelConfig lie in the ranges below, so products of two of them fit int64_t.
struct ModelConfig {
  std::string architecture;           // "LlamaForCausalLM"
  std::string model_type;             // "llama"
  int32_t vocabulary = 0;             // 1..2^24
  int32_t hidden_size = 0;            // 1..65536
  int32_t intermediate_size = 0;      // 1..2^20
  std::vector<LayerConfig> layers;    // 1..1024 of them
  int32_t heads = 0;                  // 1..1024, a multiple of kv_heads
  int32_t kv_heads = 0;               // >= 1
  int32_t head_dim = 0;               // 2..512, even
  float rms_norm_eps = 1e-6f;         // (0, 1]
  RopeConfig rope;                    // one setting for all layers
  bool attention_bias = false;        // query, key, value and output projections have a bias
  bool mlp_bias = false;              // gate, up and down projections have a bias
  bool tie_word_embeddings = false;   // the head is the embedding
  int64_t max_context = 0;            // trained length in tokens, 1..2^31-1
  std::optional<int32_t> bos_id;      // beginning of text, below vocabulary
  std::vector<int32_t> eos_ids;       // end of text, each below vocabulary; may be empty
  std::optional<DType> stored_dtype;  // what config.json says of the weights; the files decide
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

// The architectures that ParseModelConfig accepts, for messages and help.
std::vector<std::string> SupportedArchitectures();

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_MODEL_CONFIG_H_
