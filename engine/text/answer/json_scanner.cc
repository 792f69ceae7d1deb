#include "engine/text/answer/json_scanner.h"

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

namespace annulus {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

JsonScanner::Result JsonScanner::Open(bool object) {
  if (depth() == kMostDepth) return Result::kBad;
  objects_.push_back(object);
  state_ = object ? State::kFirstKey : State::kFirstValue;
  return Result::kMore;
}

JsonScanner::Result JsonScanner::Close(bool object) {
  if (objects_.empty() || objects_.back() != object) return Result::kBad;
  objects_.pop_back();
  state_ = State::kAfterValue;
  return objects_.empty() ? Result::kEnd : Result::kMore;
}

JsonScanner::Result JsonScanner::Push(char c) {
  switch (state_) {
    case State::kString:
    case State::kEscape:
      return PushString(c);
    case State::kNumber:
      return PushNumber(c);
    case State::kLiteral:
      if (c != *literal_++) return Result::kBad;
      if (*literal_ == '\0') state_ = State::kAfterValue;
      return Result::kMore;
    default:
      break;
  }
  if (IsJsonSpace(c) && begun()) return Result::kMore;
  switch (state_) {
    case State::kBegin:
      return c == '{' ? Open(/*object=*/true) : Result::kBad;
    case State::kFirstKey:
      if (c == '}') return Close(/*object=*/true);
      [[fallthrough]];
    case State::kKey:
      if (c != '"') return Result::kBad;
      key_ = true;
      state_ = State::kString;
      return Result::kMore;
    case State::kColon:
      if (c != ':') return Result::kBad;
      state_ = State::kValue;
      return Result::kMore;
    case State::kFirstValue:
      if (c == ']') return Close(/*object=*/false);
      return PushValue(c);
    case State::kValue:
      return PushValue(c);
    default:
      return PushAfterValue(c);
  }
}

JsonScanner::Result JsonScanner::PushValue(char c) {
  switch (c) {
    case '{':
      return Open(/*object=*/true);
    case '[':
      return Open(/*object=*/false);
    case '"':
      key_ = false;
      state_ = State::kString;
      return Result::kMore;
    case 't':
    case 'f':
    case 'n':
      literal_ = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
      state_ = State::kLiteral;
      return Result::kMore;
    default:
      if (c != '-' && !IsDigit(c)) return Result::kBad;
      digits_ = c == '-' ? Digits::kMinus : c == '0' ? Digits::kZero : Digits::kInteger;
      state_ = State::kNumber;
      return Result::kMore;
  }
}

JsonScanner::Result JsonScanner::PushString(char c) {
  if (hex_left_ > 0) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return Result::kBad;
    if (--hex_left_ == 0) state_ = State::kString;
    return Result::kMore;
  }
  if (state_ == State::kEscape) {
    if (c == 'u') {
      hex_left_ = 4;
      return Result::kMore;
    }
    state_ = State::kString;
    return absl::string_view("\"\\/bfnrt").find(c) == absl::string_view::npos ? Result::kBad
                                                                              : Result::kMore;
  }
  if (static_cast<unsigned char>(c) < 0x20) return Result::kBad;
  if (c == '\\') state_ = State::kEscape;
  if (c == '"') state_ = key_ ? State::kColon : State::kAfterValue;
  return Result::kMore;
}

JsonScanner::Result JsonScanner::PushNumber(char c) {
  const auto go = [this](Digits digits) {
    digits_ = digits;
    return Result::kMore;
  };
  const bool exponent = c == 'e' || c == 'E';
  switch (digits_) {
    case Digits::kMinus:
      if (!IsDigit(c)) return Result::kBad;
      return go(c == '0' ? Digits::kZero : Digits::kInteger);
    case Digits::kZero:
    case Digits::kInteger:
      if (IsDigit(c)) return digits_ == Digits::kZero ? Result::kBad : Result::kMore;
      if (c == '.') return go(Digits::kPoint);
      if (exponent) return go(Digits::kE);
      return PushAfterValue(c);
    case Digits::kPoint:
      return IsDigit(c) ? go(Digits::kFraction) : Result::kBad;
    case Digits::kFraction:
      if (IsDigit(c)) return Result::kMore;
      return exponent ? go(Digits::kE) : PushAfterValue(c);
    case Digits::kE:
      if (c == '+' || c == '-') return go(Digits::kSign);
      return IsDigit(c) ? go(Digits::kExponent) : Result::kBad;
    case Digits::kSign:
      return IsDigit(c) ? go(Digits::kExponent) : Result::kBad;
    case Digits::kExponent:
      return IsDigit(c) ? Result::kMore : PushAfterValue(c);
  }
  return Result::kBad;
}

JsonScanner::Result JsonScanner::PushAfterValue(char c) {
  state_ = State::kAfterValue;
  if (IsJsonSpace(c)) return Result::kMore;
  if (c == '}' || c == ']') return Close(c == '}');
  if (c != ',' || objects_.empty()) return Result::kBad;
  state_ = objects_.back() ? State::kKey : State::kValue;
  return Result::kMore;
}

}  // namespace annulus
