#include "engine/text/answer/marked_object.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/text/answer/json_scanner.h"
#include "engine/text/answer/json_text.h"

namespace annulus {
namespace {

constexpr MarkedObject::Result kMore = MarkedObject::Result::kMore;
constexpr MarkedObject::Result kBad = MarkedObject::Result::kBad;

}  // namespace

MarkedObject::Piece MarkedObject::Open(bool object) {
  if (objects_.size() == kMostDepth) return {kBad, ""};
  objects_.push_back(object);
  state_ = object ? State::kFirstName : State::kFirstValue;
  return {kMore, object ? "{" : "["};
}

// `json`: what the byte ends before.
MarkedObject::Piece MarkedObject::Close(char c, std::string json) {
  if (objects_.back() != (c == '}')) return {kBad, std::move(json)};
  objects_.pop_back();
  state_ = State::kAfterValue;
  json.push_back(c);
  return {objects_.empty() ? Result::kEnd : kMore, std::move(json)};
}

// `json`: the name.
MarkedObject::Piece MarkedObject::EndName(const std::string& json) {
  state_ = State::kValue;
  word_.clear();
  return {kMore, absl::StrCat(json, ": ")};
}

MarkedObject::Piece MarkedObject::PushName(char c) {
  if (word_.empty() && IsJsonSpace(c)) return {};
  if (c == '}' && state_ == State::kFirstName && word_.empty()) return Close(c, "");
  if (c == ',' || c == '{' || c == '}' || c == '[' || c == ']') return {kBad, ""};
  state_ = State::kName;
  if (c == ':') {
    absl::StripTrailingAsciiWhitespace(&word_);
    if (word_.empty()) return {kBad, ""};
    // Models also write names as JSON has them.
    return EndName(word_.front() == '"' ? JsonOfWord(word_) : JsonText(word_));
  }
  word_.push_back(c);
  return {word_.size() > kMostWord ? kBad : kMore, ""};
}

MarkedObject::Piece MarkedObject::PushValue(char c) {
  if (IsJsonSpace(c)) return {};
  if (c == '{' || c == '[') return Open(c == '{');
  if (c == ']' && state_ == State::kFirstValue) return Close(c, "");
  if (c == ',' || c == '}' || c == ']' || c == ':') return {kBad, ""};
  state_ = State::kWord;
  word_.assign(1, c);
  return {};
}

// `json`: what the byte ends before.
MarkedObject::Piece MarkedObject::PushAfterValue(char c, std::string json) {
  state_ = State::kAfterValue;
  if (IsJsonSpace(c)) return {kMore, std::move(json)};
  if (c == '}' || c == ']') return Close(c, std::move(json));
  if (c != ',') return {kBad, std::move(json)};
  state_ = objects_.back() ? State::kName : State::kValue;
  return {kMore, json + ", "};
}

MarkedObject::Piece MarkedObject::Push(char c) {
  switch (state_) {
    case State::kBegin:
      return c == '{' ? Open(/*object=*/true) : Piece{kBad, ""};
    case State::kFirstName:
    case State::kName:
      return PushName(c);
    case State::kMarkedName:
      word_.push_back(c);
      return {word_.size() > kMostWord ? kBad : kMore, ""};
    case State::kColon:
      if (IsJsonSpace(c)) return {};
      return c == ':' ? EndName(JsonText(word_)) : Piece{kBad, ""};
    case State::kFirstValue:
    case State::kValue:
      return PushValue(c);
    case State::kText: {
      Piece piece;
      AppendEscaped(c, piece.json);
      return piece;
    }
    case State::kWord:
      if (c != ',' && c != '}' && c != ']' && c != '\n') {
        word_.push_back(c);
        return {word_.size() > kMostWord ? kBad : kMore, ""};
      }
      absl::StripTrailingAsciiWhitespace(&word_);
      return PushAfterValue(c, JsonOfWord(std::exchange(word_, "")));
    case State::kAfterValue:
      return PushAfterValue(c, "");
  }
  return {kBad, ""};
}

MarkedObject::Piece MarkedObject::PushMark() {
  switch (state_) {
    case State::kFirstName:
    case State::kName:
      if (!word_.empty()) return {kBad, ""};
      state_ = State::kMarkedName;
      return {};
    case State::kMarkedName:
      state_ = State::kColon;
      return {};
    case State::kFirstValue:
    case State::kValue:
      state_ = State::kText;
      return {kMore, "\""};
    case State::kText:
      state_ = State::kAfterValue;
      return {kMore, "\""};
    default:
      return {kBad, ""};
  }
}

}  // namespace annulus
