#include "engine/text/bpe_model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/text/byte_alphabet.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr size_t kMaxSpacesInMerge = 16;

// Where the text of a merge, "left right", has its separating space. Tokens may contain spaces
// themselves: then the one place counts that makes three tokens of the vocabulary.
absl::StatusOr<size_t> MergeSeparator(const JsonNode& node, absl::string_view merge,
                                      const Vocabulary& vocabulary) {
  std::vector<size_t> spaces;
  for (size_t at = merge.find(' '); at != absl::string_view::npos; at = merge.find(' ', at + 1)) {
    spaces.push_back(at);
  }
  if (spaces.size() == 1) return spaces.front();
  if (spaces.size() > kMaxSpacesInMerge) return node.Error("too many spaces");
  std::vector<size_t> fitting;
  for (const size_t space : spaces) {
    const absl::string_view left = merge.substr(0, space);
    const absl::string_view right = merge.substr(space + 1);
    if (vocabulary.Find(left).has_value() && vocabulary.Find(right).has_value() &&
        vocabulary.Find(absl::StrCat(left, right)).has_value()) {
      fitting.push_back(space);
    }
  }
  if (fitting.size() == 1) return fitting.front();
  return node.Error(absl::StrCat("\"", TruncateUtf8(merge, 80),
                                 "\" is not two tokens of the vocabulary with a space between"));
}

}  // namespace

// Collects symbols into runs that merges cannot bridge and merges each run when it is complete.
class BpeModel::RunBuilder {
 public:
  RunBuilder(const BpeModel& model, Workspace* workspace, std::vector<int32_t>* ids)
      : model_(model), workspace_(workspace), ids_(ids) {
    workspace_->run.clear();
  }

  void Push(const Symbol& symbol) {
    if (!workspace_->run.empty() && !model_.joins_.Contains(last_, symbol.first)) Finish();
    workspace_->run.push_back(symbol.id);
    last_ = symbol.last;
  }

  void Finish() {
    std::vector<int32_t>& run = workspace_->run;
    if (run.size() == 1) {
      ids_->push_back(run.front());
    } else {
      model_.merges_.Apply(run, &workspace_->merge, ids_);
    }
    run.clear();
  }

 private:
  const BpeModel& model_;
  Workspace* workspace_;
  std::vector<int32_t>* ids_;
  char32_t last_ = 0;  // last unit of the run
};

void BpeModel::Encode(absl::string_view piece, Workspace* workspace,
                      std::vector<int32_t>* ids) const {
  if (const auto whole = whole_.find(piece); whole != whole_.end()) {
    ids->push_back(whole->second);
    return;
  }
  RunBuilder run(*this, workspace, ids);
  bool after_unknown = false;
  for (size_t position = 0; position < piece.size();) {
    const size_t begin = position;
    const char32_t unit = NextUnit(piece, &position);
    const int32_t id = FindUnit(unit);
    if (id != kNoToken) {
      run.Push({id, unit, unit});
      after_unknown = false;
      continue;
    }
    const absl::string_view bytes = piece.substr(begin, position - begin);
    if (byte_fallback_ && AllBytesHaveTokens(bytes)) {
      for (const char byte : bytes) run.Push(byte_tokens_[static_cast<uint8_t>(byte)]);
      after_unknown = false;
    } else if (unknown_.id != kNoToken) {
      if (!(after_unknown && fuse_unk_)) run.Push(unknown_);
      after_unknown = true;
    }
  }
  run.Finish();
}

char32_t BpeModel::NextUnit(absl::string_view piece, size_t* position) const {
  if (byte_level_) return static_cast<uint8_t>(piece[(*position)++]);
  return NextCodePoint(piece, position);
}

int32_t BpeModel::FindUnit(char32_t unit) const {
  if (unit < kSmall) return small_units_[unit];
  const auto found = large_units_.find(unit);
  return found == large_units_.end() ? kNoToken : found->second;
}

bool BpeModel::AllBytesHaveTokens(absl::string_view bytes) const {
  for (const char byte : bytes) {
    if (byte_tokens_[static_cast<uint8_t>(byte)].id == kNoToken) return false;
  }
  return true;
}

absl::StatusOr<BpeModel> BpeModel::Parse(const JsonNode& node, bool byte_level,
                                         Vocabulary* vocabulary) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode type_node, node.Find("type"));
  ANNULUS_ASSIGN_OR_RETURN(const std::string type, node.StringMember("type", "BPE"));
  if (type != "BPE") return type_node.Unsupported("model", type, {"BPE"});
  BpeModel model;
  model.byte_level_ = byte_level;
  ANNULUS_RETURN_IF_ERROR(model.ParseOptions(node));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode tokens, node.Require("vocab"));
  ANNULUS_RETURN_IF_ERROR(model.ParseVocabulary(tokens, vocabulary));
  ANNULUS_RETURN_IF_ERROR(model.CheckByteTokens(node));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode merges, node.Require("merges"));
  ANNULUS_RETURN_IF_ERROR(model.ParseMerges(merges, *vocabulary));
  model.FindWholeTokens(*vocabulary);
  return model;
}

absl::Status BpeModel::ParseOptions(const JsonNode& node) {
  ANNULUS_ASSIGN_OR_RETURN(byte_fallback_, node.BoolMember("byte_fallback", false));
  ANNULUS_ASSIGN_OR_RETURN(fuse_unk_, node.BoolMember("fuse_unk", false));
  ANNULUS_ASSIGN_OR_RETURN(ignore_merges_, node.BoolMember("ignore_merges", false));
  ANNULUS_ASSIGN_OR_RETURN(unk_token_, node.StringMember("unk_token", ""));
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    ANNULUS_ASSIGN_OR_RETURN(const std::string text, node.StringMember(affix, ""));
    if (text.empty()) continue;
    ANNULUS_ASSIGN_OR_RETURN(const JsonNode member, node.Find(affix));
    return member.Unsupported(affix, text, {"null", "the empty string"});
  }
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode dropout, node.Find("dropout"));
  if (!dropout.is_null()) {
    ANNULUS_ASSIGN_OR_RETURN(const double rate, dropout.Number());
    if (rate != 0) {
      return dropout.Unsupported("a random encoding with dropout", absl::StrCat(rate),
                                 {"null", "0"});
    }
  }
  return absl::OkStatus();
}

// What the token stands for in pieces; nothing for one that no piece can contain.
std::optional<std::string> BpeModel::PieceText(absl::string_view token) const {
  return byte_level_ ? FromByteAlphabet(token) : std::string(token);
}

absl::Status BpeModel::ParseVocabulary(const JsonNode& node, Vocabulary* vocabulary) {
  ANNULUS_RETURN_IF_ERROR(
      node.ForEachMember([&](absl::string_view token, const JsonNode& value) -> absl::Status {
        ANNULUS_ASSIGN_OR_RETURN(const int64_t id, value.Integer(0, Vocabulary::kMaxSize - 1));
        const absl::Status added = vocabulary->Add(token, id);
        if (!added.ok()) return node.Error(added.message());
        if (const std::optional<std::string> text = PieceText(token); text.has_value()) {
          AddUnit(*text, static_cast<int32_t>(id));
        }
        return absl::OkStatus();
      }));
  for (int byte = 0; byte < 256; ++byte) {
    const std::string token = absl::StrFormat("<0x%02X>", byte);
    if (const std::optional<int32_t> id = vocabulary->Find(token); id.has_value()) {
      byte_tokens_[static_cast<size_t>(byte)] = MakeSymbol(token, *id);
    }
  }
  if (unk_token_.empty()) return absl::OkStatus();
  const std::optional<int32_t> unknown = vocabulary->Find(unk_token_);
  if (!unknown.has_value()) {
    return node.Error(absl::StrCat("the unk_token \"", unk_token_, "\" is not in it"));
  }
  unknown_ = MakeSymbol(unk_token_, *unknown);
  return absl::OkStatus();
}

void BpeModel::AddUnit(absl::string_view text, int32_t id) {
  size_t position = 0;
  const char32_t unit = NextUnit(text, &position);
  if (position != text.size()) return;
  if (unit < kSmall) {
    small_units_[unit] = id;
  } else {
    large_units_.emplace(unit, id);
  }
}

BpeModel::Symbol BpeModel::MakeSymbol(absl::string_view token, int32_t id) const {
  const std::string text = PieceText(token).value_or(std::string(token));
  size_t position = 0;
  const char32_t first = NextUnit(text, &position);
  const char32_t last = byte_level_ ? static_cast<uint8_t>(text.back()) : LastCodePoint(text);
  return {id, first, last};
}

// With bytes for units a fallback to bytes has nothing to fall back to.
absl::Status BpeModel::CheckByteTokens(const JsonNode& node) const {
  if (!byte_level_ || !byte_fallback_) return absl::OkStatus();
  for (const int32_t id : small_units_) {
    if (id == kNoToken) {
      return node.Error("byte_fallback with ByteLevel needs a token for each of the 256 bytes");
    }
  }
  return absl::OkStatus();
}

absl::Status BpeModel::ParseMerges(const JsonNode& node, const Vocabulary& vocabulary) {
  uint32_t rank = 0;
  return node.ForEachElement([&](const JsonNode& merge) -> absl::Status {
    if (merge.is_array()) {
      std::vector<absl::string_view> parts;
      ANNULUS_RETURN_IF_ERROR(merge.ForEachElement([&](const JsonNode& part) -> absl::Status {
        ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, part.String());
        parts.push_back(text);
        return absl::OkStatus();
      }));
      if (parts.size() != 2) return merge.Error("a merge has two tokens");
      return AddMerge(merge, rank++, parts[0], parts[1], vocabulary);
    }
    ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, merge.String());
    ANNULUS_ASSIGN_OR_RETURN(const size_t space, MergeSeparator(merge, text, vocabulary));
    return AddMerge(merge, rank++, text.substr(0, space), text.substr(space + 1), vocabulary);
  });
}

absl::Status BpeModel::AddMerge(const JsonNode& node, uint32_t rank, absl::string_view left,
                                absl::string_view right, const Vocabulary& vocabulary) {
  const std::string joined = absl::StrCat(left, right);
  for (const absl::string_view token : {left, right, absl::string_view(joined)}) {
    if (!vocabulary.Find(token).has_value()) {
      return node.Error(
          absl::StrCat("the token \"", TruncateUtf8(token, 80), "\" is not in the vocabulary"));
    }
  }
  const Symbol left_symbol = MakeSymbol(left, *vocabulary.Find(left));
  const Symbol right_symbol = MakeSymbol(right, *vocabulary.Find(right));
  merges_.Add(left_symbol.id, right_symbol.id, rank, *vocabulary.Find(joined));
  joins_.Add(left_symbol.last, right_symbol.first);
  return absl::OkStatus();
}

void BpeModel::FindWholeTokens(const Vocabulary& vocabulary) {
  if (!byte_level_ && !ignore_merges_) return;
  Workspace workspace;
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::optional<absl::string_view> token = vocabulary.Token(id);
    const std::optional<std::string> text = token.has_value() ? PieceText(*token) : std::nullopt;
    if (!text.has_value()) continue;
    ids.clear();
    if (!ignore_merges_) Encode(*text, &workspace, &ids);
    if (ignore_merges_ || (ids.size() == 1 && ids.front() == id)) whole_.emplace(*text, id);
  }
}

}  // namespace annulus
