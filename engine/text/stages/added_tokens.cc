#include "engine/text/stages/added_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/text/unicode.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Start of the white space that ends at `end` and does not reach before `least`.
size_t WhitespaceBefore(absl::string_view text, size_t least, size_t end) {
  return end - WhitespaceSuffix(text.substr(least, end - least));
}

}  // namespace

absl::StatusOr<AddedTokens> AddedTokens::Parse(const JsonNode& node, const TextFilters& normalizer,
                                               Vocabulary* vocabulary) {
  AddedTokens result;
  if (!node.is_null()) {
    ANNULUS_RETURN_IF_ERROR(node.ForEachElement([&](const JsonNode& element) {
      return result.ParseToken(element, normalizer, vocabulary);
    }));
  }
  for (Finders* finders : {&result.all_, &result.plain_}) {
    finders->raw.literals.Build();
    finders->normalized.literals.Build();
  }
  return result;
}

bool IsMarkup(absl::string_view content) {
  return content.size() >= 3 && ((content.front() == '<' && content.back() == '>') ||
                                 (content.front() == '[' && content.back() == ']'));
}

absl::Status AddedTokens::AddTo(Finder& finder, absl::string_view literal, const Token& token) {
  ANNULUS_RETURN_IF_ERROR(finder.literals.Add(literal));
  finder.tokens.push_back(token);
  finder.longest = std::max(finder.longest, literal.size());
  finder.any_lstrip |= token.lstrip;
  return absl::OkStatus();
}

absl::Status AddedTokens::ParseToken(const JsonNode& node, const TextFilters& normalizer,
                                     Vocabulary* vocabulary) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode id_node, node.Require("id"));
  ANNULUS_ASSIGN_OR_RETURN(const int64_t id, id_node.Integer(0, Vocabulary::kMaxSize - 1));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode content_node, node.Require("content"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view content, content_node.String());
  ANNULUS_ASSIGN_OR_RETURN(const bool special, node.BoolMember("special", false));
  ANNULUS_ASSIGN_OR_RETURN(const bool is_normalized, node.BoolMember("normalized", !special));
  Token token;
  token.id = static_cast<int32_t>(id);
  ANNULUS_ASSIGN_OR_RETURN(token.single_word, node.BoolMember("single_word", false));
  ANNULUS_ASSIGN_OR_RETURN(token.lstrip, node.BoolMember("lstrip", false));
  ANNULUS_ASSIGN_OR_RETURN(token.rstrip, node.BoolMember("rstrip", false));

  const bool is_control = special || IsMarkup(content);
  if (vocabulary->Find(content) != token.id) {
    const absl::Status added = vocabulary->Add(content, id);
    if (!added.ok()) return node.Error(added.message());
  } else if (is_control) {
    model_controls_.push_back(token.id);
  }
  if (!kinds_.emplace(token.id, Kind{special, is_control}).second) {
    return node.Error(absl::StrCat("the id ", id, " is listed twice"));
  }
  std::string literal(content);
  if (is_normalized && !normalizer.empty()) {
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<std::string> normal,
                             RunFilters(normalizer, content));
    if (normal.empty()) return content_node.Error("the normalizer makes it empty");
    literal = normal.front();
    if (literal != content) normalized_forms_.emplace(token.id, literal);
  }
  for (Finders* finders : {&all_, &plain_}) {
    if (finders == &plain_ && is_control) continue;
    Finder& finder = is_normalized ? finders->normalized : finders->raw;
    const absl::Status added = AddTo(finder, literal, token);
    if (!added.ok()) return content_node.Error(added.message());
  }
  return absl::OkStatus();
}

// Offsets are in the text held. What it starts with up to `done_` has been passed on or was taken
// by a token.
class AddedTokens::Stage : public TextStage {
 public:
  Stage(const Finder* finder, EncodeState* state, TextStage* next)
      : finder_(*finder), state_(state), next_(next) {}

  absl::Status Push(absl::string_view text, bool end) override {
    ANNULUS_ASSIGN_OR_RETURN(const bool enough, held_.Add(text, end));
    if (!enough) return absl::OkStatus();
    const absl::string_view view = held_.view();
    if (stripping_) StripAfter(view, done_);
    // The longest token at a place in front of `decided`, and the character behind that, are known.
    size_t decided = view.size();
    if (!end) {
      decided -= std::min(decided, finder_.longest);
      while (decided > 0 && IsUtf8Continuation(view[decided])) --decided;
    }
    for (const LiteralSet::Match& match : finder_.literals.Find(view, picked_)) {
      if (match.begin >= decided) break;
      picked_ = match.end;
      ANNULUS_RETURN_IF_ERROR(TakeToken(view, match));
    }
    if (end) {
      ANNULUS_RETURN_IF_ERROR(next_->Push(view.substr(done_), true));
      held_.Drop(view.size());
      done_ = picked_ = before_ = 0;
      stripping_ = false;
      return absl::OkStatus();
    }
    if (finder_.any_lstrip && decided > done_) decided = WhitespaceBefore(view, done_, decided);
    if (decided > done_) {
      ANNULUS_RETURN_IF_ERROR(next_->Push(view.substr(done_, decided - done_), false));
      done_ = decided;
    }
    Forget(decided);
    return absl::OkStatus();
  }

 private:
  absl::Status TakeToken(absl::string_view view, const LiteralSet::Match& match) {
    const Token& token = finder_.tokens[static_cast<size_t>(match.index)];
    // Inside the white space that the token before took.
    if (match.begin < done_) return absl::OkStatus();
    if (token.single_word && TouchesWord(view, match)) return absl::OkStatus();
    const size_t begin = token.lstrip ? WhitespaceBefore(view, done_, match.begin) : match.begin;
    ANNULUS_RETURN_IF_ERROR(next_->Push(view.substr(done_, begin - done_), true));
    state_->ids->push_back(token.id);
    state_->at_text_start = false;
    done_ = match.end;
    if (token.rstrip) StripAfter(view, match.end);
    return absl::OkStatus();
  }

  void StripAfter(absl::string_view view, size_t begin) {
    done_ = begin + WhitespacePrefix(view.substr(begin));
    stripping_ = done_ == view.size();
  }

  bool TouchesWord(absl::string_view view, const LiteralSet::Match& match) const {
    const char32_t before = match.begin > 0 ? LastCodePoint(view.substr(0, match.begin)) : before_;
    if (before != 0 && IsWordCharacter(before)) return true;
    size_t end = match.end;
    return end < view.size() && IsWordCharacter(NextCodePoint(view, &end));
  }

  // Drops the first `count` bytes.
  void Forget(size_t count) {
    if (count > 0) before_ = LastCodePoint(held_.view().substr(0, count));
    held_.Drop(count);
    done_ -= count;
    picked_ -= std::min(picked_, count);
  }

  const Finder& finder_;
  EncodeState* state_;
  TextStage* next_;
  HeldText held_;
  size_t done_ = 0;
  size_t picked_ = 0;       // where the last match ends, be it taken or not
  char32_t before_ = 0;     // the last character that was dropped; 0 at the start of a stretch
  bool stripping_ = false;  // white space at `done_` belongs to the token in front of it
};

std::unique_ptr<TextStage> AddedTokens::NewRawStage(EncodeState* state, TextStage* next,
                                                    bool plain) const {
  const Finder& finder = plain ? plain_.raw : all_.raw;
  return finder.literals.empty() ? nullptr : std::make_unique<Stage>(&finder, state, next);
}

std::unique_ptr<TextStage> AddedTokens::NewNormalizedStage(EncodeState* state, TextStage* next,
                                                           bool plain) const {
  const Finder& finder = plain ? plain_.normalized : all_.normalized;
  return finder.literals.empty() ? nullptr : std::make_unique<Stage>(&finder, state, next);
}

bool AddedTokens::IsSpecial(int32_t id) const {
  const auto found = kinds_.find(id);
  return found != kinds_.end() && found->second.special;
}

bool AddedTokens::IsControl(int32_t id) const {
  const auto found = kinds_.find(id);
  return found != kinds_.end() && found->second.control;
}

}  // namespace annulus
