#include "engine/text/sentencepiece/sentencepiece_stages.h"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json_node.h"
#include "engine/text/models/unigram_model.h"
#include "engine/text/models/vocabulary.h"
#include "engine/text/sentencepiece/sentencepiece_file.h"
#include "engine/text/sentencepiece/sentencepiece_library.h"
#include "engine/text/sentencepiece/sentencepiece_model.h"
#include "engine/text/stages/added_tokens.h"
#include "engine/text/stages/character_filters.h"
#include "engine/text/stages/normalizer.h"
#include "engine/text/stages/precompiled.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using nlohmann::json;
using Type = SentencePieceFile::Type;

constexpr char kSpace[] = "\u2581";

absl::Status CheckSupported(const SentencePieceFile& file) {
  const auto refuse = [](absl::string_view what) {
    return absl::UnimplementedError(
        absl::StrCat(what, " is not supported; convert the tokenizer to tokenizer.json"));
  };
  if (file.kind != SentencePieceFile::Kind::kBpe &&
      file.kind != SentencePieceFile::Kind::kUnigram) {
    return refuse("a model_type other than BPE and UNIGRAM");
  }
  if (file.whitespace_as_suffix) return refuse("treat_whitespace_as_suffix");
  return absl::OkStatus();
}

// The tokens that tokenizer_config.json adds, as added_tokens of a tokenizer.json, by id.
using ListedTokens = std::map<int64_t, json>;

absl::Status ReadListed(absl::string_view key, const JsonNode& node, ListedTokens* listed) {
  int64_t id = 0;
  if (!absl::SimpleAtoi(key, &id) || id < 0 || id >= Vocabulary::kMaxSize) {
    return node.Error(absl::StrCat("the key must be an id from 0 to ", Vocabulary::kMaxSize - 1));
  }
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode content, node.Require("content"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, content.String());
  if (text.empty()) return content.Error("the token is empty");
  json token = {{"id", id}, {"content", text}, {"normalized", false}};
  for (const char* flag : {"special", "lstrip", "rstrip", "single_word"}) {
    ANNULUS_ASSIGN_OR_RETURN(const bool value, node.BoolMember(flag, false));
    token[flag] = value;
  }
  (*listed)[id] = std::move(token);
  return absl::OkStatus();
}

absl::StatusOr<ListedTokens> ReadListedTokens(const JsonNode& config) {
  ListedTokens listed;
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode tokens, config.Find("added_tokens_decoder"));
  if (tokens.is_null()) return listed;
  ANNULUS_RETURN_IF_ERROR(tokens.ForEachMember(
      [&](absl::string_view key, const JsonNode& node) { return ReadListed(key, node, &listed); }));
  return listed;
}

// Pieces that are not used are ids without a token. A listed token takes the place of the piece.
absl::Status AddPieces(const SentencePieceFile& file, const ListedTokens& listed,
                       Vocabulary* vocabulary) {
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    if (file.pieces[id].type == Type::kUnused) continue;
    if (listed.contains(static_cast<int64_t>(id))) continue;
    ANNULUS_RETURN_IF_ERROR(vocabulary->Add(file.pieces[id].text, static_cast<int64_t>(id)));
  }
  for (const auto& [id, token] : listed) {
    ANNULUS_RETURN_IF_ERROR(vocabulary->Add(token["content"].get_ref<const std::string&>(), id));
  }
  return absl::OkStatus();
}

absl::StatusOr<AddedTokens> MakeAddedTokens(const SentencePieceFile& file, ListedTokens listed,
                                            Vocabulary* vocabulary) {
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const SentencePieceFile::Piece& piece = file.pieces[id];
    if (piece.type != Type::kControl && piece.type != Type::kUnknown) continue;
    const json own = {{"id", id}, {"content", piece.text}, {"normalized", false}};
    listed.emplace(static_cast<int64_t>(id), own).first->second["special"] = true;
  }
  json tokens = json::array();
  for (auto& [id, token] : listed) tokens.push_back(std::move(token));
  ANNULUS_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(tokens.dump(), ""));
  return AddedTokens::Parse(document.root(), TextFilters(), vocabulary);
}

absl::StatusOr<std::unique_ptr<Model>> MakeModel(const SentencePieceFile& file) {
  if (file.kind == SentencePieceFile::Kind::kUnigram) return UnigramModel::Create(file);
  ANNULUS_ASSIGN_OR_RETURN(const SentencePieceLibrary* const library, SentencePieceLibrary::Get());
  return SentencePieceModel::Create(file, *library);
}

absl::StatusOr<Decoder> MakeDecoder(const SentencePieceFile& file) {
  json stages = json::array();
  stages.push_back({{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}});
  stages.push_back({{"type", "ByteFallback"}});
  stages.push_back({{"type", "Fuse"}});
  if (file.add_dummy_prefix) {
    stages.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  const json decoder = {{"type", "Sequence"}, {"decoders", stages}};
  ANNULUS_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(decoder.dump(), ""));
  return Decoder::Parse(document.root());
}

absl::StatusOr<PipelineStages> MakeStages(const SentencePieceFile& file, bool legacy,
                                          ListedTokens listed) {
  ANNULUS_RETURN_IF_ERROR(CheckSupported(file));
  PipelineStages stages;
  ANNULUS_RETURN_IF_ERROR(AddPieces(file, listed, &stages.vocabulary));
  if (!stages.vocabulary.Token(file.unk_id).has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("unk_id ", file.unk_id, " has no piece"));
  }
  ANNULUS_ASSIGN_OR_RETURN(stages.model, MakeModel(file));
  if (!file.character_map.empty()) {
    std::optional<CharacterMap> map = CharacterMap::Parse(file.character_map);
    if (!map.has_value()) {
      return absl::InvalidArgumentError("precompiled_charsmap is no character map");
    }
    std::vector<std::string> kept;
    for (const SentencePieceFile::Piece& piece : file.pieces) {
      if (piece.type == Type::kUserDefined) kept.push_back(piece.text);
    }
    stages.normalizer.push_back(MakeLongestMatch(*std::move(map), kept));
  }
  if (file.remove_extra_whitespaces) stages.normalizer.push_back(MakeCollapseSpaces());
  if (file.add_dummy_prefix) stages.normalizer.push_back(MakePrepend(" ", /*at_start=*/!legacy));
  if (file.escape_whitespaces) {
    stages.normalizer.push_back(MakeReplace(Pattern::FromLiteral(" "), kSpace));
  }
  // The library takes spaces off the end only when it has put "▁" for them.
  if (file.remove_extra_whitespaces) {
    stages.normalizer.push_back(MakeTrimEnd(file.escape_whitespaces ? kSpace : " "));
  }
  ANNULUS_ASSIGN_OR_RETURN(stages.added_tokens,
                           MakeAddedTokens(file, std::move(listed), &stages.vocabulary));
  ANNULUS_ASSIGN_OR_RETURN(stages.decoder, MakeDecoder(file));
  if (stages.vocabulary.Token(file.bos_id).has_value()) stages.bos = file.bos_id;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const SentencePieceFile::Piece& piece = file.pieces[id];
    if (piece.type == Type::kUserDefined && IsMarkup(piece.text)) {
      stages.control_pieces.push_back(static_cast<int32_t>(id));
    }
  }
  return stages;
}

}  // namespace

absl::StatusOr<PipelineStages> ParseSentencePieceStages(absl::string_view bytes,
                                                        absl::string_view name,
                                                        const JsonNode& config) {
  ANNULUS_ASSIGN_OR_RETURN(const bool legacy, config.BoolMember("legacy", true));
  ANNULUS_ASSIGN_OR_RETURN(ListedTokens listed, ReadListedTokens(config));
  absl::StatusOr<SentencePieceFile> file = ParseSentencePieceFile(bytes);
  absl::StatusOr<PipelineStages> stages = file.ok() ? MakeStages(*file, legacy, std::move(listed))
                                                    : absl::StatusOr<PipelineStages>(file.status());
  if (stages.ok()) return stages;
  return absl::Status(stages.status().code(), absl::StrCat(name, ": ", stages.status().message()));
}

}  // namespace annulus
