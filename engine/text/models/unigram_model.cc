#include "engine/text/models/unigram_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr double kUnknownPenalty = 10.0;
// As in sentencepiece: the score of a user-defined piece is the highest of any piece, at least 0,
// for each of its bytes, less this. So it wins, since scores are logarithms of probabilities.
constexpr double kUserDefinedMargin = 0.1;

size_t CharacterLength(absl::string_view text, size_t position) {
  const size_t begin = position;
  NextCodePoint(text, &position);
  return position - begin;
}

}  // namespace

// Offsets count from `base_`, a place that no token of the text bridges: every division of the
// piece has an end there, so what lies in front of it is decided.
class UnigramModel::Stage : public TextStage {
 public:
  Stage(const UnigramModel* model, EncodeState* state) : model_(*model), state_(state) {}

  absl::Status Push(absl::string_view text, bool end) override {
    text_.append(text.data(), text.size());
    const size_t lookahead = end ? 1 : std::max<size_t>(model_.longest_, 4);
    while (text_.size() - base_ >= next_ + lookahead) {
      ANNULUS_RETURN_IF_ERROR(Advance());
    }
    if (end) {
      Finish();
    } else if (base_ > 0) {
      text_.erase(0, base_);
      base_ = 0;
    }
    if (best_.size() + unknown_run_.size() > kMaxUncutBytes) return UncutTextError();
    return absl::OkStatus();
  }

 private:
  // The best division of the text up to a place: where its last token starts, and which it is.
  struct Best {
    double score = 0;
    size_t begin = 0;
    int32_t id = kNoToken;
    bool reached = false;
  };

  // Adds the tokens that start at `next_`.
  absl::Status Advance() {
    ANNULUS_RETURN_IF_ERROR(state_->work->Step());
    if (next_ > 0 && reach_ == next_) Commit();
    const absl::string_view text = absl::string_view(text_).substr(base_ + next_);
    const size_t length = CharacterLength(text, 0);
    const double score = best_[next_].score;
    bool found_character = false;
    model_.trie_.ForEachPrefix(text, [&](size_t token_length, int32_t id) {
      Offer(next_ + token_length, score + model_.scores_[static_cast<size_t>(id)], id);
      found_character |= token_length == length;
    });
    if (!found_character) {
      if (model_.unknown_ == kNoToken) {
        return absl::InvalidArgumentError(
            absl::StrCat("the tokenizer has no token for \"", text.substr(0, length),
                         "\", and no unk_id; remove it from the text"));
      }
      Offer(next_ + length, score + model_.unknown_score_, model_.unknown_);
    }
    next_ += length;
    return absl::OkStatus();
  }

  void Offer(size_t end, double score, int32_t id) {
    if (best_.size() <= end) best_.resize(end + 1);
    reach_ = std::max(reach_, end);
    Best& best = best_[end];
    if (!best.reached || score > best.score) best = {score, next_, id, true};
  }

  // Gives the tokens up to `next_`, which becomes the base.
  void Commit() {
    const auto first = static_cast<std::ptrdiff_t>(path_.size());
    for (size_t end = next_; end > 0; end = best_[end].begin) path_.push_back(end);
    std::reverse(path_.begin() + first, path_.end());
    for (const size_t end : path_) {
      const Best& token = best_[end];
      if (token.id == model_.unknown_) {
        unknown_run_.append(text_, base_ + token.begin, end - token.begin);
      } else {
        FinishUnknown();
        state_->ids->push_back(token.id);
      }
    }
    path_.clear();
    const double score = best_[next_].score;
    best_.assign(1, Best{});
    best_[0].score = score;
    base_ += next_;
    next_ = reach_ = 0;
  }

  void FinishUnknown() {
    if (!unknown_run_.empty()) model_.AppendUnknown(unknown_run_, state_->ids);
    unknown_run_.clear();
  }

  void Finish() {
    if (next_ > 0) Commit();
    FinishUnknown();
    text_.clear();
    base_ = 0;
    best_[0].score = 0;
  }

  const UnigramModel& model_;
  EncodeState* state_;
  std::string text_;
  size_t base_ = 0;   // in `text_`
  size_t next_ = 0;   // the first place whose tokens are not added
  size_t reach_ = 0;  // the furthest end of a token
  std::vector<Best> best_ = std::vector<Best>(1);
  std::vector<size_t> path_;
  std::string unknown_run_;
};

std::unique_ptr<TextStage> UnigramModel::NewStage(EncodeState* state) const {
  return std::make_unique<Stage>(this, state);
}

void UnigramModel::AppendUnknown(absl::string_view run, std::vector<int32_t>* ids) const {
  int32_t whole = kNoToken;
  if (run.size() <= longest_) {
    trie_.ForEachPrefix(run, [&](size_t length, int32_t id) {
      if (length == run.size()) whole = id;
    });
  }
  const auto token_of = [this](char byte) { return byte_tokens_[static_cast<uint8_t>(byte)]; };
  if (whole != kNoToken) {
    ids->push_back(whole);
  } else if (byte_fallback_ && std::all_of(run.begin(), run.end(),
                                           [&](char byte) { return token_of(byte) != kNoToken; })) {
    for (const char byte : run) ids->push_back(token_of(byte));
  } else {
    ids->push_back(unknown_);
  }
}

absl::StatusOr<std::unique_ptr<Model>> UnigramModel::Parse(const JsonNode& node,
                                                           Vocabulary* vocabulary) {
  auto model = std::make_unique<UnigramModel>();
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode tokens, node.Require("vocab"));
  ANNULUS_RETURN_IF_ERROR(model->ParseTokens(tokens, vocabulary));
  ANNULUS_ASSIGN_OR_RETURN(model->byte_fallback_, node.BoolMember("byte_fallback", false));
  model->FindByteTokens(*vocabulary);
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode unknown, node.Find("unk_id"));
  if (!unknown.is_null()) {
    ANNULUS_ASSIGN_OR_RETURN(const int64_t id,
                             unknown.Integer(0, std::max(0, vocabulary->size() - 1)));
    model->unknown_ = static_cast<int32_t>(id);
  }
  return model;
}

absl::StatusOr<std::unique_ptr<Model>> UnigramModel::Create(const SentencePieceFile& file) {
  using Type = SentencePieceFile::Type;
  ANNULUS_RETURN_IF_ERROR(CheckSentencePieces(file));
  auto model = std::make_unique<UnigramModel>();
  model->byte_fallback_ = file.byte_fallback;
  model->byte_tokens_.fill(kNoToken);
  double lowest = std::numeric_limits<double>::infinity();
  double highest = 0;
  for (const SentencePieceFile::Piece& piece : file.pieces) {
    if (piece.type != Type::kNormal) continue;
    lowest = std::min(lowest, static_cast<double>(piece.score));
    highest = std::max(highest, static_cast<double>(piece.score));
  }
  model->unknown_score_ = lowest - kUnknownPenalty;
  std::vector<std::pair<std::string, int32_t>> strings;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const SentencePieceFile::Piece& piece = file.pieces[id];
    const bool is_user_defined = piece.type == Type::kUserDefined;
    const double score = is_user_defined
                             ? static_cast<double>(piece.text.size()) * highest - kUserDefinedMargin
                             : static_cast<double>(piece.score);
    model->scores_.push_back(score);
    if (piece.type == Type::kUnknown) model->unknown_ = static_cast<int32_t>(id);
    if (piece.type == Type::kByte) {
      const size_t byte = std::stoul(piece.text.substr(3, 2), nullptr, 16);
      model->byte_tokens_[byte] = static_cast<int32_t>(id);
    }
    if (piece.type != Type::kNormal && !is_user_defined) continue;
    model->longest_ = std::max(model->longest_, piece.text.size());
    strings.emplace_back(piece.text, static_cast<int32_t>(id));
  }
  model->trie_ = ByteTrie(std::move(strings));
  return model;
}

void UnigramModel::FindByteTokens(const Vocabulary& vocabulary) {
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] = vocabulary.Find(absl::StrFormat("<0x%02X>", byte)).value_or(kNoToken);
  }
}

absl::Status UnigramModel::ParseTokens(const JsonNode& node, Vocabulary* vocabulary) {
  std::vector<std::pair<std::string, int32_t>> strings;
  double lowest = 0;
  ANNULUS_RETURN_IF_ERROR(node.ForEachElement([&](const JsonNode& entry) -> absl::Status {
    std::vector<JsonNode> parts;
    ANNULUS_RETURN_IF_ERROR(entry.ForEachElement([&](const JsonNode& part) {
      parts.push_back(part);
      return absl::OkStatus();
    }));
    if (parts.size() != 2) return entry.Error("expected [token, score]");
    ANNULUS_ASSIGN_OR_RETURN(const absl::string_view token, parts[0].String());
    ANNULUS_ASSIGN_OR_RETURN(const double score, parts[1].Number());
    if (!std::isfinite(score)) return parts[1].Error("the score is not finite");
    if (token.size() > kMaxTokenBytes) {
      return entry.Error(
          absl::StrCat("a token has at most ", kMaxTokenBytes, " bytes, not ", token.size()));
    }
    const auto id = static_cast<int32_t>(scores_.size());
    const absl::Status added = vocabulary->Add(token, id);
    if (!added.ok()) return entry.Error(added.message());
    lowest = scores_.empty() ? score : std::min(lowest, score);
    scores_.push_back(score);
    longest_ = std::max(longest_, token.size());
    strings.emplace_back(token, id);
    return absl::OkStatus();
  }));
  if (scores_.empty()) return node.Error("the vocabulary is empty");
  unknown_score_ = lowest - kUnknownPenalty;
  trie_ = ByteTrie(std::move(strings));
  return absl::OkStatus();
}

}  // namespace annulus
