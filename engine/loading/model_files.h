#ifndef ANNULUS_ENGINE_LOADING_MODEL_FILES_H_
#define ANNULUS_ENGINE_LOADING_MODEL_FILES_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api/options.h"
#include "engine/gguf/gguf_tensors.h"
#include "engine/loading/sampling_defaults.h"
#include "engine/model/files/tensor_source.h"
#include "engine/model/model_config.h"
#include "engine/text/template/template_directory.h"
#include "engine/text/tokenizer.h"
#include "kernels/base/dtype.h"
#include "kernels/registry.h"

namespace annulus {

// What a model's files contain, except for the values of its tensors.
struct ModelFiles {
  ModelConfig config;
  std::unique_ptr<TensorSource> tensors;
  std::unique_ptr<Tokenizer> tokenizer;
  // The dtype of weights unless --weights-dtype names one; absent: they stay as they are stored.
  std::optional<DType> weights_dtype;
  std::string architecture;
  std::string description;
  TemplateDirectory templates;
  SamplingDefaults sampling;
  std::optional<double> conversion_error;
  std::map<std::string, int> widened;  // of a GGUF file: see GgufTensors::widened
  std::vector<std::string> warnings;   // of the tokenizer: see GgufTokenizerFiles::warnings
  bool frames_documents = true;
};

// Which matrices of a GGUF file keep their stored codes if all are to become `dtype`: those that
// have it already.
GgufTensors::Codes CodesFor(DType dtype);

// Which matrices keep their stored codes if `options` names a GGUF file. Quantized matrices do,
// unless another dtype was asked for or the kernels lack their types, as those of GPUs do. Matrices
// that have the dtype asked for do too.
GgufTensors::Codes CodesOf(const EngineOptions& options, const Backend& backend,
                           const KernelRegistry& kernels);

// Opens the model that EngineOptions::model names. INVALID_ARGUMENT names an unknown builtin or
// what is wrong in a file.
absl::StatusOr<ModelFiles> OpenModelFiles(const std::string& model, GgufTensors::Codes codes);

// The same for a model that is not to be loaded: `model` may also be a config.json alone, which
// gives all shapes.
absl::StatusOr<ModelFiles> OpenModelShape(const std::string& model, GgufTensors::Codes codes);

// The dtype that all matrices are to have; absent: each stays as it is stored.
std::optional<DType> WantedDType(const EngineOptions& options, const ModelFiles& files);

// What computes a model, and in which dtype its keys and values are held.
struct ModelKernels {
  const OpTable* ops = nullptr;
  DType kv_dtype = DType::kF32;
};

// Returns the best kernels that `options` allows for the model. INVALID_ARGUMENT for tensors that
// differ from the configuration, activations that do not fit the weights, or expert_memory_bytes
// for a model without experts; FAILED_PRECONDITION says what no kernel supports, that kv_host_bytes
// or kv_disk need kernels that are row_invariant, or that expert_memory_bytes need a CPU;
// UNIMPLEMENTED that the model has what they do not compute (StreamsConfig).
absl::StatusOr<ModelKernels> SelectKernels(const EngineOptions& options, const ModelFiles& files,
                                           const Backend& backend, const KernelRegistry& kernels);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_LOADING_MODEL_FILES_H_
