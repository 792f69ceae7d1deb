#include "engine/model/model_config.h"

#include <array>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/model/json_fields.h"
#include "engine/model/model_directory.h"
#include "engine/model/regular_file.h"
#include "engine/model/strict_json.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr int64_t kMostVocabulary = 1 << 24;
constexpr int64_t kMostHidden = 1 << 16;
constexpr int64_t kMostIntermediate = 1 << 20;
constexpr int64_t kMostLayers = 1024;
constexpr int64_t kMostHeads = 1024;
constexpr int64_t kMostHeadDim = 512;
constexpr int64_t kMostContext = std::numeric_limits<int32_t>::max();
constexpr double kMostFactor = 1e6;
constexpr uint64_t kMostConfigBytes = 4 << 20;
constexpr double kSmallestNormal = std::numeric_limits<float>::min();

// How a family says which layers attend a sliding window.
enum class WindowRule : uint8_t {
  kByLayerTypes,  // `layer_types` names them; without it every layer is full
  kUniform,       // `sliding_window` holds for all layers
};

// What one architecture's config.json means where it differs from another's.
struct Family {
  absl::string_view architecture;
  absl::string_view model_type;
  bool biases;  // reads attention_bias and mlp_bias
  WindowRule windows;
  int64_t default_window;  // of an absent sliding_window; 0: none
  int64_t default_context;
};

constexpr std::array<Family, 2> kFamilies = {{
    {"LlamaForCausalLM", "llama", true, WindowRule::kByLayerTypes, 0, 2048},
    {"MistralForCausalLM", "mistral", false, WindowRule::kUniform, 4096, 131072},
}};

absl::StatusOr<const Family*> FindFamily(const JsonFields& fields) {
  const std::string supported = absl::StrJoin(SupportedArchitectures(), ", ");
  const nlohmann::json* names = fields.Find("architectures");
  if (names == nullptr || !names->is_array() || names->size() != 1 || !names->at(0).is_string()) {
    return fields.Invalid("architectures", absl::StrCat("a list with one of ", supported));
  }
  for (const Family& family : kFamilies) {
    const auto& name = names->at(0).get_ref<const std::string&>();
    if (family.architecture == name) return &family;
  }
  return fields.Unsupported("architectures", absl::StrCat("a list with one of ", supported));
}

absl::Status RefuseWhatIsNotServed(const JsonFields& fields) {
  ANNULUS_ASSIGN_OR_RETURN(const std::string activation, fields.String("hidden_act", "silu"));
  if (activation != "silu" && activation != "swish") {
    return fields.Unsupported("hidden_act", "\"silu\"");
  }
  if (fields.Has("quantization_config")) {
    return fields.Unsupported(
        "quantization_config",
        absl::StrCat("nothing here (GPTQ, AWQ and other quantized checkpoints are not supported); "
                     "needed: ",
                     kSupportedWeights));
  }
  return absl::OkStatus();
}

absl::Status ParseSizes(const JsonFields& fields, const Family& family, ModelConfig& config) {
  ANNULUS_ASSIGN_OR_RETURN(config.vocabulary, fields.Integer("vocab_size", 1, kMostVocabulary));
  ANNULUS_ASSIGN_OR_RETURN(config.hidden_size, fields.Integer("hidden_size", 1, kMostHidden));
  ANNULUS_ASSIGN_OR_RETURN(config.intermediate_size,
                           fields.Integer("intermediate_size", 1, kMostIntermediate));
  ANNULUS_ASSIGN_OR_RETURN(const int64_t layers,
                           fields.Integer("num_hidden_layers", 1, kMostLayers));
  config.layers.resize(static_cast<size_t>(layers));
  ANNULUS_ASSIGN_OR_RETURN(
      config.max_context,
      fields.Integer("max_position_embeddings", 1, kMostContext, family.default_context));
  ANNULUS_ASSIGN_OR_RETURN(const double epsilon,
                           fields.Number("rms_norm_eps", kSmallestNormal, 1, 1e-6));
  config.rms_norm_eps = static_cast<float>(epsilon);
  return absl::OkStatus();
}

absl::Status ParseHeads(const JsonFields& fields, ModelConfig& config) {
  ANNULUS_ASSIGN_OR_RETURN(config.heads, fields.Integer("num_attention_heads", 1, kMostHeads));
  ANNULUS_ASSIGN_OR_RETURN(config.kv_heads,
                           fields.Integer("num_key_value_heads", 1, config.heads, config.heads));
  if (config.heads % config.kv_heads != 0) {
    return fields.Invalid("num_key_value_heads",
                          absl::StrCat("a divisor of num_attention_heads, ", config.heads));
  }
  if (!fields.Has("head_dim") && config.hidden_size % config.heads != 0) {
    return fields.Invalid("num_attention_heads",
                          absl::StrCat("a divisor of hidden_size, ", config.hidden_size,
                                       ", where head_dim is not given"));
  }
  const int64_t quotient = config.hidden_size / config.heads;
  ANNULUS_ASSIGN_OR_RETURN(config.head_dim, fields.Integer("head_dim", 2, kMostHeadDim, quotient));
  if (config.head_dim % 2 == 0 && config.head_dim <= kMostHeadDim) return absl::OkStatus();
  const std::string allowed = absl::StrCat("an even number from 2 to ", kMostHeadDim);
  if (fields.Has("head_dim")) return fields.Invalid("head_dim", allowed);
  return fields.Invalid("num_attention_heads",
                        absl::StrCat("what makes hidden_size / num_attention_heads, now ",
                                     config.head_dim, ", ", allowed));
}

// The object that holds the rope settings: `rope_scaling` in files of Transformers 4,
// `rope_parameters` from 5 on.
absl::StatusOr<const char*> RopeKey(const JsonFields& fields) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const nlohmann::json* value = fields.Find(key);
    if (value == nullptr) continue;
    if (!value->is_object()) return fields.Invalid(key, "an object or null");
    if (!value->empty()) return key;
  }
  return nullptr;
}

absl::Status ParseLlama3(const JsonFields& fields, const JsonFields& rope, ModelConfig& config) {
  ANNULUS_ASSIGN_OR_RETURN(config.rope.low_frequency_factor,
                           rope.Number("low_freq_factor", 1e-3, kMostFactor));
  ANNULUS_ASSIGN_OR_RETURN(config.rope.high_frequency_factor,
                           rope.Number("high_freq_factor", 1e-3, kMostFactor));
  if (config.rope.high_frequency_factor <= config.rope.low_frequency_factor) {
    return rope.Invalid("high_freq_factor", absl::StrCat("more than low_freq_factor, ",
                                                         config.rope.low_frequency_factor));
  }
  const char* key = "original_max_position_embeddings";
  const JsonFields& where = fields.Has(key) ? fields : rope;
  ANNULUS_ASSIGN_OR_RETURN(config.rope.original_context,
                           where.Integer(key, 1, kMostContext, config.max_context));
  return absl::OkStatus();
}

absl::Status ParseRopeKind(const JsonFields& fields, const JsonFields& rope, ModelConfig& config) {
  const char* key = rope.Has("rope_type") ? "rope_type" : "type";
  ANNULUS_ASSIGN_OR_RETURN(const std::string kind, rope.String(key, "default"));
  if (kind == "default") return absl::OkStatus();
  if (kind != "linear" && kind != "llama3") {
    return rope.Unsupported(key, "\"default\", \"linear\" or \"llama3\"");
  }
  config.rope.kind = kind == "linear" ? RopeKind::kLinear : RopeKind::kLlama3;
  ANNULUS_ASSIGN_OR_RETURN(config.rope.factor, rope.Number("factor", 1, kMostFactor));
  return kind == "llama3" ? ParseLlama3(fields, rope, config) : absl::OkStatus();
}

absl::Status ParseRope(const JsonFields& fields, absl::string_view file_name, ModelConfig& config) {
  ANNULUS_ASSIGN_OR_RETURN(const char* key, RopeKey(fields));
  const nlohmann::json none = nlohmann::json::object();
  const JsonFields rope(std::string(file_name), key == nullptr ? "" : key,
                        key == nullptr ? none : *fields.Find(key));
  for (const char* per_layer : {"full_attention", "sliding_attention"}) {
    if (rope.Has(per_layer)) return rope.Unsupported(per_layer, "one rope setting for all layers");
  }
  // The bound keeps theta a float32, in which the frequencies are formed.
  const JsonFields& theta = rope.Has("rope_theta") ? rope : fields;
  ANNULUS_ASSIGN_OR_RETURN(config.rope.theta, theta.Number("rope_theta", 1, 1e38, 10000));
  for (const JsonFields* place : {&fields, &rope}) {
    ANNULUS_ASSIGN_OR_RETURN(const double partial, place->Number("partial_rotary_factor", 0, 1, 1));
    if (partial != 1) return place->Unsupported("partial_rotary_factor", "1");
  }
  config.rope.pairs = config.head_dim / 2;
  return ParseRopeKind(fields, rope, config);
}

absl::StatusOr<int32_t> ParseWindow(const JsonFields& fields, const nlohmann::json& layer_type,
                                    int64_t sliding_window) {
  if (layer_type == "full_attention") return 0;
  if (layer_type != "sliding_attention") {
    return fields.Unsupported("layer_types", "\"full_attention\" and \"sliding_attention\"");
  }
  if (sliding_window == 0) {
    return fields.Invalid("sliding_window",
                          absl::StrCat("a whole number from 1 to ", kMostContext,
                                       ", because layer_types has sliding_attention"));
  }
  return static_cast<int32_t>(sliding_window);
}

absl::Status ParseWindows(const JsonFields& fields, const Family& family, ModelConfig& config) {
  // An explicit null means no window also where the key's absence means a default one.
  const int64_t absent = fields.Contains("sliding_window") ? 0 : family.default_window;
  ANNULUS_ASSIGN_OR_RETURN(const int64_t sliding_window,
                           fields.Integer("sliding_window", 1, kMostContext, absent));
  const nlohmann::json* types = fields.Find("layer_types");
  if (family.windows == WindowRule::kUniform) {
    if (types != nullptr) {
      return fields.Unsupported("layer_types",
                                absl::StrCat("nothing here: ", family.architecture,
                                             " has one sliding_window for all layers"));
    }
    for (LayerConfig& layer : config.layers) layer.window = static_cast<int32_t>(sliding_window);
    return absl::OkStatus();
  }
  if (types == nullptr) return absl::OkStatus();
  if (!types->is_array() || types->size() != config.layers.size()) {
    return fields.Invalid("layer_types", absl::StrCat("a list of num_hidden_layers, ",
                                                      config.layers.size(), ", names"));
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    ANNULUS_ASSIGN_OR_RETURN(config.layers[i].window,
                             ParseWindow(fields, types->at(i), sliding_window));
  }
  return absl::OkStatus();
}

// One id or a list of them; absent: none.
absl::StatusOr<std::vector<int32_t>> ParseIds(const JsonFields& fields, const char* key,
                                              int32_t vocabulary) {
  std::vector<int32_t> ids;
  const nlohmann::json* value = fields.Find(key);
  if (value == nullptr) return ids;
  const nlohmann::json list = value->is_array() ? *value : nlohmann::json::array({*value});
  for (const nlohmann::json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocabulary)) {
      return fields.Invalid(key, absl::StrCat("token ids from 0 to ", vocabulary - 1,
                                              " (vocab_size is ", vocabulary, ")"));
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

absl::Status ParseTokens(const JsonFields& fields, ModelConfig& config) {
  ANNULUS_ASSIGN_OR_RETURN(config.eos_ids, ParseIds(fields, "eos_token_id", config.vocabulary));
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<int32_t> bos,
                           ParseIds(fields, "bos_token_id", config.vocabulary));
  if (!bos.empty()) config.bos_id = bos.front();
  return absl::OkStatus();
}

absl::Status ParseStoredDType(const JsonFields& fields, ModelConfig& config) {
  const char* key = fields.Has("dtype") ? "dtype" : "torch_dtype";
  ANNULUS_ASSIGN_OR_RETURN(const std::string name, fields.String(key, ""));
  if (name == "float32") config.stored_dtype = DType::kF32;
  if (name == "bfloat16") config.stored_dtype = DType::kBF16;
  if (name == "float16") config.stored_dtype = DType::kF16;
  return absl::OkStatus();
}

absl::StatusOr<nlohmann::json> ParseObject(absl::string_view json, absl::string_view file_name) {
  ANNULUS_ASSIGN_OR_RETURN(nlohmann::json object, ParseStrictJson(json, file_name));
  if (object.is_object()) return object;
  return absl::InvalidArgumentError(absl::StrCat(file_name, ": not a JSON object"));
}

}  // namespace

std::vector<std::string> SupportedArchitectures() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.architecture);
  return names;
}

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json, absl::string_view file_name) {
  ANNULUS_ASSIGN_OR_RETURN(const nlohmann::json object, ParseObject(json, file_name));
  const JsonFields fields(std::string(file_name), "", object);
  ANNULUS_ASSIGN_OR_RETURN(const Family* family, FindFamily(fields));
  ANNULUS_RETURN_IF_ERROR(RefuseWhatIsNotServed(fields));
  ModelConfig config;
  config.architecture = std::string(family->architecture);
  config.model_type = std::string(family->model_type);
  ANNULUS_RETURN_IF_ERROR(ParseSizes(fields, *family, config));
  ANNULUS_RETURN_IF_ERROR(ParseHeads(fields, config));
  ANNULUS_RETURN_IF_ERROR(ParseRope(fields, file_name, config));
  ANNULUS_RETURN_IF_ERROR(ParseWindows(fields, *family, config));
  if (family->biases) {
    ANNULUS_ASSIGN_OR_RETURN(config.attention_bias, fields.Boolean("attention_bias", false));
    ANNULUS_ASSIGN_OR_RETURN(config.mlp_bias, fields.Boolean("mlp_bias", false));
  }
  ANNULUS_ASSIGN_OR_RETURN(config.tie_word_embeddings,
                           fields.Boolean("tie_word_embeddings", false));
  ANNULUS_RETURN_IF_ERROR(ParseTokens(fields, config));
  ANNULUS_RETURN_IF_ERROR(ParseStoredDType(fields, config));
  return config;
}

absl::Status ApplyGenerationConfig(absl::string_view json, absl::string_view file_name,
                                   ModelConfig& config) {
  ANNULUS_ASSIGN_OR_RETURN(const nlohmann::json object, ParseObject(json, file_name));
  const JsonFields fields(std::string(file_name), "", object);
  ANNULUS_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                           ParseIds(fields, "eos_token_id", config.vocabulary));
  if (!ids.empty()) config.eos_ids = std::move(ids);
  return absl::OkStatus();
}

absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& directory) {
  ANNULUS_RETURN_IF_ERROR(CheckModelDirectory(directory));
  absl::StatusOr<std::string> json = ReadSmallFile(directory, "config.json", kMostConfigBytes);
  if (absl::IsNotFound(json.status())) {
    return absl::NotFoundError(
        absl::StrCat(json.status().message(), "; needed: ", kSupportedWeights));
  }
  ANNULUS_RETURN_IF_ERROR(json.status());
  ANNULUS_ASSIGN_OR_RETURN(ModelConfig config,
                           ParseModelConfig(*json, absl::StrCat(directory, "/config.json")));
  json = ReadSmallFile(directory, "generation_config.json", kMostConfigBytes);
  if (absl::IsNotFound(json.status())) return config;
  ANNULUS_RETURN_IF_ERROR(json.status());
  ANNULUS_RETURN_IF_ERROR(
      ApplyGenerationConfig(*json, absl::StrCat(directory, "/generation_config.json"), config));
  return config;
}

}  // namespace annulus
