#include "engine/text/models/bpe_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/text/models/byte_alphabet.h"
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

// Collects the symbols of a piece into runs that merges cannot bridge, and merges each run when it
// is complete.
class BpeModel::Stage : public TextStage {
 public:
  Stage(const BpeModel* model, EncodeState* state) : model_(*model), state_(state) {}

  absl::Status Push(absl::string_view text, bool end) override {
    if (started_) {
      ANNULUS_RETURN_IF_ERROR(AddUnits(text));
    } else if (end && held_.empty()) {
      ANNULUS_RETURN_IF_ERROR(EncodeStart(text, true));
    } else {
      held_.append(text.data(), text.size());
      if (!end && held_.size() <= model_.longest_whole_) return absl::OkStatus();
      ANNULUS_RETURN_IF_ERROR(EncodeStart(held_, end));
      held_.clear();
    }
    if (!end) return absl::OkStatus();
    ANNULUS_RETURN_IF_ERROR(FinishRun());
    started_ = false;
    after_unknown_ = false;
    return absl::OkStatus();
  }

 private:
  absl::Status EncodeStart(absl::string_view text, bool whole) {
    if (whole) {
      if (const auto token = model_.whole_.find(text); token != model_.whole_.end()) {
        state_->ids->push_back(token->second);
        return absl::OkStatus();
      }
    }
    started_ = true;
    return AddUnits(text);
  }

  absl::Status AddUnits(absl::string_view text) {
    for (size_t position = 0; position < text.size();) {
      const size_t begin = position;
      const char32_t unit = model_.NextUnit(text, &position);
      const int32_t id = model_.FindUnit(unit);
      if (id != kNoToken) {
        ANNULUS_RETURN_IF_ERROR(AddSymbol({id, unit, unit}));
        after_unknown_ = false;
      } else {
        ANNULUS_RETURN_IF_ERROR(AddUnknown(text.substr(begin, position - begin)));
      }
      if (run_.size() > kMaxUncutBytes) return UncutTextError();
    }
    return absl::OkStatus();
  }

  absl::Status AddUnknown(absl::string_view bytes) {
    if (model_.byte_fallback_ && model_.AllBytesHaveTokens(bytes)) {
      for (const char byte : bytes) {
        ANNULUS_RETURN_IF_ERROR(AddSymbol(model_.byte_tokens_[static_cast<uint8_t>(byte)]));
      }
      after_unknown_ = false;
    } else if (model_.unknown_.id != kNoToken) {
      if (!(after_unknown_ && model_.fuse_unk_)) {
        ANNULUS_RETURN_IF_ERROR(AddSymbol(model_.unknown_));
      }
      after_unknown_ = true;
    } else if (model_.lacks_bytes_) {
      return absl::InvalidArgumentError(
          "the tokenizer's vocabulary has no token for any single byte, so it cannot encode the "
          "text; send token ids instead of text, or use the complete vocabulary");
    }
    return absl::OkStatus();
  }

  absl::Status AddSymbol(const Symbol& symbol) {
    if (!run_.empty() && !model_.joins_.Contains(last_, symbol.first)) {
      ANNULUS_RETURN_IF_ERROR(FinishRun());
    }
    run_.push_back(symbol.id);
    last_ = symbol.last;
    return absl::OkStatus();
  }

  absl::Status FinishRun() {
    if (run_.size() == 1) {
      state_->ids->push_back(run_.front());
    } else {
      ANNULUS_RETURN_IF_ERROR(model_.merges_.Apply(run_, state_->work, &workspace_, state_->ids));
    }
    run_.clear();
    return absl::OkStatus();
  }

  const BpeModel& model_;
  EncodeState* state_;
  std::string held_;      // the start of a piece that may be one token as a whole
  bool started_ = false;  // the piece is not
  bool after_unknown_ = false;
  std::vector<int32_t> run_;
  char32_t last_ = 0;  // last unit of the run
  MergeTable::Workspace workspace_;
};

std::unique_ptr<TextStage> BpeModel::NewStage(EncodeState* state) const {
  return std::make_unique<Stage>(this, state);
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

absl::StatusOr<std::unique_ptr<Model>> BpeModel::Parse(const JsonNode& node, bool byte_level,
                                                       Vocabulary* vocabulary) {
  std::unique_ptr<BpeModel> model(new BpeModel());
  model->byte_level_ = byte_level;
  ANNULUS_RETURN_IF_ERROR(model->ParseOptions(node));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode tokens, node.Require("vocab"));
  ANNULUS_RETURN_IF_ERROR(model->ParseVocabulary(tokens, vocabulary));
  model->lacks_bytes_ = byte_level && model->unknown_.id == kNoToken &&
                        std::all_of(model->small_units_.begin(), model->small_units_.end(),
                                    [](int32_t id) { return id == kNoToken; });
  ANNULUS_RETURN_IF_ERROR(model->CheckByteTokens(node));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode merges, node.Require("merges"));
  ANNULUS_RETURN_IF_ERROR(model->ParseMerges(merges, *vocabulary));
  ANNULUS_RETURN_IF_ERROR(model->FindWholeTokens(*vocabulary));
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
  FindByteTokens(*vocabulary);
  if (unk_token_.empty()) return absl::OkStatus();
  const std::optional<int32_t> unknown = vocabulary->Find(unk_token_);
  if (!unknown.has_value()) {
    return node.Error(absl::StrCat("the unk_token \"", unk_token_, "\" is not in it"));
  }
  unknown_ = MakeSymbol(unk_token_, *unknown);
  return absl::OkStatus();
}

void BpeModel::FindByteTokens(const Vocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string token = absl::StrFormat("<0x%02X>", byte);
    if (const std::optional<int32_t> id = vocabulary.Find(token); id.has_value()) {
      byte_tokens_[static_cast<size_t>(byte)] = MakeSymbol(token, *id);
    }
  }
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

absl::Status BpeModel::FindWholeTokens(const Vocabulary& vocabulary) {
  if (!ignore_merges_ && (!byte_level_ || lacks_bytes_)) return absl::OkStatus();
  WorkMeter work("the tokenizer file", kTokenizerFileSteps, CancelFlag::Never());
  EncodeState state(&work);
  std::vector<int32_t> ids;
  state.ids = &ids;
  Stage stage(this, &state);
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::optional<absl::string_view> token = vocabulary.Token(id);
    const std::optional<std::string> text = token.has_value() ? PieceText(*token) : std::nullopt;
    if (!text.has_value()) continue;
    ids.clear();
    if (!ignore_merges_) ANNULUS_RETURN_IF_ERROR(stage.Push(*text, true));
    if (!ignore_merges_ && !(ids.size() == 1 && ids.front() == id)) continue;
    whole_.emplace(*text, id);
    longest_whole_ = std::max(longest_whole_, text->size());
  }
  return absl::OkStatus();
}

}  // namespace annulus
