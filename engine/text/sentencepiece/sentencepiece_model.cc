#include "engine/text/sentencepiece/sentencepiece_model.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/text/utf8.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using Tokens = std::vector<AnnulusSentencePieceToken>;
using Ends = std::vector<size_t>;  // of tokens, ascending
using Type = SentencePieceFile::Type;

constexpr size_t kSearched = 2 << 10;  // bytes in front of a window's end
// The library writes the user-defined pieces that a text begins with into an array of this size.
constexpr size_t kMostNested = 64;

// Merging goes on from a piece that is not used, as long as it is part of others; in the end it is
// cut again. Those that no merge makes change nothing, such as a converter's "[PAD32001]".
absl::Status CheckUnused(const SentencePieceFile& file) {
  absl::flat_hash_set<absl::string_view> mergeable;
  for (const SentencePieceFile::Piece& piece : file.pieces) {
    const bool matches = piece.type == Type::kNormal || piece.type == Type::kUserDefined;
    if (matches || piece.type == Type::kUnused) mergeable.insert(piece.text);
  }
  const auto is_symbol = [&](absl::string_view text) {
    size_t end = 0;
    NextCodePoint(text, &end);
    return end == text.size() || mergeable.contains(text);
  };
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const absl::string_view text = file.pieces[id].text;
    if (file.pieces[id].type != Type::kUnused || text.empty()) continue;
    size_t cut = 0;
    NextCodePoint(text, &cut);
    bool made = cut == text.size();
    for (; cut < text.size() && !made; NextCodePoint(text, &cut)) {
      made = is_symbol(text.substr(0, cut)) && is_symbol(text.substr(cut));
    }
    if (!made) continue;
    return absl::UnimplementedError(
        absl::StrCat("piece ", id,
                     " of the type UNUSED in BPE can be merged from others, which is not "
                     "supported; convert the tokenizer to tokenizer.json"));
  }
  return absl::OkStatus();
}

absl::Status CheckNesting(const SentencePieceFile& file) {
  std::vector<std::pair<std::string, int32_t>> texts;
  for (const SentencePieceFile::Piece& piece : file.pieces) {
    if (piece.type == Type::kUserDefined) texts.emplace_back(piece.text, 0);
  }
  const ByteTrie trie(texts);
  for (const auto& [text, unused] : texts) {
    size_t nested = 0;
    trie.ForEachPrefix(text, [&](size_t, int32_t) { ++nested; });
    if (nested <= kMostNested) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the user-defined piece \"", text, "\" begins with ", nested,
                     " of them, itself included; allowed: at most ", kMostNested));
  }
  return absl::OkStatus();
}

}  // namespace

class SentencePieceModel::Stage : public TextStage {
 public:
  Stage(const SentencePieceModel* model, EncodeState* state) : model_(*model), state_(state) {}

  absl::Status Push(absl::string_view text, bool end) override {
    held_.append(text.data(), text.size());
    while (rest().size() > window_ || (end && !rest().empty())) {
      ANNULUS_RETURN_IF_ERROR(AddWindow());
    }
    held_.erase(0, base_);
    base_ = 0;
    if (end) after_unknown_ = false;
    return absl::OkStatus();
  }

 private:
  // The text that is in no window.
  absl::string_view rest() const { return absl::string_view(held_).substr(base_ + joint_); }

  absl::Status AddWindow() {
    absl::string_view text = rest();
    bool is_cut = text.size() <= window_;  // at its end, so that nothing has to be looked at again
    if (!is_cut) {
      text = TruncateUtf8(text, window_);
      const std::optional<size_t> free = model_.FindFreePlace(text);
      is_cut = free.has_value();
      if (is_cut) text = text.substr(0, *free);
    }
    ANNULUS_ASSIGN_OR_RETURN(const Ends ends, Encode(text, &tokens_));
    if (joint_ > 0) {
      if (ends.front() != expected_) return Widen();
      Give(before_joint_, joint_);
    }
    if (is_cut) {
      Give(tokens_, text.size());
      return absl::OkStatus();
    }
    return Join(ends, text.size());
  }

  absl::StatusOr<Ends> Encode(absl::string_view text, Tokens* tokens) {
    ANNULUS_RETURN_IF_ERROR(state_->work->Step(StepsFor(8 * text.size())));
    ANNULUS_RETURN_IF_ERROR(model_.processor_->Encode(text, tokens));
    Ends ends;
    for (const AnnulusSentencePieceToken& token : *tokens) {
      // Tokens for the bytes of a character are not to be parted.
      if (token.end < text.size() && IsUtf8Continuation(text[token.end])) continue;
      ends.push_back(token.end);
    }
    if (!ends.empty() && ends.back() == text.size()) return ends;
    return absl::InternalError("the sentencepiece library does not encode all of the text");
  }

  // Chooses the next joint in `tokens_`, far enough from the end of the window that what comes
  // behind it hardly ever matters.
  absl::Status Join(const Ends& ends, size_t window) {
    const size_t most = window - std::max(model_.longest_, window / 8);
    const auto behind = std::upper_bound(ends.begin(), ends.end(), most);
    if (behind == ends.begin()) return Widen();
    joint_ = *std::prev(behind);
    expected_ = *behind - joint_;
    before_joint_.swap(tokens_);
    return absl::OkStatus();
  }

  // The window at `base_` must become longer.
  absl::Status Widen() {
    joint_ = 0;
    window_ *= 2;
    if (window_ <= kMostWindow) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the text has more than ", kMostWindow,
                     " bytes without a place to split it; add white space or line breaks"));
  }

  // Gives those of `tokens` that stand for the first `end` bytes, and goes on behind them.
  void Give(const Tokens& tokens, size_t end) {
    for (const AnnulusSentencePieceToken& token : tokens) {
      if (token.end > end) break;
      const bool is_unknown = token.id == model_.unknown_ && !model_.byte_fallback_;
      // The library makes one token of neighbours that are unknown.
      if (!(is_unknown && after_unknown_)) state_->ids->push_back(token.id);
      after_unknown_ = is_unknown;
    }
    base_ += end;
    joint_ = 0;
    window_ = kWindow;
  }

  const SentencePieceModel& model_;
  EncodeState* state_;
  std::string held_;
  size_t base_ = 0;   // of the first window, in `held_`
  size_t joint_ = 0;  // of the second, behind `base_`; 0: there is one window
  size_t window_ = kWindow;
  Tokens before_joint_;  // of the first window
  size_t expected_ = 0;  // length of the second one's first token
  Tokens tokens_;
  bool after_unknown_ = false;
};

std::unique_ptr<TextStage> SentencePieceModel::NewStage(EncodeState* state) const {
  return std::make_unique<Stage>(this, state);
}

std::optional<size_t> SentencePieceModel::FindFreePlace(absl::string_view window) const {
  // Of the pieces that begin in front of `last`, all are visible.
  const size_t last = TruncateUtf8(window, window.size() - longest_).size();
  const size_t searched = last - std::min(last, kSearched);
  // Pieces that bridge a place behind `searched` start behind this.
  const size_t begin = TruncateUtf8(window, searched - std::min(searched, longest_)).size();
  std::optional<size_t> free;
  size_t furthest = 0;  // end of a piece
  for (size_t at = begin; at < last;) {
    size_t next = at;
    NextCodePoint(window, &next);
    furthest = std::max(furthest, next);
    pieces_.ForEachPrefix(window.substr(at), [&](size_t length, int32_t) {
      furthest = std::max(furthest, at + length);
    });
    if (furthest <= next && next > searched) free = next;
    at = next;
  }
  return free;
}

absl::StatusOr<std::unique_ptr<Model>> SentencePieceModel::Create(
    const SentencePieceFile& file, const SentencePieceLibrary& library) {
  ANNULUS_CHECK(file.kind == SentencePieceFile::Kind::kBpe);
  ANNULUS_RETURN_IF_ERROR(CheckSentencePieces(file));
  ANNULUS_RETURN_IF_ERROR(CheckUnused(file));
  ANNULUS_RETURN_IF_ERROR(CheckNesting(file));
  std::unique_ptr<SentencePieceModel> model(new SentencePieceModel());
  model->byte_fallback_ = file.byte_fallback;
  std::vector<std::pair<std::string, int32_t>> texts;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const SentencePieceFile::Piece& piece = file.pieces[id];
    if (piece.type == Type::kUnknown) model->unknown_ = static_cast<int32_t>(id);
    if (piece.type != Type::kNormal && piece.type != Type::kUserDefined) continue;
    texts.emplace_back(piece.text, static_cast<int32_t>(id));
    model->longest_ = std::max(model->longest_, piece.text.size());
  }
  model->pieces_ = ByteTrie(std::move(texts));
  ANNULUS_ASSIGN_OR_RETURN(model->processor_, library.Load(SerializeForEncoding(file)));
  return model;
}

}  // namespace annulus
