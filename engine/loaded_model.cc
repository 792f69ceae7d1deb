#include "engine/loaded_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/program_id.h"
#include "engine/base/sha256.h"
#include "engine/gguf/gguf_model.h"
#include "engine/model/convert_model.h"
#include "engine/model/random_tensors.h"
#include "engine/model/recall_model.h"
#include "engine/model/safetensors.h"
#include "engine/model/tensor_hashes.h"
#include "engine/runner/rank_set.h"
#include "engine/sampling_defaults.h"
#include "engine/sparse/gates.h"
#include "engine/text/text_file.h"
#include "kernels/base/device_error.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr char kBuiltinPrefix[] = "builtin:";
constexpr char kRandomPrefix[] = "random:";

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
      "a demonstration model with computed weights: it continues a cue with what followed the same "
      "words in the document, and knows nothing else";
  return files;
}

// The shape of a config.json with random weights, to measure speed without a download. It has no
// trained length, so any context will do.
absl::StatusOr<ModelFiles> OpenRandom(const std::string& path) {
  constexpr uint64_t kSeed = 1;
  constexpr int64_t kMostContext = int64_t{1} << 24;
  const auto text = ReadTextFile(path);
  if (!text.ok()) return text.status();
  ModelFiles files;
  ANNULUS_ASSIGN_OR_RETURN(files.config, ParseModelConfig(*text, path));
  files.tokenizer = MakeByteTokenizer();
  if (files.config.vocabulary < files.tokenizer->vocabulary_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": vocab_size is ", files.config.vocabulary, "; a model with random weights needs ",
        files.tokenizer->vocabulary_size(), " ids or more, for bytes and the end of a text"));
  }
  files.config.max_context = std::max(files.config.max_context, kMostContext);
  files.tensors = MakeRandomTensors(files.config, kSeed);
  files.architecture = files.config.architecture;
  files.description =
      absl::StrCat("the shape of a ", files.config.model_type,
                   " checkpoint with random weights, to measure speed: its answers mean nothing");
  return files;
}

absl::StatusOr<ModelFiles> OpenDirectory(const std::string& directory) {
  ModelFiles files;
  ANNULUS_ASSIGN_OR_RETURN(files.config, LoadModelConfig(directory));
  ANNULUS_ASSIGN_OR_RETURN(files.tensors, SafetensorsCheckpoint::Open(directory));
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(directory);
  if (absl::IsNotFound(tokenizer.status())) tokenizer = MakeMissingTokenizer();
  ANNULUS_ASSIGN_OR_RETURN(files.tokenizer, std::move(tokenizer));
  files.architecture = files.config.architecture;
  files.description =
      absl::StrCat("a ", files.config.model_type, " checkpoint",
                   files.tokenizer->usable().ok() ? "" : " without a tokenizer: token ids only");
  ANNULUS_ASSIGN_OR_RETURN(files.templates, TemplateDirectory::Load(directory));
  ANNULUS_ASSIGN_OR_RETURN(files.sampling, LoadSamplingDefaults(directory));
  ANNULUS_ASSIGN_OR_RETURN(files.conversion_error, LoadConversionError(directory));
  return files;
}

absl::StatusOr<ModelFiles> OpenGguf(const std::string& path) {
  ANNULUS_ASSIGN_OR_RETURN(GgufModel model, OpenGgufModel(path));
  ModelFiles files;
  files.config = std::move(model.config);
  files.tensors = std::move(model.tensors);
  files.weights_dtype = model.weights_dtype;
  files.architecture = files.config.architecture;
  files.description = absl::StrCat("a ", files.config.model_type, " model in a GGUF file");
  const GgufTokenizerFiles& tokenizer = model.tokenizer;
  if (!tokenizer.tokenizer_json.empty()) {
    ANNULUS_ASSIGN_OR_RETURN(
        files.tokenizer, LoadTokenizerJson(tokenizer.tokenizer_json, path, tokenizer.config, path));
  } else {
    ANNULUS_ASSIGN_OR_RETURN(files.tokenizer, LoadTokenizerModel(tokenizer.tokenizer_model, path,
                                                                 tokenizer.config, path));
  }
  ANNULUS_ASSIGN_OR_RETURN(files.templates, TemplateDirectory::Parse(tokenizer.config, path));
  return files;
}

absl::StatusOr<ModelFiles> OpenFiles(const std::string& model) {
  if (absl::StartsWith(model, kBuiltinPrefix)) return OpenBuiltin(model);
  if (absl::StartsWith(model, kRandomPrefix)) {
    return OpenRandom(model.substr(sizeof(kRandomPrefix) - 1));
  }
  ANNULUS_ASSIGN_OR_RETURN(const std::optional<std::string> gguf, FindGgufModel(model));
  return gguf.has_value() ? OpenGguf(*gguf) : OpenDirectory(model);
}

ModelInfo Describe(const ModelFiles& files, const RankModel& model, int64_t max_context) {
  ModelInfo info;
  info.architecture = files.architecture;
  info.description = files.description;
  info.parameters = model.weights.parameters;
  info.layers = model.layers();
  info.hidden_size = model.config.hidden_size;
  info.vocabulary = model.config.vocabulary;
  info.max_context = max_context;
  info.weights_dtype = model.weights.dtype;
  info.weights_bytes = model.weights.bytes;
  info.activations = model.activations;
  info.weights_error = model.weights.error.relative();
  info.conversion_error = files.conversion_error;
  info.kv_dtype = model.page_shape.dtype;
  for (const CacheGroup& group : model.groups) {
    if (group.kind != CacheGroup::Kind::kFull) continue;
    info.kv_bytes_per_token += static_cast<int64_t>(group.layers.size()) *
                               static_cast<int64_t>(model.ops->kv_page_bytes(model.page_shape)) /
                               model.page_shape.page_tokens;
  }
  info.kernels = model.ops->name;
  info.has_chat_template = !files.templates.empty();
  info.frames_documents = files.frames_documents;
  info.end_of_text_ids = model.config.eos_ids;
  info.default_sampling = files.sampling.params;
  info.warnings = files.sampling.warnings;
  info.warnings.insert(info.warnings.end(), model.weights.warnings.begin(),
                       model.weights.warnings.end());
  return info;
}

// Tensors are named in messages; this says whose they are.
absl::Status Naming(const std::string& model, const absl::Status& status) {
  return WithPrefix(absl::StrCat(model, ": "), status);
}

// Special tokens alone may lie beyond the embedding, as the image token of Gemma 3's text-only
// checkpoints does: a prompt with one is refused.
absl::Status CheckVocabulary(const std::string& model, const Tokenizer& tokenizer,
                             int32_t vocabulary) {
  for (int32_t id = vocabulary; id < tokenizer.vocabulary_size(); ++id) {
    if (!tokenizer.HasToken(id) || tokenizer.IsSpecial(id)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        model, ": the tokenizer has the id ", id, ", but config.json says vocab_size ", vocabulary,
        "; allowed: ids below it, and special tokens; both files must come from the same model"));
  }
  return absl::OkStatus();
}

absl::Status CheckActivations(Activations activations, DType weights, const ModelConfig& config) {
  const DType needed = WeightsFor(activations).value_or(weights);
  if (weights != needed) {
    return absl::InvalidArgumentError(absl::StrCat(
        ActivationsName(activations), " activations need weights in ", DTypeName(needed),
        "; these are ", DTypeName(weights), ". Ask for --weights-dtype ", DTypeName(needed),
        ", or for --activations float"));
  }
  if (activations != Activations::kInt8) return absl::OkStatus();
  const int64_t widest = std::max({int64_t{config.hidden_size}, int64_t{config.intermediate_size},
                                   int64_t{config.experts.intermediate_size},
                                   int64_t{config.heads} * config.head_dim});
  if (widest <= kMostInt8Inputs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("int8 activations: a layer has ", widest,
                                                 " inputs; allowed: at most ", kMostInt8Inputs));
}

absl::StatusOr<std::shared_ptr<const AttentionGates>> LoadGates(const std::string& path,
                                                                const RankModel& model) {
  ANNULUS_ASSIGN_OR_RETURN(const auto file, SafetensorsCheckpoint::OpenFile(path));
  GateShape shape;
  for (const LayerConfig& layer : model.config.layers) shape.layers.push_back(layer.window == 0);
  shape.heads = model.config.heads;
  shape.kv_heads = model.config.kv_heads;
  shape.k_dim = model.config.head_dim;
  absl::StatusOr<AttentionGates> gates = ReadGates(*file, shape);
  if (!gates.ok()) return Naming(path, gates.status());
  return std::make_shared<const AttentionGates>(*std::move(gates));
}

std::string IdentityOf(const RankModel& model, const std::string& tensors, const Backend& backend) {
  std::string text = absl::StrCat(
      "program ", ProgramId(), "\ntensors ", tensors, "\nconfig ", model.config.sha256,
      "\nweights ", DTypeName(model.weights.dtype), " ", ActivationsName(model.activations),
      "\nkernels ", backend.capabilities().name, " ", model.ops->name, "\npages ",
      DTypeName(model.page_shape.dtype), " ", model.page_shape.page_tokens, " ",
      model.ops->kv_page_bytes(model.page_shape), "\n");
  for (const CacheGroup& group : model.groups) {
    absl::StrAppend(&text, "group ", group.window, " ", absl::StrJoin(group.layers, ","), "\n");
  }
  if (model.gates != nullptr) absl::StrAppend(&text, "gates ", model.gates->fingerprint, "\n");
  return Sha256Of(text);
}

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(const EngineOptions& options, Backend& backend,
                                      const KernelRegistry& kernels) {
  ANNULUS_ASSIGN_OR_RETURN(ModelFiles files, OpenFiles(options.model));
  ANNULUS_ASSIGN_OR_RETURN(const int64_t max_context,
                           ContextLimit(files.config, options.max_context));
  ANNULUS_RETURN_IF_ERROR(
      CheckVocabulary(options.model, *files.tokenizer, files.config.vocabulary));
  const std::optional<DType> weights_dtype =
      options.weights_dtype.has_value() ? options.weights_dtype : files.weights_dtype;
  const absl::StatusOr<DType> stored = StoredWeightsDType(files.config, *files.tensors);
  if (!stored.ok()) return Naming(options.model, stored.status());
  KernelRequirements required;
  required.backend = backend.capabilities().name;
  required.implementation = options.kernels;
  required.weights_dtype = weights_dtype.value_or(*stored);
  required.activations = options.activations;
  ANNULUS_RETURN_IF_ERROR(
      CheckActivations(required.activations, required.weights_dtype, files.config));
  required.kv_dtype = options.kv_dtype;
  required.k_dim = files.config.head_dim;
  required.v_dim = files.config.head_dim;
  ANNULUS_ASSIGN_OR_RETURN(const OpTable* ops, kernels.Select(required));
  HashingSource hashing(*files.tensors);
  absl::StatusOr<ModelWeights> weights =
      LoadWeights(files.config, hashing, backend, *ops, weights_dtype);
  if (!weights.ok()) return Naming(options.model, weights.status());
  const absl::StatusOr<std::string> tensors = hashing.Finish();
  if (!tensors.ok()) return Naming(options.model, tensors.status());
  LoadedModel loaded;
  loaded.ranks =
      MakeRankModel(files.config, *std::move(weights), *ops, options.page_tokens, options.kv_dtype);
  loaded.ranks.activations = required.activations;
  for (int device = 1; device < DevicesOf(backend, options.ranks); ++device) {
    weights =
        LoadWeights(files.config, *files.tensors, backend.OnDevice(device), *ops, weights_dtype);
    if (!weights.ok()) return Naming(options.model, weights.status());
    loaded.ranks.further_weights.push_back(*std::move(weights));
  }
  if (!options.attention_gates.empty()) {
    ANNULUS_ASSIGN_OR_RETURN(loaded.ranks.gates, LoadGates(options.attention_gates, loaded.ranks));
  }
  loaded.identity = IdentityOf(loaded.ranks, *tensors, backend);
  loaded.info = Describe(files, loaded.ranks, max_context);
  loaded.tokenizer = std::move(files.tokenizer);
  loaded.templates = std::move(files.templates);
  return loaded;
}

}  // namespace annulus
