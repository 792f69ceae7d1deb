#include "engine/gguf/gguf_tokenizer.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/text/sentencepiece_file.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using nlohmann::json;

constexpr char kPrefix[] = "tokenizer.ggml.";

// What splits a text before BPE, and what else a publisher's tokenizer.json says.
struct PreTokenizer {
  absl::string_view name = {};     // tokenizer.ggml.pre
  absl::string_view pattern = "";  // "": GPT-2's own, which ByteLevel brings
  bool digits_apart = false;       // every digit by itself, first of all
  bool ignore_merges = false;      // a piece that is a token is not merged
  bool adds_bos = false;           // unless add_bos_token says otherwise
  bool composes = false;           // normal form C first
};

constexpr absl::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array<PreTokenizer, 17> kPreTokenizers = {{
    {.name = "gpt-2"},
    {.name = "olmo", .composes = true},
    {.name = "phi-2"},
    {.name = "smollm", .digits_apart = true},
    {.name = "starcoder", .digits_apart = true},
    {.name = "refact", .digits_apart = true},
    {.name = "command-r", .digits_apart = true, .composes = true},
    {.name = "llama-bpe", .pattern = kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "llama3", .pattern = kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "llama-v3", .pattern = kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "dbrx", .pattern = kLlama3},
    {.name = "qwen2", .pattern = kQwen2, .composes = true},
    {.name = "deepseek-r1-qwen", .pattern = kQwen2, .composes = true},
    {.name = "megrez", .pattern = kQwen2, .composes = true},
    {.name = "tekken", .pattern = kTekken, .ignore_merges = true, .adds_bos = true},
    {.name = "gpt-4o", .pattern = kGpt4o},
    {.name = "llama4", .pattern = kGpt4o},
}};

// Reads the keys below tokenizer.ggml.
class TokenizerReader {
 public:
  explicit TokenizerReader(const GgufFile& file) : file_(file) {}

  absl::StatusOr<GgufTokenizerFiles> Read();

 private:
  absl::Status Invalid(absl::string_view key, absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": ", kPrefix, key, ": ", what));
  }
  const GgufValue* Find(absl::string_view key) const {
    return file_.Find(absl::StrCat(kPrefix, key));
  }
  absl::string_view Text(absl::string_view key) const {
    return file_.Text(absl::StrCat(kPrefix, key));
  }
  // Of a key that may be absent.
  absl::StatusOr<bool> Flag(absl::string_view key, bool absent) const;
  absl::StatusOr<std::optional<size_t>> Id(absl::string_view key) const;
  absl::Status ReadTokens();
  absl::Status ReadTypes();
  absl::StatusOr<std::string> BpeJson() const;
  absl::StatusOr<std::string> SentencePieceModel(bool unigram) const;
  absl::StatusOr<std::string> Config(bool adds_bos) const;

  const GgufFile& file_;
  const std::vector<absl::string_view>* tokens_ = nullptr;
  std::vector<SentencePieceFile::Type> types_;
};

absl::StatusOr<bool> TokenizerReader::Flag(absl::string_view key, bool absent) const {
  const GgufValue* const value = Find(key);
  if (value == nullptr) return absent;
  if (value->kind == GgufValue::Kind::kBool) return value->bits != 0;
  return Invalid(key, absl::StrCat("it is ", value->Shown(), "; allowed: true and false"));
}

absl::StatusOr<std::optional<size_t>> TokenizerReader::Id(absl::string_view key) const {
  const GgufValue* const value = Find(key);
  if (value == nullptr) return std::optional<size_t>();
  const json id = value->Scalar();
  if (id.is_number_integer() && id >= 0 && id < tokens_->size()) return id.get<size_t>();
  return Invalid(key, absl::StrCat("it is ", value->Shown(), "; allowed: ids from 0 to ",
                                   tokens_->size() - 1));
}

absl::Status TokenizerReader::ReadTokens() {
  const GgufValue* const tokens = Find("tokens");
  if (tokens == nullptr || tokens->texts.empty()) {
    return Invalid("tokens", "missing, or not an array of strings; needed: a text for every id");
  }
  if (tokens->texts.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return Invalid("tokens", "more than 2^31 of them");
  }
  tokens_ = &tokens->texts;
  for (size_t id = 0; id < tokens_->size(); ++id) {
    if (!FirstInvalidUtf8((*tokens_)[id]).has_value()) continue;
    return Invalid(
        "tokens", absl::StrCat("token ", id, ", \"", absl::CHexEscape((*tokens_)[id].substr(0, 64)),
                               "\", is not UTF-8"));
  }
  return absl::OkStatus();
}

// Absent: all are normal tokens.
absl::Status TokenizerReader::ReadTypes() {
  using Type = SentencePieceFile::Type;
  types_.assign(tokens_->size(), Type::kNormal);
  const GgufValue* const types = Find("token_type");
  if (types == nullptr) return absl::OkStatus();
  if (types->kind != GgufValue::Kind::kArray || types->element == GgufValue::Kind::kString ||
      types->count != tokens_->size()) {
    return Invalid("token_type",
                   absl::StrCat("not one number for each of the ", tokens_->size(), " tokens"));
  }
  for (size_t id = 0; id < types_.size(); ++id) {
    const json type = types->At(id);
    if (!type.is_number_integer() || type < 1 || type > 6) {
      return Invalid("token_type", absl::StrCat("token ", id, " has the type ", type.dump(),
                                                "; allowed: 1 to 6"));
    }
    types_[id] = static_cast<Type>(type.get<int>());
  }
  return absl::OkStatus();
}

json ByteLevel(bool own_pattern) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", own_pattern}};
}

json PreTokenizerJson(const PreTokenizer& kind) {
  json steps = json::array();
  if (kind.digits_apart) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (!kind.pattern.empty()) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", std::string(kind.pattern)}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back(ByteLevel(kind.pattern.empty()));
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

const PreTokenizer* FindPreTokenizer(absl::string_view name) {
  for (const PreTokenizer& kind : kPreTokenizers) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

absl::StatusOr<std::string> TokenizerReader::BpeJson() const {
  using Type = SentencePieceFile::Type;
  const PreTokenizer* const kind = FindPreTokenizer(Text("pre"));
  if (kind == nullptr) {
    std::vector<absl::string_view> names;
    for (const PreTokenizer& known : kPreTokenizers) names.push_back(known.name);
    return absl::UnimplementedError(absl::StrCat(
        file_.path(), ": ", kPrefix, "pre is \"", absl::CHexEscape(Text("pre").substr(0, 64)),
        "\"; served: ", absl::StrJoin(names, ", "),
        ". Serve the model from its Hugging Face directory instead"));
  }
  json vocabulary = json::object();
  json added = json::array();
  for (size_t id = 0; id < tokens_->size(); ++id) {
    const std::string text((*tokens_)[id]);
    // Unused ids are fillers up to the embedding's size.
    if (types_[id] == Type::kUnused) continue;
    if (!vocabulary.emplace(text, id).second) {
      return Invalid("tokens",
                     absl::StrCat("token ", id, ", \"", absl::CHexEscape(text.substr(0, 64)),
                                  "\", is there twice"));
    }
    if (types_[id] != Type::kControl && types_[id] != Type::kUserDefined) continue;
    added.push_back({{"id", id},
                     {"content", text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", types_[id] == Type::kControl}});
  }
  json merges = json::array();
  if (const GgufValue* const stored = Find("merges")) {
    if (stored->kind != GgufValue::Kind::kArray || stored->element != GgufValue::Kind::kString) {
      return Invalid("merges",
                     absl::StrCat("it is ", stored->Shown(), "; needed: an array of strings"));
    }
    for (const absl::string_view merge : stored->texts) merges.push_back(std::string(merge));
  }
  const json model = {{"type", "BPE"},
                      {"ignore_merges", kind->ignore_merges},
                      {"vocab", std::move(vocabulary)},
                      {"merges", std::move(merges)}};
  const json normalizer = kind->composes ? json{{"type", "NFC"}} : json();
  const json whole = {{"version", "1.0"},           {"added_tokens", std::move(added)},
                      {"normalizer", normalizer},   {"pre_tokenizer", PreTokenizerJson(*kind)},
                      {"decoder", ByteLevel(true)}, {"model", model}};
  return whole.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<std::string> TokenizerReader::SentencePieceModel(bool unigram) const {
  const GgufValue* const scores = Find("scores");
  if (scores == nullptr || scores->kind != GgufValue::Kind::kArray ||
      scores->element != GgufValue::Kind::kFloat || scores->count != tokens_->size()) {
    return Invalid("scores", absl::StrCat("missing, or not one number for each of the ",
                                          tokens_->size(), " tokens"));
  }
  SentencePieceFile made;
  made.kind = unigram ? SentencePieceFile::Kind::kUnigram : SentencePieceFile::Kind::kBpe;
  for (size_t id = 0; id < tokens_->size(); ++id) {
    const float score = scores->At(id).get<float>();
    if (!std::isfinite(score)) {
      return Invalid("scores", absl::StrCat("token ", id, " has a score that is not a number"));
    }
    made.pieces.push_back({std::string((*tokens_)[id]), score, types_[id]});
    if (types_[id] == SentencePieceFile::Type::kByte) made.byte_fallback = true;
  }
  const auto id_or = [&](absl::string_view key, int32_t absent) -> absl::StatusOr<int32_t> {
    ANNULUS_ASSIGN_OR_RETURN(const std::optional<size_t> id, Id(key));
    return id.has_value() ? static_cast<int32_t>(*id) : absent;
  };
  ANNULUS_ASSIGN_OR_RETURN(made.unk_id, id_or("unknown_token_id", 0));
  ANNULUS_ASSIGN_OR_RETURN(made.bos_id, id_or("bos_token_id", -1));
  ANNULUS_ASSIGN_OR_RETURN(made.eos_id, id_or("eos_token_id", -1));
  ANNULUS_ASSIGN_OR_RETURN(made.add_dummy_prefix, Flag("add_space_prefix", true));
  ANNULUS_ASSIGN_OR_RETURN(made.remove_extra_whitespaces,
                           Flag("remove_extra_whitespaces", unigram));
  if (const GgufValue* const map = Find("precompiled_charsmap")) {
    if (map->kind != GgufValue::Kind::kArray || map->width != 1) {
      return Invalid("precompiled_charsmap",
                     absl::StrCat("it is ", map->Shown(), "; needed: an array of bytes"));
    }
    made.character_map.assign(reinterpret_cast<const char*>(map->numbers), map->count);
  }
  return SerializeSentencePieceFile(made);
}

absl::StatusOr<std::string> TokenizerReader::Config(bool adds_bos) const {
  json config = json::object();
  for (const auto& [key, name] :
       {std::pair("bos_token_id", "bos_token"), std::pair("eos_token_id", "eos_token"),
        std::pair("unknown_token_id", "unk_token"), std::pair("padding_token_id", "pad_token")}) {
    ANNULUS_ASSIGN_OR_RETURN(const std::optional<size_t> id, Id(key));
    if (id.has_value()) config[name] = std::string((*tokens_)[*id]);
  }
  ANNULUS_ASSIGN_OR_RETURN(const bool bos, Flag("add_bos_token", adds_bos));
  ANNULUS_ASSIGN_OR_RETURN(const bool eos, Flag("add_eos_token", false));
  config["add_bos_token"] = bos && config.contains("bos_token");
  config["add_eos_token"] = eos && config.contains("eos_token");
  config["legacy"] = true;
  constexpr absl::string_view kTemplate = "tokenizer.chat_template";
  if (const GgufValue* const chat_template = file_.Find(kTemplate)) {
    if (chat_template->kind != GgufValue::Kind::kString ||
        FirstInvalidUtf8(chat_template->text).has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": ", kTemplate, " is ",
                                                     chat_template->Shown(),
                                                     "; needed: text in UTF-8"));
    }
    if (!chat_template->text.empty()) config["chat_template"] = std::string(chat_template->text);
  }
  return config.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<GgufTokenizerFiles> TokenizerReader::Read() {
  ANNULUS_RETURN_IF_ERROR(ReadTokens());
  ANNULUS_RETURN_IF_ERROR(ReadTypes());
  GgufTokenizerFiles files;
  const absl::string_view kind = Text("model");
  bool adds_bos = kind == "llama";
  if (kind == "gpt2") {
    ANNULUS_ASSIGN_OR_RETURN(files.tokenizer_json, BpeJson());
    adds_bos = FindPreTokenizer(Text("pre"))->adds_bos;
  } else if (kind == "llama" || kind == "t5") {
    ANNULUS_ASSIGN_OR_RETURN(files.tokenizer_model, SentencePieceModel(kind == "t5"));
  } else {
    return absl::UnimplementedError(absl::StrCat(
        file_.path(), ": ", kPrefix, "model is \"", absl::CHexEscape(kind.substr(0, 64)),
        "\"; served: gpt2 (byte-level BPE), llama (BPE with scores), t5 (Unigram)"));
  }
  ANNULUS_ASSIGN_OR_RETURN(files.config, Config(adds_bos));
  return files;
}

}  // namespace

absl::StatusOr<GgufTokenizerFiles> MakeGgufTokenizer(const GgufFile& file) {
  return TokenizerReader(file).Read();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadGgufTokenizer(const GgufTokenizerFiles& files,
                                                             absl::string_view path) {
  if (!files.tokenizer_json.empty()) {
    return LoadTokenizerJson(files.tokenizer_json, path, files.config, path);
  }
  return LoadTokenizerModel(files.tokenizer_model, path, files.config, path);
}

}  // namespace annulus
