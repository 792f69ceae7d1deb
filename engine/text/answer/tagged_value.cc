#include "engine/text/answer/tagged_value.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/text/answer/json_text.h"

namespace annulus {
std::string TaggedArguments::Begin() {
  first_pair_ = true;
  return "{";
}

std::string TaggedArguments::BeginValue(absl::string_view key, bool is_text, bool trims) {
  is_text_ = is_text;
  trims_ = trims;
  empty_ = true;
  held_.clear();
  is_json_ = !is_text;
  scanner_ = JsonScanner::OfValue();
  kept_.reset();
  return absl::StrCat(std::exchange(first_pair_, false) ? "" : ", ", JsonText(key), ": ",
                      is_text ? "\"" : "");
}

TaggedArguments::Piece TaggedArguments::Push(char c) {
  const bool first = std::exchange(empty_, false);
  if (!is_text_) {
    held_.push_back(c);
    is_json_ = is_json_ && scanner_.Push(c) != JsonScanner::Result::kBad;
    return {};
  }
  if (first && trims_ && c == '\n') return {"", 1};
  Piece piece;
  for (const char held : held_) AppendEscaped(held, piece.json);
  piece.source = held_.size();
  held_.clear();
  if (trims_ && c == '\n') {
    held_.push_back(c);
  } else {
    AppendEscaped(c, piece.json);
    ++piece.source;
  }
  return piece;
}

TaggedArguments::Piece TaggedArguments::EndValue() {
  const std::string held = std::exchange(held_, "");
  if (is_text_) return {"\"", held.size()};
  absl::string_view value = held;
  if (trims_ && !value.empty() && value.front() == '\n') value.remove_prefix(1);
  if (trims_ && !value.empty() && value.back() == '\n') value.remove_suffix(1);
  return {JsonOfWord(value), held.size()};
}

bool TaggedArguments::KeepsMark() {
  const bool keeps = is_json_ && scanner_.in_string() && !scanner_.in_escape();
  if (keeps && !kept_.has_value()) kept_ = held_.size();
  return keeps;
}

std::string TaggedArguments::TakeBack(bool ends) {
  if (!kept_.has_value() || (is_json_ && !ends)) return "";
  std::string rest = held_.substr(*kept_);
  held_.resize(*kept_);
  kept_.reset();
  is_json_ = false;
  return rest;
}

}  // namespace annulus
