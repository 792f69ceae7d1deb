#ifndef ANNULUS_TESTS_ENGINE_GGUF_GGUF_CHECKPOINT_H_
#define ANNULUS_TESTS_ENGINE_GGUF_GGUF_CHECKPOINT_H_

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/model/files/tensor_source.h"
#include "engine/model/model_config.h"
#include "tests/engine/gguf/gguf_writer.h"
#include "tests/support/test_data.h"

namespace annulus::testing {

// A golden checkpoint and the GGUF architecture that it would be converted to.
struct GgufCase {
  const char* golden;
  const char* architecture;
  bool interleaved = false;
  bool gemma = false;

  std::string directory() const { return TestFile(std::string("golden/") + golden).string(); }
};

inline std::ostream& operator<<(std::ostream& out, const GgufCase& one) {
  return out << one.golden;
}

// Of a test with this parameter.
inline std::string TestName(const GgufCase& one) {
  return absl::StrReplaceAll(absl::StrCat(one.golden, "_as_", one.architecture), {{"-", "_"}});
}

inline constexpr GgufCase kGgufCases[] = {
    {"llama_mha", "llama", true},
    {"llama_gqa_bf16", "llama", true},
    {"llama_windows", "llama", true},
    {"qwen2", "qwen2"},
    {"qwen3", "qwen3"},
    {"qwen2_moe", "qwen2moe"},
    {"qwen3_moe", "qwen3moe"},
    {"qwen3_moe", "qwen3vlmoe"},
    {"phi3", "phi3"},
    {"phi3_longrope", "phi3"},
    {"gemma2", "gemma2", false, true},
    {"gemma3", "gemma3", false, true},
    {"smollm3", "smollm3", true},
    {"olmo2", "olmo2"},
    {"mixtral", "llama", true},
    {"gpt_oss", "gpt-oss"},
    {"qwen2", "qwen2vl"},
    {"qwen3", "qwen3vl"},
    {"ministral3", "mistral3", true},
    {"llama_mha", "mistral3", true},
    {"olmo3", "olmo2"},
    {"exaone4", "exaone4"},
    {"exaone4_full", "exaone4"},
    {"seed_oss", "seed_oss"},
    {"granite", "granite", true},
    {"gemma", "gemma", false, true},
    {"olmoe", "olmoe"},
    {"hunyuan", "hunyuan-dense"},
    {"ernie4_5", "ernie4_5"},
    {"glm4", "glm4"},
    {"glm4_moe", "glm4moe"},
    {"glm4_moe_air", "glm4moe"},
    {"cohere", "command-r"},
    {"cohere_head_norms", "command-r"},
    {"cohere2", "cohere2"},
    {"stablelm", "stablelm"},
    {"stablelm_parallel", "stablelm"},
    {"starcoder2", "starcoder2"},
    {"starcoder2_plain", "starcoder2"},
    {"minimax_m2", "minimax-m2"},
    {"minimax_m2_whole", "minimax-m2"},
};

// Writes what a converter says of the model in the metadata.
void WriteGgufMetadata(const GgufCase& of, const ModelConfig& config, GgufWriter& writer);

// Writes the checkpoint's tensors as a converter names and orders them, as float32; MXFP4 experts
// as MXFP4.
void WriteGgufTensors(const GgufCase& of, const ModelConfig& config, const TensorSource& source,
                      GgufWriter& writer);

// Writes a byte-level vocabulary of so many invented tokens.
void WriteGgufTokens(int32_t vocabulary, GgufWriter& writer);

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_GGUF_GGUF_CHECKPOINT_H_
