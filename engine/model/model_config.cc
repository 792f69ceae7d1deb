#include "engine/model/model_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/json_fields.h"
#include "engine/base/json_parser.h"
#include "engine/base/sha256.h"
#include "engine/model/families.h"
#include "engine/model/fields/config_limits.h"
#include "engine/model/fields/gemma_fields.h"
#include "engine/model/fields/layer_fields.h"
#include "engine/model/fields/rope_fields.h"
#include "engine/model/files/model_directory.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr int64_t kMostHidden = 1 << 16;
constexpr double kSmallestNormal = std::numeric_limits<float>::min();

// The activation by the name that Transformers has for it.
absl::Status ParseActivation(const JsonFields& fields, const Family& family, ModelConfig& config) {
  constexpr char kTanh[] = "gelu_pytorch_tanh";
  if (family.plain_block) {
    ANNULUS_ASSIGN_OR_RETURN(const std::string name, fields.String("hidden_act", kTanh));
    config.activation = Activation::kGeluTanhAlone;
    return name == kTanh ? absl::OkStatus()
                         : fields.Unsupported("hidden_act", "\"gelu_pytorch_tanh\"");
  }
  const char* key =
      family.gemma && fields.Has("hidden_activation") ? "hidden_activation" : "hidden_act";
  const bool absent = family.gemma && key == std::string("hidden_act");
  ANNULUS_ASSIGN_OR_RETURN(std::string name, fields.String(key, family.gemma ? kTanh : "silu"));
  // A Gemma file with `hidden_act` alone means the tanh form for any value, as in Transformers.
  if (absent) name = kTanh;
  if (name == "silu" || name == "swish") {
    config.activation = Activation::kSilu;
  } else if (name == kTanh) {
    config.activation = Activation::kGeluTanh;
  } else {
    return fields.Unsupported(key, "\"silu\" or \"gelu_pytorch_tanh\"");
  }
  return absl::OkStatus();
}

constexpr absl::string_view kCodings =
    "quant_method \"fp8\", \"fbgemm_fp8\", \"compressed-tensors\" with float8 weights, or "
    "\"mxfp4\" of gpt-oss. Take ";
// Instead of codes in other orders and with other scales.
constexpr absl::string_view kInsteadOfCodes =
    "a GGUF file of the same model (Q4_0, Q4_1 and Q8_0 stay as they are), or its files without "
    "quantization and --weights-dtype int4_g32 or int8";

// Which stored forms the weights may have; the tensors themselves say which they have.
absl::Status ParseQuantization(const JsonFields& fields, const Family& family,
                               ModelConfig& config) {
  const nlohmann::json* value = fields.Find("quantization_config");
  if (value == nullptr) return absl::OkStatus();
  const std::string allowed = absl::StrCat(kCodings, kInsteadOfCodes);
  if (!value->is_object()) return fields.Invalid("quantization_config", allowed);
  const JsonFields coding = fields.Inside("quantization_config", *value);
  ANNULUS_ASSIGN_OR_RETURN(const std::string method, coding.String("quant_method", ""));
  if (method == "mxfp4" && family.experts == ExpertsRule::kGptOss) return absl::OkStatus();
  if (method == "compressed-tensors") {
    ANNULUS_ASSIGN_OR_RETURN(const std::string format, coding.String("format", "float-quantized"));
    if (format != "float-quantized" && format != "naive-quantized") {
      return coding.Unsupported(
          "format", absl::StrCat("\"float-quantized\" (float8 weights). Take ", kInsteadOfCodes));
    }
    return absl::OkStatus();
  }
  if (method != "fp8" && method != "fbgemm_fp8") return coding.Unsupported("quant_method", allowed);
  if (!coding.Has("weight_block_size")) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<double> block,
                           coding.Numbers("weight_block_size", 2, false, 1, 1 << 20));
  config.fp8_block_rows = static_cast<int32_t>(block[0]);
  config.fp8_block_cols = static_cast<int32_t>(block[1]);
  return absl::OkStatus();
}

// The fallback of a key that the family has a default for, which is not 0.
std::optional<int64_t> Default(int64_t value) {
  return value == 0 ? std::nullopt : std::optional<int64_t>(value);
}

absl::Status ParseSizes(const JsonFields& fields, const Family& family, ModelConfig& config) {
  ANNULUS_ASSIGN_OR_RETURN(config.vocabulary, fields.Integer("vocab_size", 1, kMostVocabulary,
                                                             Default(family.vocabulary)));
  ANNULUS_ASSIGN_OR_RETURN(config.hidden_size, fields.Integer("hidden_size", 1, kMostHidden));
  if (!family.gemma3n) {  // whose layers differ: see ParseGemma3nLayers
    ANNULUS_ASSIGN_OR_RETURN(config.intermediate_size,
                             fields.Integer("intermediate_size", 1, kMostIntermediate));
  }
  ANNULUS_ASSIGN_OR_RETURN(const int64_t layers,
                           fields.Integer("num_hidden_layers", 1, kMostLayers));
  config.layers.resize(static_cast<size_t>(layers));
  ANNULUS_ASSIGN_OR_RETURN(config.max_context, fields.Integer("max_position_embeddings", 1,
                                                              kMostContext, family.context));
  config.norm = family.norm;
  ANNULUS_ASSIGN_OR_RETURN(const double epsilon,
                           fields.Number(family.epsilon, kSmallestNormal, 1, config.norm.epsilon));
  config.norm.epsilon = static_cast<float>(epsilon);
  return absl::OkStatus();
}

// An explicit null means as many as heads; an absent key may mean the family's number.
int64_t KvHeadsWhenAbsent(const JsonFields& fields, const Family& family, int32_t heads) {
  return fields.Contains("num_key_value_heads") || family.kv_heads == 0 ? heads : family.kv_heads;
}

absl::Status ParseHeads(const JsonFields& fields, const Family& family, ModelConfig& config) {
  AttentionShape shape;
  ANNULUS_ASSIGN_OR_RETURN(
      shape.heads, fields.Integer("num_attention_heads", 1, kMostHeads, Default(family.heads)));
  ANNULUS_ASSIGN_OR_RETURN(shape.kv_heads,
                           fields.Integer("num_key_value_heads", 1, shape.heads,
                                          KvHeadsWhenAbsent(fields, family, shape.heads)));
  if (shape.heads % shape.kv_heads != 0) {
    return fields.Invalid("num_key_value_heads",
                          absl::StrCat("a divisor of num_attention_heads, ", shape.heads));
  }
  const bool derived = !fields.Has("head_dim") && family.head_dim == 0;
  if (derived && config.hidden_size % shape.heads != 0) {
    return fields.Invalid("num_attention_heads",
                          absl::StrCat("a divisor of hidden_size, ", config.hidden_size,
                                       ", where head_dim is not given"));
  }
  const int64_t absent = derived ? config.hidden_size / shape.heads : family.head_dim;
  ANNULUS_ASSIGN_OR_RETURN(shape.k_dim, fields.Integer("head_dim", 2, kMostHeadDim, absent));
  shape.v_dim = shape.k_dim;
  SetAttention(config, shape);
  if (shape.k_dim % 2 == 0 && shape.k_dim <= kMostHeadDim) return absl::OkStatus();
  const std::string allowed = absl::StrCat("an even number from 2 to ", kMostHeadDim);
  if (fields.Has("head_dim")) return fields.Invalid("head_dim", allowed);
  return fields.Invalid("num_attention_heads",
                        absl::StrCat("what makes hidden_size / num_attention_heads, now ",
                                     shape.k_dim, ", ", allowed));
}

absl::Status ParseBiases(const JsonFields& fields, const Family& family, ModelConfig& config) {
  if (family.biases == BiasRule::kNone) return absl::OkStatus();
  if (family.biases == BiasRule::kQueryKeyValue) {
    config.attention_bias = true;
    return absl::OkStatus();
  }
  if (family.biases == BiasRule::kSwitched || family.biases == BiasRule::kSwitchedUse) {
    const char* key = family.biases == BiasRule::kSwitched ? "qkv_bias" : "use_qkv_bias";
    ANNULUS_ASSIGN_OR_RETURN(config.attention_bias, fields.Boolean(key, family.attention_bias));
    return absl::OkStatus();
  }
  const bool everywhere = family.biases == BiasRule::kEverywhere;
  const bool separate = family.biases == BiasRule::kSeparateOutput;
  ANNULUS_ASSIGN_OR_RETURN(
      config.attention_bias,
      fields.Boolean(everywhere ? "use_bias" : "attention_bias", family.attention_bias));
  config.output_bias = config.attention_bias;
  config.mlp_bias = everywhere && config.attention_bias;
  if (separate) {
    ANNULUS_ASSIGN_OR_RETURN(config.output_bias, fields.Boolean("attention_out_bias", false));
  }
  if (separate || family.biases == BiasRule::kAttentionMlp) {
    ANNULUS_ASSIGN_OR_RETURN(config.mlp_bias, fields.Boolean("mlp_bias", false));
  }
  return absl::OkStatus();
}

// Refuses a cap that the family's models were trained without. Transformers ignores it, so a file
// that has one says of itself what was never computed.
absl::Status CheckNoCap(const JsonFields& fields, const char* key, const Family& family) {
  if (!fields.Has(key)) return absl::OkStatus();
  return fields.Unsupported(
      key, absl::StrCat("null, because ", family.model_type,
                        " is computed without this cap, in Transformers too; delete the key, or "
                        "take the publisher's config.json"));
}

absl::Status ParseGemma(const JsonFields& fields, const Family& family, ModelConfig& config) {
  if (!family.gemma) return absl::OkStatus();
  config.scaled_embeddings = true;
  if (family.gemma4) return ParseGemma4(fields, config);
  constexpr char kScoreCap[] = "attn_logit_softcapping", kLogitsCap[] = "final_logit_softcapping";
  if (family.score_cap == 0) ANNULUS_RETURN_IF_ERROR(CheckNoCap(fields, kScoreCap, family));
  if (family.gemma3n) return ParseGemma3n(fields, family.logits_cap, config);
  config.unit_offset_norms = true;
  if (family.score_scalar > 0) {
    ANNULUS_ASSIGN_OR_RETURN(const double scalar, fields.Number("query_pre_attn_scalar", 1e-3, 1e6,
                                                                family.score_scalar));
    config.attention_scale = static_cast<float>(1 / std::sqrt(scalar));
  }
  if (family.score_scalar == 0) ANNULUS_RETURN_IF_ERROR(CheckNoCap(fields, kLogitsCap, family));
  ANNULUS_ASSIGN_OR_RETURN(config.attention_soft_cap, SoftCap(fields, kScoreCap, family.score_cap));
  ANNULUS_ASSIGN_OR_RETURN(config.logits_soft_cap, SoftCap(fields, kLogitsCap, family.logits_cap));
  ANNULUS_ASSIGN_OR_RETURN(const bool both_ways,
                           fields.Boolean("use_bidirectional_attention", false));
  return both_ways ? fields.Unsupported("use_bidirectional_attention", "false") : absl::OkStatus();
}

// What a config.json may switch on of its family's traits.
absl::Status ParseSwitches(const JsonFields& fields, const Family& family, ModelConfig& config) {
  NormTable<absl::string_view>& norms = config.traits.norms;
  if (family.head_norm_switch != nullptr) {
    ANNULUS_ASSIGN_OR_RETURN(const bool normed, fields.Boolean(family.head_norm_switch, false));
    if (!normed) norms[LayerNorm::kQuery] = norms[LayerNorm::kKey] = "";
  }
  if (family.parallel_switch != nullptr) {
    ANNULUS_ASSIGN_OR_RETURN(config.traits.parallel_blocks,
                             fields.Boolean(family.parallel_switch, false));
    if (config.traits.parallel_blocks) norms[LayerNorm::kBlockInput] = "";
  }
  return absl::OkStatus();
}

// Granite multiplies what each block adds to the residual by m. Here the residual is kept divided
// by m instead: blocks then add as they are, and norms give the same if their epsilon is divided by
// m * m.
absl::Status ParseMultipliers(const JsonFields& fields, const Family& family, ModelConfig& config) {
  constexpr double kLeast = 1e-4, kMost = 1e4;
  if (family.logit_scale > 0) {
    ANNULUS_ASSIGN_OR_RETURN(const double scale,
                             fields.Number("logit_scale", kLeast, kMost, family.logit_scale));
    config.logits_scale = static_cast<float>(scale);
  }
  if (!family.multipliers) return absl::OkStatus();
  const auto read = [&](const char* key) { return fields.Number(key, kLeast, kMost, 1); };
  ANNULUS_ASSIGN_OR_RETURN(const double embedding, read("embedding_multiplier"));
  ANNULUS_ASSIGN_OR_RETURN(const double residual, read("residual_multiplier"));
  ANNULUS_ASSIGN_OR_RETURN(const double attention, read("attention_multiplier"));
  ANNULUS_ASSIGN_OR_RETURN(const double logits, read("logits_scaling"));
  const double epsilon = double{config.norm.epsilon} / (residual * residual);
  if (epsilon > 1) {
    return fields.Invalid(
        "residual_multiplier",
        absl::StrCat("a number whose square is at least rms_norm_eps, ", config.norm.epsilon));
  }
  config.norm.epsilon = static_cast<float>(epsilon);
  config.embedding_scale = static_cast<float>(embedding / residual);
  config.attention_scale = static_cast<float>(attention);
  config.logits_scale = static_cast<float>(1 / logits);
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

// Where the key is: `first`, or else `second`. What is not about the decoder alone may be in the
// text half's fields or in those of the whole model.
const JsonFields& Place(const char* key, const JsonFields& first, const JsonFields& second) {
  return first.Has(key) ? first : second;
}

absl::Status ParseTokens(const JsonFields& fields, const JsonFields& whole, ModelConfig& config) {
  const auto read = [&](const char* key) {
    return ParseIds(Place(key, whole, fields), key, config.vocabulary);
  };
  ANNULUS_ASSIGN_OR_RETURN(config.eos_ids, read("eos_token_id"));
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<int32_t> bos, read("bos_token_id"));
  if (!bos.empty()) config.bos_id = bos.front();
  return absl::OkStatus();
}

absl::Status ParseStoredDType(const JsonFields& fields, const char* key, ModelConfig& config) {
  ANNULUS_ASSIGN_OR_RETURN(const std::string name, fields.String(key, ""));
  if (name == "float32") config.stored_dtype = DType::kF32;
  if (name == "bfloat16") config.stored_dtype = DType::kBF16;
  if (name == "float16") config.stored_dtype = DType::kF16;
  return absl::OkStatus();
}

// The object that describes the decoder.
absl::StatusOr<JsonFields> FieldsOf(const JsonFields& whole, const FoundFamily& found) {
  if (!found.inside) return whole;
  const nlohmann::json* text = whole.Find("text_config");
  if (text == nullptr || !text->is_object()) {
    return whole.Invalid("text_config", "an object that describes the text half");
  }
  const JsonFields fields = whole.Inside("text_config", *text);
  const std::string wanted(found.family->model_type);
  ANNULUS_ASSIGN_OR_RETURN(const std::string type, fields.String("model_type", wanted));
  if (type == wanted) return fields;
  std::vector<std::string> allowed;
  for (const absl::string_view text_type : found.text_types) {
    if (!text_type.empty()) allowed.push_back(absl::StrCat("\"", text_type, "\""));
  }
  return fields.Unsupported("model_type", absl::StrJoin(allowed, " or "));
}

absl::StatusOr<nlohmann::json> ParseObject(absl::string_view json, absl::string_view file_name) {
  ANNULUS_ASSIGN_OR_RETURN(nlohmann::json object,
                           ParseJsonTree(json, file_name, JsonNumbers::kPython));
  if (object.is_object()) return object;
  return absl::InvalidArgumentError(absl::StrCat(file_name, ": not a JSON object"));
}

}  // namespace

absl::StatusOr<int64_t> ContextLimit(const ModelConfig& config, int64_t asked) {
  if (asked == 0) return config.max_context;
  const int64_t reach = std::max(config.max_context, config.rope_context);
  if (asked <= reach) return asked;
  return absl::InvalidArgumentError(absl::StrCat(
      "max-context ", asked, " is above the model's trained length of ", config.max_context,
      " tokens; ",
      reach > config.max_context
          ? absl::StrCat("the rope setting of config.json is made for ", reach,
                         "; give at most this value")
          : "give at most this value, or a rope_scaling in config.json for a longer context"));
}

int32_t BlockSize(const ModelConfig& config, const LayerConfig& layer) {
  if (layer.intermediate_size > 0) return layer.intermediate_size;
  return layer.experts ? config.experts.shared_size : config.intermediate_size;
}

bool HasGate(const ModelConfig& config) { return config.activation != Activation::kGeluTanhAlone; }

int LastLayerWithKeys(const ModelConfig& config) {
  auto layer = static_cast<int>(config.layers.size()) - 1;
  while (layer > 0 && !config.layers[static_cast<size_t>(layer)].has_own_keys()) --layer;
  return layer;
}

void SetAttention(ModelConfig& config, const AttentionShape& shape) {
  for (LayerConfig& layer : config.layers) layer.attention = shape;
}

bool HasOneShape(const ModelConfig& config) {
  return std::all_of(config.layers.begin(), config.layers.end(), [&](const LayerConfig& layer) {
    return layer.attention == config.layers.front().attention;
  });
}

const AttentionShape& WidestAttention(const ModelConfig& config) {
  const auto full = std::find_if(config.layers.begin(), config.layers.end(),
                                 [](const LayerConfig& layer) { return layer.window == 0; });
  return (full == config.layers.end() ? config.layers.front() : *full).attention;
}

float AttentionScale(const ModelConfig& config, const AttentionShape& shape) {
  if (config.attention_scale != 0) return config.attention_scale;
  return 1.0f / std::sqrt(static_cast<float>(shape.k_dim));
}

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json, absl::string_view file_name) {
  ANNULUS_ASSIGN_OR_RETURN(const nlohmann::json object, ParseObject(json, file_name));
  const JsonFields whole(std::string(file_name), "", object);
  ANNULUS_ASSIGN_OR_RETURN(const FoundFamily found, FindFamily(whole));
  const Family* family = found.family;
  ANNULUS_ASSIGN_OR_RETURN(const JsonFields fields, FieldsOf(whole, found));
  ModelConfig config;
  config.sha256 = Sha256Of(json);
  config.architecture = std::string(found.architecture);
  config.model_type = std::string(family->model_type);
  config.traits = family->traits;
  ANNULUS_RETURN_IF_ERROR(ParseSwitches(fields, *family, config));
  ANNULUS_RETURN_IF_ERROR(ParseActivation(fields, *family, config));
  ANNULUS_RETURN_IF_ERROR(
      ParseQuantization(Place("quantization_config", fields, whole), *family, config));
  ANNULUS_RETURN_IF_ERROR(ParseSizes(fields, *family, config));
  ANNULUS_RETURN_IF_ERROR(ParseHeads(fields, *family, config));
  ANNULUS_RETURN_IF_ERROR(ParseNoRopeLayers(fields, *family, config));
  ANNULUS_RETURN_IF_ERROR(ParseWindows(fields, *family, config));
  if (family->gemma4) ANNULUS_RETURN_IF_ERROR(ParseGemma4Layers(fields, config));
  if (family->gemma3n) ANNULUS_RETURN_IF_ERROR(ParseGemma3nLayers(fields, config));
  ANNULUS_RETURN_IF_ERROR(ParseRopes(fields, *family, config));
  ANNULUS_RETURN_IF_ERROR(ParseExperts(fields, *family, config));
  ANNULUS_RETURN_IF_ERROR(ParseBiases(fields, *family, config));
  ANNULUS_RETURN_IF_ERROR(ParseGemma(fields, *family, config));
  ANNULUS_RETURN_IF_ERROR(ParseMultipliers(fields, *family, config));
  const char* tied = "tie_word_embeddings";
  ANNULUS_ASSIGN_OR_RETURN(config.tie_word_embeddings,
                           Place(tied, whole, fields).Boolean(tied, family->tied));
  ANNULUS_RETURN_IF_ERROR(ParseTokens(fields, whole, config));
  const char* dtype = fields.Has("dtype") || whole.Has("dtype") ? "dtype" : "torch_dtype";
  ANNULUS_RETURN_IF_ERROR(ParseStoredDType(Place(dtype, fields, whole), dtype, config));
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
  ANNULUS_ASSIGN_OR_RETURN(ModelDirectory read, ReadModelDirectory(directory));
  return std::move(read.config);
}

}  // namespace annulus
