#include "engine/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/gguf/gguf_controls.h"
#include "engine/gguf/gguf_pre_tokenizers.h"
#include "engine/text/sentencepiece/sentencepiece_file.h"
#include "engine/text/stages/added_tokens.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using nlohmann::json;
using Type = SentencePieceFile::Type;

using TextList = std::vector<absl::string_view>;

constexpr char kPrefix[] = "tokenizer.ggml.";
constexpr size_t kMostControlBytes = 128;  // of a control token that the file calls normal text

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
  absl::StatusOr<json> ReadConfig(bool adds_bos) const;
  absl::Status CorrectTypes(absl::string_view kind, const json& config);
  absl::flat_hash_set<size_t> MergedAmong(const std::vector<size_t>& ids,
                                          absl::string_view kind) const;
  absl::Status ReadVocabulary(json& vocabulary, json& added) const;
  absl::StatusOr<json> ReadMerges() const;
  absl::StatusOr<std::string> BpeJson() const;
  absl::StatusOr<std::string> CharacterBpeJson();
  absl::StatusOr<std::string> SentencePieceModel(bool unigram);
  absl::StatusOr<int32_t> FindUnknown() const;
  std::string PieceText(size_t id) const;
  json AddedTokensDecoder() const;

  const GgufFile& file_;
  const std::vector<absl::string_view>* tokens_ = nullptr;
  std::vector<Type> types_;
  bool adds_prefix_ = false;                      // a space before a text
  absl::flat_hash_set<absl::string_view> texts_;  // of all tokens, if they have scores
  std::vector<std::string> warnings_;
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
    return Invalid("tokens", "missing, or not an array of strings; needed: a string for every id");
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

absl::Status TokenizerReader::ReadVocabulary(json& vocabulary, json& added) const {
  vocabulary = json::object();
  added = json::array();
  for (size_t id = 0; id < tokens_->size(); ++id) {
    const std::string text((*tokens_)[id]);
    // Unused ids are fillers up to the embedding's size.
    if (types_[id] == Type::kUnused) continue;
    if (!vocabulary.emplace(text, id).second) {
      return Invalid("tokens",
                     absl::StrCat("token ", id, ", \"", absl::CHexEscape(text.substr(0, 64)),
                                  "\", appears twice"));
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
  return absl::OkStatus();
}

absl::StatusOr<json> TokenizerReader::ReadMerges() const {
  json merges = json::array();
  const GgufValue* const stored = Find("merges");
  if (stored == nullptr) return merges;
  if (stored->kind != GgufValue::Kind::kArray || stored->element != GgufValue::Kind::kString) {
    return Invalid("merges",
                   absl::StrCat("it is ", stored->Shown(), "; needed: an array of strings"));
  }
  for (const absl::string_view merge : stored->texts) merges.push_back(std::string(merge));
  return merges;
}

absl::StatusOr<std::string> TokenizerReader::BpeJson() const {
  const GgufPreTokenizer* const kind = FindGgufPreTokenizer(Text("pre"));
  if (kind == nullptr) {
    return absl::UnimplementedError(absl::StrCat(
        file_.path(), ": ", kPrefix, "pre is \"", absl::CHexEscape(Text("pre").substr(0, 64)),
        "\"; supported: ", GgufPreTokenizers(),
        ". Serve the model from its Hugging Face directory instead"));
  }
  json vocabulary, added;
  ANNULUS_RETURN_IF_ERROR(ReadVocabulary(vocabulary, added));
  ANNULUS_ASSIGN_OR_RETURN(json merges, ReadMerges());
  const json model = {{"type", "BPE"},
                      {"ignore_merges", kind->ignore_merges},
                      {"vocab", std::move(vocabulary)},
                      {"merges", std::move(merges)}};
  const json normalizer = kind->composes ? json{{"type", "NFC"}} : json();
  const json whole = {{"version", "1.0"},
                      {"added_tokens", std::move(added)},
                      {"normalizer", normalizer},
                      {"pre_tokenizer", GgufPreTokenizerJson(*kind)},
                      {"decoder", ByteLevelJson(true)},
                      {"model", model}};
  return whole.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Gemma 4's: merges of characters, with "\u2581" for spaces, and bytes for characters that no token
// has. Nothing splits a text before; llama.cpp does at line feeds, which merge with none but
// themselves.
absl::StatusOr<std::string> TokenizerReader::CharacterBpeJson() {
  ANNULUS_ASSIGN_OR_RETURN(const int32_t unknown, FindUnknown());
  json vocabulary, added;
  ANNULUS_RETURN_IF_ERROR(ReadVocabulary(vocabulary, added));
  ANNULUS_ASSIGN_OR_RETURN(json merges, ReadMerges());
  const json space = {{"String", " "}};
  const json mark = "\u2581";
  const json model = {{"type", "BPE"},
                      {"unk_token", std::string((*tokens_)[static_cast<size_t>(unknown)])},
                      {"fuse_unk", true},
                      {"byte_fallback", true},
                      {"ignore_merges", false},
                      {"vocab", std::move(vocabulary)},
                      {"merges", std::move(merges)}};
  const json decoders = {{{"type", "Replace"}, {"pattern", {{"String", mark}}}, {"content", " "}},
                         {{"type", "ByteFallback"}},
                         {{"type", "Fuse"}}};
  const json whole = {{"version", "1.0"},
                      {"added_tokens", std::move(added)},
                      {"normalizer", {{"type", "Replace"}, {"pattern", space}, {"content", mark}}},
                      {"pre_tokenizer", json()},
                      {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
                      {"model", model}};
  return whole.dump(-1, ' ', false, json::error_handler_t::replace);
}

// The unknown piece. Converters type every piece that the publisher lists as special CONTROL, the
// unknown one too, and say by the key which it is, if they know.
absl::StatusOr<int32_t> TokenizerReader::FindUnknown() const {
  const auto typed = std::find(types_.begin(), types_.end(), Type::kUnknown);
  if (typed != types_.end()) return static_cast<int32_t>(typed - types_.begin());
  ANNULUS_ASSIGN_OR_RETURN(const std::optional<size_t> said, Id("unknown_token_id"));
  if (said.has_value()) return static_cast<int32_t>(*said);
  for (size_t id = 0; id < types_.size(); ++id) {
    if (types_[id] == Type::kControl && (*tokens_)[id] == "<unk>") return static_cast<int32_t>(id);
  }
  return Invalid(
      "unknown_token_id",
      "missing, and the vocabulary has no token of type UNKNOWN (2); needed: one of them");
}

absl::StatusOr<std::string> TokenizerReader::SentencePieceModel(bool unigram) {
  const GgufValue* const scores = Find("scores");
  if (scores == nullptr || scores->kind != GgufValue::Kind::kArray ||
      scores->element != GgufValue::Kind::kFloat || scores->count != tokens_->size()) {
    return Invalid("scores", absl::StrCat("missing, or not one number for each of the ",
                                          tokens_->size(), " tokens"));
  }
  SentencePieceFile made;
  made.kind = unigram ? SentencePieceFile::Kind::kUnigram : SentencePieceFile::Kind::kBpe;
  ANNULUS_ASSIGN_OR_RETURN(made.unk_id, FindUnknown());
  types_[static_cast<size_t>(made.unk_id)] = Type::kUnknown;
  ANNULUS_ASSIGN_OR_RETURN(adds_prefix_, Flag("add_space_prefix", true));
  made.add_dummy_prefix = adds_prefix_;
  texts_.insert(tokens_->begin(), tokens_->end());
  for (size_t id = 0; id < tokens_->size(); ++id) {
    const float score = scores->At(id).get<float>();
    if (!std::isfinite(score)) {
      return Invalid("scores", absl::StrCat("token ", id, " has a score that is not a number"));
    }
    made.pieces.push_back({PieceText(id), score, types_[id]});
    if (types_[id] == Type::kByte) made.byte_fallback = true;
  }
  const auto id_or = [&](absl::string_view key) -> absl::StatusOr<int32_t> {
    ANNULUS_ASSIGN_OR_RETURN(const std::optional<size_t> id, Id(key));
    return id.has_value() ? static_cast<int32_t>(*id) : -1;
  };
  ANNULUS_ASSIGN_OR_RETURN(made.bos_id, id_or("bos_token_id"));
  ANNULUS_ASSIGN_OR_RETURN(made.eos_id, id_or("eos_token_id"));
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

// Converters store user-defined pieces with spaces where the publisher has "▁". Where a text gets
// no prefix, both are the same: then the model's own merging of "▁" stays in agreement with them.
// Else they are cut out of the text as it is given, and what is behind them gets a prefix again. So
// they are if another token has the text with "▁".
std::string TokenizerReader::PieceText(size_t id) const {
  std::string text((*tokens_)[id]);
  if (types_[id] != Type::kUserDefined || adds_prefix_) return text;
  std::string own = absl::StrReplaceAll(text, {{" ", "\u2581"}});
  return own != text && texts_.contains(own) ? text : own;
}

// What tokenizer.model cannot say of tokens.
json TokenizerReader::AddedTokensDecoder() const {
  // Phi-3's tokenizer takes the white space behind them, and its template writes some there. A GGUF
  // file does not say that.
  const bool strips = file_.Text("general.architecture") == "phi3";
  json added = json::object();
  for (size_t id = 0; id < types_.size(); ++id) {
    const absl::string_view text = (*tokens_)[id];
    const bool is_user_defined = types_[id] == Type::kUserDefined;
    const bool is_turn = types_[id] == Type::kControl && text != "<s>" && text != "<|endoftext|>";
    const bool rstrip = strips && (is_turn || text == "</s>");
    if (!is_user_defined && !rstrip) continue;
    added[absl::StrCat(id)] = {{"content", PieceText(id)}, {"lstrip", false},
                               {"normalized", false},      {"rstrip", rstrip},
                               {"single_word", false},     {"special", !is_user_defined}};
  }
  return added;
}

absl::StatusOr<json> TokenizerReader::ReadConfig(bool adds_bos) const {
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
  return config;
}

// Which of these tokens merging others makes: text like any other, even in brackets.
absl::flat_hash_set<size_t> TokenizerReader::MergedAmong(const std::vector<size_t>& ids,
                                                         absl::string_view kind) const {
  absl::flat_hash_set<size_t> merged;
  if (ids.empty()) return merged;
  if (kind == "gpt2" || kind == "gemma4") {
    absl::flat_hash_map<absl::string_view, size_t> by_text;
    for (const size_t id : ids) by_text.emplace((*tokens_)[id], id);
    const GgufValue* const merges = Find("merges");
    for (const absl::string_view merge : merges == nullptr ? TextList() : merges->texts) {
      const auto made = by_text.find(absl::StrReplaceAll(merge, {{" ", ""}}));
      if (made != by_text.end()) merged.insert(made->second);
    }
  } else if (kind == "llama") {
    const absl::flat_hash_set<absl::string_view> known(tokens_->begin(), tokens_->end());
    const auto is_symbol = [&](absl::string_view text) {
      size_t end = 0;
      NextCodePoint(text, &end);
      return end == text.size() || known.contains(text);
    };
    for (const size_t id : ids) {
      const absl::string_view text = (*tokens_)[id];
      for (size_t cut = 1; cut < text.size(); ++cut) {
        if (is_symbol(text.substr(0, cut)) && is_symbol(text.substr(cut))) merged.insert(id);
      }
    }
  }
  return merged;
}

// Some files type control tokens as normal text. A template that writes one would have it broken
// into pieces, and a document could steer the model by its text.
absl::Status TokenizerReader::CorrectTypes(absl::string_view kind, const json& config) {
  std::vector<std::string> corrected;
  const auto correct = [&](size_t id) {
    if (types_[id] != Type::kNormal || !IsMarkup((*tokens_)[id])) return;
    types_[id] = Type::kControl;
    corrected.push_back(std::string((*tokens_)[id]));
  };
  for (const char* key : {"bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id"}) {
    ANNULUS_ASSIGN_OR_RETURN(const std::optional<size_t> id, Id(key));
    if (id.has_value()) correct(*id);
  }
  const auto is_candidate = [&](size_t id) {
    return types_[id] == Type::kNormal && (*tokens_)[id].size() <= kMostControlBytes;
  };
  const std::string chat_template = config.value("chat_template", "");
  if (!chat_template.empty()) {
    const absl::StatusOr<std::vector<size_t>> written =
        FindWrittenControls(chat_template, config, *tokens_, is_candidate);
    if (!written.ok()) {
      return Invalid("tokens", absl::StrCat("of the tokens in brackets with the type NORMAL: ",
                                            written.status().message()));
    }
    const absl::flat_hash_set<size_t> merged = MergedAmong(*written, kind);
    for (const size_t id : *written) {
      if (!merged.contains(id)) correct(id);
    }
  }
  if (corrected.empty()) return absl::OkStatus();
  const size_t shown = std::min<size_t>(corrected.size(), 8);
  warnings_.push_back(absl::StrCat(
      file_.path(), ": ", kPrefix, "token_type marks ", corrected.size(),
      " tokens as normal text although the chat template writes them or they begin or end texts: ",
      absl::StrJoin(corrected.begin(), corrected.begin() + static_cast<ptrdiff_t>(shown), ", "),
      shown < corrected.size() ? ", .." : "",
      "; they are treated as control tokens. Convert the model again to fix their types"));
  return absl::OkStatus();
}

absl::StatusOr<GgufTokenizerFiles> TokenizerReader::Read() {
  ANNULUS_RETURN_IF_ERROR(ReadTokens());
  ANNULUS_RETURN_IF_ERROR(ReadTypes());
  GgufTokenizerFiles files;
  const absl::string_view kind = Text("model");
  if (kind != "gpt2" && kind != "llama" && kind != "t5" && kind != "gemma4") {
    return absl::UnimplementedError(absl::StrCat(file_.path(), ": ", kPrefix, "model is \"",
                                                 absl::CHexEscape(kind.substr(0, 64)),
                                                 "\"; supported: gpt2 (byte-level BPE), llama (BPE "
                                                 "with scores), t5 (Unigram), gemma4 (BPE of "
                                                 "characters)"));
  }
  const GgufPreTokenizer* const pre = FindGgufPreTokenizer(Text("pre"));
  const bool adds_bos =
      kind == "llama" || kind == "gemma4" || (kind == "gpt2" && pre != nullptr && pre->adds_bos);
  ANNULUS_ASSIGN_OR_RETURN(json config, ReadConfig(adds_bos));
  ANNULUS_RETURN_IF_ERROR(CorrectTypes(kind, config));
  if (kind == "gpt2") {
    ANNULUS_ASSIGN_OR_RETURN(files.tokenizer_json, BpeJson());
  } else if (kind == "gemma4") {
    ANNULUS_ASSIGN_OR_RETURN(files.tokenizer_json, CharacterBpeJson());
  } else {
    ANNULUS_ASSIGN_OR_RETURN(files.tokenizer_model, SentencePieceModel(kind == "t5"));
    config["added_tokens_decoder"] = AddedTokensDecoder();
  }
  files.config = config.dump(-1, ' ', false, json::error_handler_t::replace);
  files.warnings = std::move(warnings_);
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
