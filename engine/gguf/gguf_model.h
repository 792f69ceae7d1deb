#ifndef ANNULUS_ENGINE_GGUF_GGUF_MODEL_H_
#define ANNULUS_ENGINE_GGUF_GGUF_MODEL_H_

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/gguf/gguf_tensors.h"
#include "engine/gguf/gguf_tokenizer.h"
#include "engine/model/files/tensor_source.h"
#include "engine/model/model_config.h"
#include "kernels/base/dtype.h"

namespace annulus {

// A model in a GGUF file, converted to what the rest of the engine reads.
struct GgufModel {
  ModelConfig config;
  std::string config_json;                // the text that `config` was parsed from
  std::unique_ptr<TensorSource> tensors;  // owns the open file
  GgufTokenizerFiles tokenizer;
  // kBF16 if quantized matrices are widened. Absent: serve `tensors` as they are.
  std::optional<DType> weights_dtype;
  std::map<std::string, int> widened;  // see GgufTensors::widened
};

// The GGUF file that `model` refers to: itself if it begins with GGUF's magic number, or the one in
// that directory if it has no config.json. Absent: `model` is not GGUF. Errors as for FindGgufFile.
absl::StatusOr<std::optional<std::string>> FindGgufModel(const std::string& model);

// Opens the file and reads everything except the weights. `codes`: how to represent quantized
// matrices. Returns the errors of GgufFile::Open, FindGgufFamily, GgufConfigJson, ParseModelConfig,
// GgufTensors::Create and MakeGgufTokenizer.
absl::StatusOr<GgufModel> OpenGgufModel(const std::string& path, GgufTensors::Codes codes);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_MODEL_H_
