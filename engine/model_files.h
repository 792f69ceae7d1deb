#ifndef ANNULUS_ENGINE_MODEL_FILES_H_
#define ANNULUS_ENGINE_MODEL_FILES_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/api/options.h"
#include "engine/gguf/gguf_tensors.h"
#include "engine/model/model_config.h"
#include "engine/model/tensor_source.h"
#include "engine/sampling_defaults.h"
#include "engine/text/template/template_directory.h"
#include "engine/text/tokenizer.h"
#include "kernels/base/dtype.h"
#include "kernels/registry.h"

namespace annulus {

// What a model's files say, all but the numbers of its tensors.
struct ModelFiles {
  ModelConfig config;
  std::unique_ptr<TensorSource> tensors;
  std::unique_ptr<Tokenizer> tokenizer;
  // What weights become unless --weights-dtype says; absent: they stay as they are stored.
  std::optional<DType> weights_dtype;
  std::string architecture;
  std::string description;
  TemplateDirectory templates;
  SamplingDefaults sampling;
  std::optional<double> conversion_error;
  bool frames_documents = true;
};

// Of a GGUF file whose matrices are to become `dtype`: those that have it already stay.
GgufTensors::Codes CodesFor(DType dtype);

// Of the GGUF file that `options` may name: quantized matrices stay as they are, unless another
// dtype was asked for or the kernels, like those of GPUs, lack their types. A file's matrices of
// the dtype asked for stay too.
GgufTensors::Codes CodesOf(const EngineOptions& options, const Backend& backend,
                           const KernelRegistry& kernels);

// Opens what EngineOptions::model names. INVALID_ARGUMENT names an unknown builtin or what a file
// got wrong.
absl::StatusOr<ModelFiles> OpenModelFiles(const std::string& model, GgufTensors::Codes codes);

// The same for a model that is only looked at: also a config.json alone, which says all shapes.
absl::StatusOr<ModelFiles> OpenModelShape(const std::string& model, GgufTensors::Codes codes);

// What all matrices are to become; absent: each stays as it is stored.
std::optional<DType> WantedDType(const EngineOptions& options, const ModelFiles& files);

// The best kernels that `options` allows for the model. INVALID_ARGUMENT for tensors that are not
// as the configuration says or activations that do not fit the weights; FAILED_PRECONDITION says
// what no kernel supports.
absl::StatusOr<const OpTable*> SelectKernels(const EngineOptions& options, const ModelFiles& files,
                                             const Backend& backend, const KernelRegistry& kernels);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FILES_H_
