#include "engine/loading/model_files.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/gguf/gguf_model.h"
#include "engine/loading/turn_ends.h"
#include "engine/model/files/model_directory.h"
#include "engine/model/files/safetensors.h"
#include "engine/model/layer_graph.h"
#include "engine/model/made/convert_model.h"
#include "engine/model/made/random_tensors.h"
#include "engine/model/made/recall_model.h"
#include "engine/model/weights/weights.h"
#include "engine/text/text_file.h"
#include "kernels/base/device_error.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr char kBuiltinPrefix[] = "builtin:";
constexpr char kRandomPrefix[] = "random:";
constexpr uint64_t kSeed = 1;
// The types of a GGUF file's matrices that kernels read as they are.
constexpr DType kKept[] = {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1};

absl::StatusOr<ModelFiles> OpenBuiltin(const std::string& name) {
  const int layers = name == "builtin:recall" ? 2 : name == "builtin:recall3" ? 3 : 0;
  if (layers == 0) {
    return absl::InvalidArgumentError(absl::StrCat("unknown model '", name,
                                                   "'; the builtin models are builtin:recall and "
                                                   "builtin:recall3"));
  }
  ModelFiles files;
  files.config = RecallConfig(layers);
  files.frames_documents = false;
  files.tensors = MakeRecallTensors(layers);
  files.tokenizer = MakeByteTokenizer();
  files.architecture = name;
  files.description =
      "a demonstration model with computed weights: it continues a text with what followed the "
      "same words in the document, and nothing else";
  return files;
}

// The shape of a config.json with random weights, to measure speed without a download. It has no
// trained length, so any context is allowed.
absl::StatusOr<ModelFiles> OpenRandom(const std::string& path) {
  constexpr int64_t kMostContext = int64_t{1} << 24;
  const auto text = ReadTextFile(path);
  if (!text.ok()) return text.status();
  ModelFiles files;
  ANNULUS_ASSIGN_OR_RETURN(files.config, ParseModelConfig(*text, path));
  files.tokenizer = MakeByteTokenizer();
  if (files.config.vocabulary < files.tokenizer->vocabulary_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": vocab_size is ", files.config.vocabulary, "; a model with random weights needs ",
        files.tokenizer->vocabulary_size(), " ids or more, for bytes and end-of-text"));
  }
  files.config.max_context = std::max(files.config.max_context, kMostContext);
  files.tensors = MakeRandomTensors(files.config, kSeed);
  files.architecture = files.config.architecture;
  files.description = absl::StrCat(
      "the shape of a ", files.config.model_type,
      " checkpoint with random weights, to measure speed: its answers are meaningless");
  return files;
}

absl::StatusOr<ModelFiles> OpenDirectory(const std::string& directory) {
  ModelFiles files;
  ANNULUS_ASSIGN_OR_RETURN(ModelDirectory read, ReadModelDirectory(directory));
  files.config = std::move(read.config);
  ANNULUS_ASSIGN_OR_RETURN(files.tensors, SafetensorsCheckpoint::Open(directory));
  ANNULUS_ASSIGN_OR_RETURN(const std::string config, ReadTokenizerConfig(directory));
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(directory, config);
  if (absl::IsNotFound(tokenizer.status())) tokenizer = MakeMissingTokenizer();
  ANNULUS_ASSIGN_OR_RETURN(files.tokenizer, std::move(tokenizer));
  files.architecture = files.config.architecture;
  files.description = absl::StrCat(
      "a ", files.config.model_type, " checkpoint",
      files.tokenizer->usable().ok() ? "" : " without a tokenizer: accepts token ids only");
  ANNULUS_ASSIGN_OR_RETURN(files.templates, TemplateDirectory::Load(directory, config));
  AddTurnEnds(*files.tokenizer, files.templates.special_tokens(), files.config);
  ANNULUS_ASSIGN_OR_RETURN(
      files.sampling,
      ParseSamplingDefaults(read.generation_config, directory + "/generation_config.json"));
  ANNULUS_ASSIGN_OR_RETURN(files.conversion_error, LoadConversionError(directory));
  return files;
}

absl::StatusOr<ModelFiles> OpenGguf(const std::string& path, GgufTensors::Codes codes) {
  ANNULUS_ASSIGN_OR_RETURN(GgufModel model, OpenGgufModel(path, codes));
  ModelFiles files;
  files.config = std::move(model.config);
  files.tensors = std::move(model.tensors);
  files.weights_dtype = model.weights_dtype;
  files.widened = std::move(model.widened);
  files.architecture = files.config.architecture;
  files.description = absl::StrCat("a ", files.config.model_type, " model in a GGUF file");
  ANNULUS_ASSIGN_OR_RETURN(files.tokenizer, LoadGgufTokenizer(model.tokenizer, path));
  ANNULUS_ASSIGN_OR_RETURN(files.templates, TemplateDirectory::Parse(model.tokenizer.config, path));
  AddTurnEnds(*files.tokenizer, files.templates.special_tokens(), files.config);
  files.warnings = std::move(model.tokenizer.warnings);
  return files;
}

// The most inputs that a multiplication of any layer has.
int64_t MostInputs(const ModelConfig& config) {
  int64_t most = 0;
  for (const LayerGraph& layer : LayerGraphs(config)) {
    ForEachOperation(layer, [&](const Operation& operation) {
      if (operation.kind != Operation::Kind::kProducts) return;
      most = std::max(most, layer.columns_of(operation.input));
    });
  }
  return most;
}

absl::Status CheckActivations(Activations activations, DType weights, const ModelConfig& config) {
  if (ActivationsOf(activations, weights) != activations) {
    const std::string needed = absl::StrJoin(
        WeightsFor(activations), ", ",
        [](std::string* out, DType dtype) { absl::StrAppend(out, DTypeName(dtype)); });
    return absl::InvalidArgumentError(
        absl::StrCat(ActivationsName(activations), " activations need weights in ", needed,
                     "; these are ", DTypeName(weights), ". Use --weights-dtype ",
                     DTypeName(WeightsFor(activations)[0]), ", or --activations float"));
  }
  if (activations != Activations::kInt8) return absl::OkStatus();
  const int64_t widest = MostInputs(config);
  if (widest <= kMostInt8Inputs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("int8 activations: a layer has ", widest,
                                                 " inputs; allowed: at most ", kMostInt8Inputs));
}

// What a tier gives back must be what computing would give. `others`: tables of the same backend.
absl::Status CheckTiers(const EngineOptions& options, const OpTable& ops,
                        const std::vector<const OpTable*>& others) {
  const bool keeps = options.kv_host_bytes > 0 || !options.kv_disk.empty();
  if (!keeps || ops.row_invariant) return absl::OkStatus();
  const auto good = std::find_if(others.begin(), others.end(),
                                 [](const OpTable* table) { return table->row_invariant; });
  return absl::FailedPreconditionError(absl::StrCat(
      options.kv_host_bytes > 0 ? "kv-host" : "kv-disk",
      " needs kernels whose results do not depend on the batch; those of ", ops.name, " do",
      good == others.end()
          ? "; leave it out, or use --device cpu"
          : absl::StrCat("; use --gpu-kernels ", (*good)->name.substr((*good)->name.find('/') + 1),
                         ", or leave it out")));
}

// Who leaves experts in files.
absl::Status CheckExperts(const EngineOptions& options, const ModelConfig& config,
                          const Backend& backend) {
  if (options.expert_memory_bytes == 0) return absl::OkStatus();
  if (!backend.capabilities().host_accessible) {
    return absl::FailedPreconditionError(
        absl::StrCat("expert-memory leaves experts in the model's files, which kernels of ",
                     backend.capabilities().name, " cannot do; leave it out, or use --device cpu"));
  }
  if (config.experts.count > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(options.model, ": expert-memory is ", options.expert_memory_bytes,
                   " bytes, but the model has no experts; leave it out"));
}

}  // namespace

GgufTensors::Codes CodesFor(DType dtype) {
  const bool kept = std::find(std::begin(kKept), std::end(kKept), dtype) != std::end(kKept);
  return kept ? GgufTensors::Codes::kKeep : GgufTensors::Codes::kWiden;
}

GgufTensors::Codes CodesOf(const EngineOptions& options, const Backend& backend,
                           const KernelRegistry& kernels) {
  const std::optional<DType> wanted = options.weights_dtype;
  if (wanted && CodesFor(*wanted) == GgufTensors::Codes::kWiden) return GgufTensors::Codes::kWiden;
  KernelRequirements required;
  required.backend = backend.capabilities().name;
  required.implementation = options.kernels;
  required.k_dim = required.v_dim = 64;  // any: the model's own are checked when it is known
  for (const DType dtype : kKept) {
    required.weights_dtype = dtype;
    if (!kernels.Select(required).ok()) return GgufTensors::Codes::kWiden;
  }
  return GgufTensors::Codes::kKeep;
}

absl::StatusOr<ModelFiles> OpenModelFiles(const std::string& model, GgufTensors::Codes codes) {
  if (absl::StartsWith(model, kBuiltinPrefix)) return OpenBuiltin(model);
  if (absl::StartsWith(model, kRandomPrefix)) {
    return OpenRandom(model.substr(sizeof(kRandomPrefix) - 1));
  }
  ANNULUS_ASSIGN_OR_RETURN(const std::optional<std::string> gguf, FindGgufModel(model));
  return gguf.has_value() ? OpenGguf(*gguf, codes) : OpenDirectory(model);
}

absl::StatusOr<ModelFiles> OpenModelShape(const std::string& model, GgufTensors::Codes codes) {
  if (!absl::EndsWith(model, ".json") || absl::StartsWith(model, kRandomPrefix)) {
    return OpenModelFiles(model, codes);
  }
  const auto text = ReadTextFile(model);
  if (!text.ok()) return text.status();
  ModelFiles files;
  ANNULUS_ASSIGN_OR_RETURN(files.config, ParseModelConfig(*text, model));
  files.tensors = MakeRandomTensors(files.config, kSeed);
  files.tokenizer = MakeMissingTokenizer();
  files.architecture = files.config.architecture;
  files.description = absl::StrCat("the shape of a ", files.config.model_type, " checkpoint");
  return files;
}

std::optional<DType> WantedDType(const EngineOptions& options, const ModelFiles& files) {
  return options.weights_dtype.has_value() ? options.weights_dtype : files.weights_dtype;
}

absl::StatusOr<ModelKernels> SelectKernels(const EngineOptions& options, const ModelFiles& files,
                                           const Backend& backend, const KernelRegistry& kernels) {
  ANNULUS_RETURN_IF_ERROR(CheckExperts(options, files.config, backend));
  const absl::StatusOr<DType> stored = StoredWeightsDType(files.config, *files.tensors);
  // Messages name tensors; this adds the file.
  if (!stored.ok()) return WithPrefix(absl::StrCat(options.model, ": "), stored.status());
  KernelRequirements required;
  required.backend = backend.capabilities().name;
  required.implementation = options.kernels;
  required.weights_dtype = WantedDType(options, files).value_or(*stored);
  required.activations = options.activations;
  ANNULUS_RETURN_IF_ERROR(
      CheckActivations(required.activations, required.weights_dtype, files.config));
  // Half the memory of f32, and products of bf16 where the processor has them. Weights in f16 get
  // bf16 too: kernels multiply it faster, and it cannot overflow.
  const bool full = required.weights_dtype == DType::kF32;
  required.kv_dtype = options.kv_dtype.value_or(full ? DType::kF32 : DType::kBF16);
  // What the limits of any layer's heads allow: multiples of some number up to another.
  for (const LayerConfig& layer : files.config.layers) {
    required.k_dim = std::max(required.k_dim, layer.attention.k_dim);
    required.v_dim = std::max(required.v_dim, layer.attention.v_dim);
  }
  ANNULUS_ASSIGN_OR_RETURN(const OpTable* const ops, kernels.Select(required));
  ANNULUS_RETURN_IF_ERROR(CheckTiers(options, *ops, kernels.Available(required.backend)));
  return ModelKernels{ops, required.kv_dtype};
}

}  // namespace annulus
