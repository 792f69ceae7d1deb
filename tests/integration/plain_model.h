#ifndef ANNULUS_TESTS_INTEGRATION_PLAIN_MODEL_H_
#define ANNULUS_TESTS_INTEGRATION_PLAIN_MODEL_H_

#include <string>

#include "tests/support/temp_directory.h"

namespace annulus::testing {

// What --model takes: random weights of a small shape whose tokens are bytes and whose layers all
// see every token, where builtin:recall has a window.
inline std::string PlainModel(const TempDirectory& folder) {
  folder.Write("config.json", R"({"architectures": ["LlamaForCausalLM"],
      "model_type": "llama", "vocab_size": 300, "hidden_size": 128, "intermediate_size": 256,
      "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1,
      "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
      "max_position_embeddings": 65536, "torch_dtype": "float32"})");
  return "random:" + (folder.path() / "config.json").string();
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_INTEGRATION_PLAIN_MODEL_H_
