#include "engine/loading/loaded_model.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/program_id.h"
#include "engine/base/sha256.h"
#include "engine/loading/model_files.h"
#include "engine/model/files/safetensors.h"
#include "engine/model/files/tensor_hashes.h"
#include "engine/runner/rank_set.h"
#include "engine/sparse/gates.h"
#include "engine/text/answer/answer_format.h"
#include "engine/text/stages/regex.h"
#include "kernels/base/device_error.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// What became of matrices that were not asked for in any type, and have one that no kernel reads.
std::string WideningText(const std::map<std::string, int>& widened) {
  const std::string types = absl::StrJoin(widened, ", ", [](std::string* out, const auto& type) {
    absl::StrAppend(out, type.second, " in ", type.first);
  });
  return absl::StrCat("the file has matrices of types that these kernels cannot use directly (",
                      types,
                      "): they are converted to bf16, 2 bytes a weight, with an error of at most "
                      "1/512. To use less memory: --weights-dtype int8 or int4_g32, or a file in "
                      "Q8_0, Q4_0 or Q4_1, which CPUs use directly");
}

// How answers to conversations are read.
absl::StatusOr<AnswerReading> ReadingOf(const EngineOptions& options,
                                        const TemplateDirectory& templates,
                                        const Tokenizer& tokenizer) {
  AnswerReading reading;
  reading.reasoning = options.reasoning;
  const std::string& asked = options.tool_format;
  const std::string family = asked == "auto" ? templates.answer_family() : asked;
  if (family.empty() || family == "none") return reading;
  reading.format = AnswerFormat::Make(family, [&tokenizer](absl::string_view mark) {
    const auto ids = tokenizer.Encode(mark, /*add_special=*/false);
    return ids.ok() && ids->size() == 1 && tokenizer.IsControl(ids->front());
  });
  if (reading.format != nullptr) {
    ANNULUS_ASSIGN_OR_RETURN(
        reading.reasoning_end,
        tokenizer.Encode(reading.format->reasoning_end(), /*add_special=*/false));
    return reading;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tool_format \"", family, "\" is not known; see --help for those that are"));
}

ModelInfo Describe(const ModelFiles& files, const RankModel& model, int64_t max_context,
                   bool as_stored) {
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
  info.kv_bytes_per_token = KvBytesPerToken(model);
  info.kernels = model.ops->name;
  info.has_chat_template = !files.templates.empty();
  info.frames_documents = files.frames_documents;
  info.end_of_text_ids = model.config.eos_ids;
  info.default_sampling = files.sampling.params;
  info.warnings = files.sampling.warnings;
  info.warnings.insert(info.warnings.end(), files.warnings.begin(), files.warnings.end());
  info.warnings.insert(info.warnings.end(), model.weights.warnings.begin(),
                       model.weights.warnings.end());
  if (as_stored && !files.widened.empty()) info.warnings.push_back(WideningText(files.widened));
  if (!CompilesToMachineCode()) {
    info.warnings.push_back(
        "the regular expressions of the tokenizer run without JIT compilation, because this "
        "process may not make written memory executable (MemoryDenyWriteExecute of systemd): "
        "tokenizing takes up to a quarter longer");
  }
  return info;
}

// Only special tokens may have ids beyond the embedding, such as the image token of Gemma 3's
// text-only checkpoints: a prompt with one is refused.
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

absl::StatusOr<std::shared_ptr<const AttentionGates>> LoadGates(const std::string& path,
                                                                const RankModel& model) {
  ANNULUS_ASSIGN_OR_RETURN(const auto file, SafetensorsCheckpoint::OpenFile(path));
  GateShape shape;
  for (const LayerConfig& layer : model.config.layers) shape.layers.push_back(layer.window == 0);
  const AttentionShape& attention = WidestAttention(model.config);
  shape.heads = attention.heads;
  shape.kv_heads = attention.kv_heads;
  shape.k_dim = attention.k_dim;
  absl::StatusOr<AttentionGates> gates = ReadGates(*file, shape);
  if (!gates.ok()) return WithPrefix(absl::StrCat(path, ": "), gates.status());
  return std::make_shared<const AttentionGates>(*std::move(gates));
}

// The weights as they are computed with. `tensors`: as they are stored.
std::string WeightsText(const RankModel& model, const std::string& tensors) {
  std::string text =
      absl::StrCat("tensors ", tensors, "\nconfig ", model.config.sha256, "\nweights ",
                   DTypeName(model.weights.dtype), " ", ActivationsName(model.activations), "\n");
  // Another --weights-dtype gives other matrices from the same file, even if most stay the same.
  absl::StrAppend(
      &text, "matrices ",
      absl::StrJoin(model.weights.matrix_dtypes, ",",
                    [](std::string* out, DType dtype) { absl::StrAppend(out, DTypeName(dtype)); }),
      "\n");
  if (model.gates != nullptr) absl::StrAppend(&text, "gates ", model.gates->fingerprint, "\n");
  return text;
}

std::string FingerprintOf(const RankModel& model, const std::string& tensors) {
  std::string text = WeightsText(model, tensors);
  for (int32_t id = 0; id < model.tokens->vocabulary(); ++id) {
    const absl::string_view bytes = model.tokens->TokenBytes(id);
    absl::StrAppend(&text, bytes.size(), " ", bytes, "\n");
  }
  return Sha256Of(text);
}

std::string IdentityOf(const RankModel& model, const std::string& tensors, const Backend& backend) {
  std::string text =
      absl::StrCat("program ", ProgramId(), "\n", WeightsText(model, tensors), "kernels ",
                   backend.capabilities().name, " ", model.ops->name, "\npages ",
                   DTypeName(model.page_shape.dtype), " ", model.page_shape.page_tokens, " ",
                   model.ops->kv_page_bytes(model.page_shape), "\n");
  for (const CacheGroup& group : model.groups) {
    absl::StrAppend(&text, "group ", group.window, " ", absl::StrJoin(group.layers, ","), "\n");
  }
  // A CPU's table gives the same bits on every machine, a GPU's on GPUs of one kind.
  if (!backend.capabilities().host_accessible) {
    absl::StrAppend(&text, "device ", backend.capabilities().description, "\n");
  }
  return Sha256Of(text);
}

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(const EngineOptions& options, Backend& backend,
                                      const KernelRegistry& kernels) {
  ANNULUS_ASSIGN_OR_RETURN(ModelFiles files,
                           OpenModelFiles(options.model, CodesOf(options, backend, kernels)));
  ANNULUS_ASSIGN_OR_RETURN(const int64_t max_context,
                           ContextLimit(files.config, options.max_context));
  ANNULUS_RETURN_IF_ERROR(
      CheckVocabulary(options.model, *files.tokenizer, files.config.vocabulary));
  const std::optional<DType> weights_dtype = WantedDType(options, files);
  ANNULUS_ASSIGN_OR_RETURN(const ModelKernels chosen,
                           SelectKernels(options, files, backend, kernels));
  const OpTable& ops = *chosen.ops;
  const std::shared_ptr<const TensorSource> source = std::move(files.tensors);
  const ExpertMemory experts = {options.expert_memory_bytes, source, options.exchange_timeout};
  HashingSource hashing(*source);
  absl::StatusOr<ModelWeights> weights =
      LoadWeights(files.config, hashing, backend, ops, weights_dtype, experts);
  if (!weights.ok()) return WithPrefix(absl::StrCat(options.model, ": "), weights.status());
  const absl::StatusOr<std::string> tensors = hashing.Finish();
  if (!tensors.ok()) return WithPrefix(absl::StrCat(options.model, ": "), tensors.status());
  LoadedModel loaded;
  loaded.ranks =
      MakeRankModel(files.config, *std::move(weights), ops, options.page_tokens, chosen.kv_dtype);
  loaded.ranks.activations = options.activations;
  for (int device = 1; device < DevicesOf(backend, options.span().local); ++device) {
    weights = LoadWeights(files.config, *source, backend.OnDevice(device), ops, weights_dtype);
    if (!weights.ok()) return WithPrefix(absl::StrCat(options.model, ": "), weights.status());
    loaded.ranks.further_weights.push_back(*std::move(weights));
  }
  if (!options.attention_gates.empty()) {
    ANNULUS_ASSIGN_OR_RETURN(loaded.ranks.gates, LoadGates(options.attention_gates, loaded.ranks));
  }
  loaded.ranks.tokens = std::make_shared<const TokenTrie>(
      TokenTrie::FromTokenizer(*files.tokenizer, files.config.vocabulary, files.config.eos_ids));
  loaded.identity = IdentityOf(loaded.ranks, *tensors, backend);
  loaded.fingerprint = FingerprintOf(loaded.ranks, *tensors);
  loaded.info = Describe(files, loaded.ranks, max_context, !options.weights_dtype.has_value());
  loaded.tokenizer = std::move(files.tokenizer);
  loaded.templates = std::move(files.templates);
  ANNULUS_ASSIGN_OR_RETURN(loaded.reading, ReadingOf(options, loaded.templates, *loaded.tokenizer));
  return loaded;
}

}  // namespace annulus
