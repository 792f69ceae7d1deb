#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/json_node.h"
#include "engine/text/models/bpe_model.h"
#include "engine/text/models/unigram_model.h"
#include "engine/text/pipeline_tokenizer.h"
#include "engine/text/sentencepiece/sentencepiece_stages.h"
#include "engine/text/stages/normalizer.h"
#include "engine/text/text_file.h"
#include "engine/text/tokenizer.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr char kTokenizerFile[] = "tokenizer.json";
constexpr char kSentencePieceFile[] = "tokenizer.model";
constexpr char kConfigFile[] = "tokenizer_config.json";

absl::Status CheckVersion(const JsonNode& root) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode node, root.Find("version"));
  ANNULUS_ASSIGN_OR_RETURN(const std::string version, root.StringMember("version", "1.0"));
  return version == "1.0" ? absl::OkStatus() : node.Unsupported("version", version, {"1.0"});
}

// Files of before the member `type` are known by what the kinds alone have: BPE has merges, and
// Unigram a vocabulary that is a list of tokens with their scores.
absl::StatusOr<std::string> ModelType(const JsonNode& node) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode merges, node.Find("merges"));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode vocabulary, node.Find("vocab"));
  const char* const known = !merges.is_null() ? "BPE" : vocabulary.is_array() ? "Unigram" : "";
  return node.StringMember("type", known);
}

absl::StatusOr<std::unique_ptr<Model>> ParseModel(const JsonNode& node, bool byte_level,
                                                  Vocabulary* vocabulary) {
  ANNULUS_ASSIGN_OR_RETURN(const std::string type, ModelType(node));
  if (type == "BPE") return BpeModel::Parse(node, byte_level, vocabulary);
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode type_node, node.Find("type"));
  if (type != "Unigram") return type_node.Unsupported("model", type, {"BPE", "Unigram"});
  if (byte_level) {
    return type_node.Unsupported("a model after the pre-tokenizer ByteLevel", type, {"BPE"});
  }
  return UnigramModel::Parse(node, vocabulary);
}

absl::StatusOr<PipelineStages> ParseStages(const JsonNode& root) {
  ANNULUS_RETURN_IF_ERROR(CheckVersion(root));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode normalizer_node, root.Find("normalizer"));
  ANNULUS_ASSIGN_OR_RETURN(TextFilters normalizer, ParseNormalizer(normalizer_node));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode pre_node, root.Find("pre_tokenizer"));
  ANNULUS_ASSIGN_OR_RETURN(PreTokenizers pre_tokenizers, ParsePreTokenizer(pre_node));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode model_node, root.Require("model"));
  Vocabulary vocabulary;
  ANNULUS_ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
                           ParseModel(model_node, pre_tokenizers.byte_level, &vocabulary));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode added_node, root.Find("added_tokens"));
  ANNULUS_ASSIGN_OR_RETURN(AddedTokens added_tokens,
                           AddedTokens::Parse(added_node, normalizer, &vocabulary));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode post_node, root.Find("post_processor"));
  ANNULUS_ASSIGN_OR_RETURN(PostProcessor post_processor, ParsePostProcessor(post_node, vocabulary));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode decoder_node, root.Find("decoder"));
  ANNULUS_ASSIGN_OR_RETURN(Decoder decoder, Decoder::Parse(decoder_node));
  std::optional<int32_t> bos;
  if (!post_processor.prefix.empty()) bos = post_processor.prefix.front();
  return PipelineStages{std::move(vocabulary),   std::move(normalizer),
                        std::move(added_tokens), std::move(pre_tokenizers),
                        std::move(model),        std::move(post_processor),
                        std::move(decoder),      bos,
                        /*control_pieces=*/{}};
}

// The id of the token that `key` names, as a string or as an object with the member "content".
absl::StatusOr<std::optional<int32_t>> NamedToken(const JsonNode& config, absl::string_view key,
                                                  const Vocabulary& vocabulary) {
  ANNULUS_ASSIGN_OR_RETURN(JsonNode node, config.Find(key));
  if (node.is_object()) {
    ANNULUS_ASSIGN_OR_RETURN(node, node.Require("content"));
  }
  if (node.is_null()) return std::optional<int32_t>();
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view token, node.String());
  const std::optional<int32_t> id = vocabulary.Find(token);
  if (!id.has_value()) {
    return node.Error(absl::StrCat("the token \"", token, "\" is not in the vocabulary"));
  }
  return id;
}

// `add_bos_token` and `add_eos_token` count only where the tokenizer has no template; `add_bos`
// holds where the file does not say.
absl::Status ApplyConfig(const JsonNode& config, bool add_bos, PipelineStages* stages) {
  ANNULUS_ASSIGN_OR_RETURN(const std::optional<int32_t> bos,
                           NamedToken(config, "bos_token", stages->vocabulary));
  if (bos.has_value()) stages->bos = bos;
  if (stages->post_processor.has_template) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(add_bos, config.BoolMember("add_bos_token", add_bos));
  ANNULUS_ASSIGN_OR_RETURN(const bool add_eos, config.BoolMember("add_eos_token", false));
  if (add_bos && !stages->bos.has_value()) {
    return config.Error("add_bos_token without a bos_token");
  }
  if (add_bos) stages->post_processor.prefix.push_back(*stages->bos);
  if (!add_eos) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(const std::optional<int32_t> eos,
                           NamedToken(config, "eos_token", stages->vocabulary));
  if (!eos.has_value()) return config.Error("add_eos_token without an eos_token");
  stages->post_processor.suffix.push_back(*eos);
  return absl::OkStatus();
}

absl::StatusOr<PipelineStages> ParseTokenizerJson(absl::string_view json,
                                                  absl::string_view file_name) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(json, file_name));
  return ParseStages(document.root());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerJson(absl::string_view json,
                                                             absl::string_view file_name) {
  ANNULUS_ASSIGN_OR_RETURN(PipelineStages stages, ParseTokenizerJson(json, file_name));
  return PipelineTokenizer::Create(std::move(stages));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerJson(absl::string_view json,
                                                             absl::string_view file_name,
                                                             absl::string_view config,
                                                             absl::string_view config_name) {
  ANNULUS_ASSIGN_OR_RETURN(PipelineStages stages, ParseTokenizerJson(json, file_name));
  ANNULUS_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(config, config_name));
  ANNULUS_RETURN_IF_ERROR(ApplyConfig(document.root(), /*add_bos=*/false, &stages));
  return PipelineTokenizer::Create(std::move(stages));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerModel(absl::string_view bytes,
                                                              absl::string_view file_name,
                                                              absl::string_view config,
                                                              absl::string_view config_name) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(config, config_name));
  ANNULUS_ASSIGN_OR_RETURN(PipelineStages stages,
                           ParseSentencePieceStages(bytes, file_name, document.root()));
  ANNULUS_RETURN_IF_ERROR(ApplyConfig(document.root(), stages.bos.has_value(), &stages));
  return PipelineTokenizer::Create(std::move(stages));
}

absl::StatusOr<std::string> ReadTokenizerConfig(const std::filesystem::path& model_directory) {
  absl::StatusOr<std::string> config = ReadTextFile(model_directory / kConfigFile);
  if (absl::IsNotFound(config.status())) return "{}";
  return config;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::filesystem::path& model_directory) {
  ANNULUS_ASSIGN_OR_RETURN(const std::string config, ReadTokenizerConfig(model_directory));
  return LoadTokenizer(model_directory, config);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::filesystem::path& model_directory, absl::string_view config) {
  const std::filesystem::path config_file = model_directory / kConfigFile;
  const std::filesystem::path file = model_directory / kTokenizerFile;
  const absl::StatusOr<std::string> json = ReadTextFile(file);
  if (absl::IsNotFound(json.status())) {
    const std::filesystem::path model_file = model_directory / kSentencePieceFile;
    const absl::StatusOr<std::string> bytes = ReadTextFile(model_file);
    if (absl::IsNotFound(bytes.status())) {
      return absl::NotFoundError(absl::StrCat(json.status().message(),
                                              "; a model directory needs a tokenizer.json, or a ",
                                              "tokenizer.model of sentencepiece"));
    }
    if (!bytes.ok()) return bytes.status();
    return LoadTokenizerModel(*bytes, model_file.string(), config, config_file.string());
  }
  if (!json.ok()) return json.status();
  return LoadTokenizerJson(*json, file.string(), config, config_file.string());
}

}  // namespace annulus
