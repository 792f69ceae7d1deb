#include "engine/text/sentencepiece_stages.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/json_node.h"
#include "engine/text/added_tokens.h"
#include "engine/text/character_filters.h"
#include "engine/text/normalizer.h"
#include "engine/text/precompiled.h"
#include "engine/text/sentencepiece_file.h"
#include "engine/text/sentencepiece_library.h"
#include "engine/text/sentencepiece_model.h"
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

absl::StatusOr<AddedTokens> MakeAddedTokens(const SentencePieceFile& file, Vocabulary* vocabulary) {
  json tokens = json::array();
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const SentencePieceFile::Piece& piece = file.pieces[id];
    if (piece.type != Type::kControl && piece.type != Type::kUnknown) continue;
    tokens.push_back(
        {{"id", id}, {"content", piece.text}, {"special", true}, {"normalized", false}});
  }
  ANNULUS_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(tokens.dump(), ""));
  return AddedTokens::Parse(document.root(), TextFilters(), vocabulary);
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

absl::StatusOr<PipelineStages> MakeStages(const SentencePieceFile& file, bool legacy) {
  ANNULUS_RETURN_IF_ERROR(CheckSupported(file));
  PipelineStages stages;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    ANNULUS_RETURN_IF_ERROR(stages.vocabulary.Add(file.pieces[id].text, static_cast<int64_t>(id)));
  }
  if (!stages.vocabulary.Token(file.unk_id).has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("unk_id ", file.unk_id, " has no piece"));
  }
  ANNULUS_ASSIGN_OR_RETURN(const SentencePieceLibrary* const library, SentencePieceLibrary::Get());
  ANNULUS_ASSIGN_OR_RETURN(stages.model, SentencePieceModel::Create(file, *library));
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
  ANNULUS_ASSIGN_OR_RETURN(stages.added_tokens, MakeAddedTokens(file, &stages.vocabulary));
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
                                                        absl::string_view name, bool legacy) {
  absl::StatusOr<SentencePieceFile> file = ParseSentencePieceFile(bytes);
  absl::StatusOr<PipelineStages> stages =
      file.ok() ? MakeStages(*file, legacy) : absl::StatusOr<PipelineStages>(file.status());
  if (stages.ok()) return stages;
  return absl::Status(stages.status().code(), absl::StrCat(name, ": ", stages.status().message()));
}

}  // namespace annulus
