#ifndef ANNULUS_ENGINE_GGUF_GGUF_MODEL_H_
#define ANNULUS_ENGINE_GGUF_GGUF_MODEL_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/gguf/gguf_tensors.h"
#include "engine/gguf/gguf_tokenizer.h"
#include "engine/model/model_config.h"
#include "engine/model/tensor_source.h"
#include "kernels/base/dtype.h"

namespace annulus {

// A model in a GGUF file, in the forms that everything else reads.
struct GgufModel {
  ModelConfig config;
  std::string config_json;                // that says the same
  std::unique_ptr<TensorSource> tensors;  // owns the open file
  GgufTokenizerFiles tokenizer;
  // kBF16 where matrices are quantized and widened. Absent: `tensors` are to be served as they are.
  std::optional<DType> weights_dtype;
};

// The GGUF file that `model` means: itself if it begins with GGUF's magic number, or the one in
// that directory if it has no config.json. Absent: `model` is no GGUF model. Errors as
// FindGgufFile.
absl::StatusOr<std::optional<std::string>> FindGgufModel(const std::string& model);

// Opens the file and reads all but the weights. `codes`: what becomes of quantized matrices. Errors
// as those of the parts (GgufFile::Open, FindGgufFamily, GgufConfigJson, ParseModelConfig,
// GgufTensors::Create, MakeGgufTokenizer).
absl::StatusOr<GgufModel> OpenGgufModel(const std::string& path, GgufTensors::Codes codes);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_MODEL_H_
