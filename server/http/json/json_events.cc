#include "server/http/json/json_events.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "server/http/json/json_run.h"

namespace annulus::server {
namespace {

constexpr int kEnd = -1;  // stands for a byte behind the text

// The bytes of all pieces, up to the end or to where the work was cancelled.
class Bytes {
 public:
  Bytes(const std::deque<std::string>& pieces, const CancelFlag& cancel)
      : pieces_(pieces), cancel_(cancel) {
    EnterPiece();
  }

  int Peek() {
    if (at_ == end_ && !EnterPiece()) return kEnd;
    return static_cast<uint8_t>(*at_);
  }
  // Takes a byte. The end counts as one, each time.
  int Next() {
    const int c = Peek();
    c == kEnd ? ++ends_ : (++at_, 0);
    return c;
  }
  // How many bytes were taken: the number of the last one, counted from 1.
  size_t taken() const { return before_ + static_cast<size_t>(at_ - begin_) + ends_; }

  // The rest of the piece.
  const char* at() const { return at_; }
  const char* end() const { return end_; }
  void Advance(size_t bytes) { at_ += bytes; }

 private:
  // Goes on to the next piece that is not empty; false at the end.
  bool EnterPiece() {
    while (!over_) {
      cancel_.MayPause();
      if (piece_ == pieces_.size() || cancel_.cancelled()) {
        over_ = true;
        break;
      }
      const std::string& piece = pieces_[piece_++];
      before_ += static_cast<size_t>(at_ - begin_);
      begin_ = at_ = piece.data();
      end_ = begin_ + piece.size();
      if (at_ != end_) return true;
    }
    return false;
  }

  const std::deque<std::string>& pieces_;
  const CancelFlag& cancel_;
  size_t piece_ = 0;
  const char* begin_ = nullptr;
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  bool over_ = false;
  size_t before_ = 0;
  size_t ends_ = 0;
};

void AppendCodePoint(uint32_t c, std::string& text) {
  const auto push = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    push(c);
  } else if (c < 0x800) {
    push(0xC0 | (c >> 6));
    push(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    push(0xE0 | (c >> 12));
    push(0x80 | ((c >> 6) & 0x3F));
    push(0x80 | (c & 0x3F));
  } else {
    push(0xF0 | (c >> 18));
    push(0x80 | ((c >> 12) & 0x3F));
    push(0x80 | ((c >> 6) & 0x3F));
    push(0x80 | (c & 0x3F));
  }
}

bool IsHighSurrogate(uint32_t c) { return c >= 0xD800 && c < 0xDC00; }
bool IsLowSurrogate(uint32_t c) { return c >= 0xDC00 && c < 0xE000; }

enum class Token : uint8_t {
  kInvalid,
  kEnd,
  kBeginObject,
  kEndObject,
  kBeginArray,
  kEndArray,
  kColon,
  kComma,
  kTrue,
  kFalse,
  kNull,
  kString,
  kInteger,
  kNatural,
  kReal,
};

class Lexer {
 public:
  Lexer(const std::deque<std::string>& pieces, const JsonSurvey& survey, const CancelFlag& cancel)
      : bytes_(pieces, cancel), most_(survey.longest_string) {}

  // False if it begins with a part of a byte order mark.
  bool SkipByteOrderMark() {
    if (bytes_.Peek() != 0xEF) return true;
    bytes_.Next();
    return bytes_.Next() == 0xBB && bytes_.Next() == 0xBF;
  }
  Token Next();

  std::string& text() { return text_; }  // of a string, or a number as it is written
  int64_t integer() const { return integer_; }
  uint64_t natural() const { return natural_; }
  double real() const { return real_; }
  size_t taken() const { return bytes_.taken(); }

 private:
  Token Word(absl::string_view rest, Token token) {
    for (const char c : rest) {
      if (bytes_.Next() != c) return Token::kInvalid;
    }
    return token;
  }
  bool TakeIn(int low, int high) {
    const int c = bytes_.Next();
    if (c < low || c > high) return false;
    text_.push_back(static_cast<char>(c));
    return true;
  }
  Token String();
  bool Escape();
  std::optional<uint32_t> HexDigits();
  bool Character(int first);
  Token Number(int first);
  bool Digits();
  Token Convert(bool is_real);

  Bytes bytes_;
  const size_t most_;  // of a text
  std::string text_;
  int64_t integer_ = 0;
  uint64_t natural_ = 0;
  double real_ = 0;
};

Token Lexer::Next() {
  int c = bytes_.Next();
  while (c == ' ' || c == '\t' || c == '\n' || c == '\r') c = bytes_.Next();
  switch (c) {
    case '{':
      return Token::kBeginObject;
    case '}':
      return Token::kEndObject;
    case '[':
      return Token::kBeginArray;
    case ']':
      return Token::kEndArray;
    case ':':
      return Token::kColon;
    case ',':
      return Token::kComma;
    case 't':
      return Word("rue", Token::kTrue);
    case 'f':
      return Word("alse", Token::kFalse);
    case 'n':
      return Word("ull", Token::kNull);
    case '"':
      return String();
    case '\0':
    case kEnd:
      return Token::kEnd;
    default:
      return c == '-' || (c >= '0' && c <= '9') ? Number(c) : Token::kInvalid;
  }
}

Token Lexer::String() {
  text_.clear();
  text_.reserve(most_);
  while (true) {
    const bool ends = bytes_.Peek() == kEnd;  // otherwise enters the next piece
    const size_t run = JsonRun<true>(bytes_.at(), bytes_.end());
    text_.append(bytes_.at(), run);
    bytes_.Advance(run);
    if (!ends && bytes_.at() == bytes_.end()) continue;
    const int c = bytes_.Next();
    if (c == '"') return Token::kString;
    if (c == '\\' ? !Escape() : !Character(c)) return Token::kInvalid;
  }
}

// What follows a backslash.
bool Lexer::Escape() {
  static constexpr absl::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  const int letter = bytes_.Next();
  if (letter != 'u') {
    const size_t at =
        letter == kEnd ? absl::string_view::npos : kLetters.find(static_cast<char>(letter));
    if (at == absl::string_view::npos) return false;
    text_.push_back(kMeanings[at]);
    return true;
  }
  std::optional<uint32_t> c = HexDigits();
  if (!c.has_value() || IsLowSurrogate(*c)) return false;
  if (IsHighSurrogate(*c)) {
    if (bytes_.Next() != '\\' || bytes_.Next() != 'u') return false;
    const std::optional<uint32_t> low = HexDigits();
    if (!low.has_value() || !IsLowSurrogate(*low)) return false;
    c = 0x10000 + ((*c - 0xD800) << 10) + (*low - 0xDC00);
  }
  AppendCodePoint(*c, text_);
  return true;
}

std::optional<uint32_t> Lexer::HexDigits() {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    const int c = bytes_.Next();
    if (c == kEnd || !absl::ascii_isxdigit(static_cast<unsigned char>(c))) return std::nullopt;
    const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    value = value << 4 | static_cast<uint32_t>(digit);
  }
  return value;
}

// A character of several bytes (RFC 3629, section 4).
bool Lexer::Character(int first) {
  if (first < 0xC2 || first > 0xF4) return false;  // control characters and the end, too
  text_.push_back(static_cast<char>(first));
  if (first >= 0xE0) {
    const int low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const int high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (!TakeIn(low, high)) return false;
    if (first >= 0xF0 && !TakeIn(0x80, 0xBF)) return false;
  }
  return TakeIn(0x80, 0xBF);
}

// At least one digit; the first that is not valid is taken.
bool Lexer::Digits() {
  if (!TakeIn('0', '9')) return false;
  while (absl::ascii_isdigit(static_cast<unsigned char>(std::max(bytes_.Peek(), 0)))) {
    text_.push_back(static_cast<char>(bytes_.Next()));
  }
  return true;
}

Token Lexer::Number(int first) {
  text_.assign(1, static_cast<char>(first));
  if (first == '-') {
    if (bytes_.Peek() == '0') {
      text_.push_back(static_cast<char>(bytes_.Next()));
    } else if (!Digits()) {
      return Token::kInvalid;
    }
  } else if (first != '0' &&
             absl::ascii_isdigit(static_cast<unsigned char>(std::max(bytes_.Peek(), 0)))) {
    Digits();
  }
  bool is_real = false;
  if (bytes_.Peek() == '.') {
    is_real = true;
    text_.push_back(static_cast<char>(bytes_.Next()));
    if (!Digits()) return Token::kInvalid;
  }
  if (bytes_.Peek() == 'e' || bytes_.Peek() == 'E') {
    is_real = true;
    text_.push_back(static_cast<char>(bytes_.Next()));
    if (bytes_.Peek() == '+' || bytes_.Peek() == '-') {
      text_.push_back(static_cast<char>(bytes_.Next()));
    }
    if (!Digits()) return Token::kInvalid;
  }
  return Convert(is_real);
}

Token Lexer::Convert(bool is_real) {
  if (!is_real) {
    errno = 0;
    if (text_.front() == '-') {
      integer_ = std::strtoll(text_.c_str(), nullptr, 10);
      if (errno == 0) return Token::kInteger;
    } else {
      natural_ = std::strtoull(text_.c_str(), nullptr, 10);
      if (errno == 0) return Token::kNatural;
    }
  }
  real_ = std::strtod(text_.c_str(), nullptr);
  return std::isfinite(real_) ? Token::kReal : Token::kInvalid;
}

class Parser {
 public:
  Parser(const std::deque<std::string>& pieces, const JsonSurvey& survey, const CancelFlag& cancel,
         JsonEvents& events)
      : lexer_(pieces, survey, cancel), events_(events) {}

  JsonEnding Parse() {
    if (!lexer_.SkipByteOrderMark()) return {false, lexer_.taken()};
    Token token = lexer_.Next();
    while (true) {
      Step step = Value(token);
      while (step == Step::kBehindValue) step = BehindValue(&token);
      if (step == Step::kInvalid) return {false, lexer_.taken()};
      if (step == Step::kStopped) return {false, std::nullopt};
      if (step == Step::kOver) break;
      if (step == Step::kNextToken) token = lexer_.Next();
    }
    if (lexer_.Next() != Token::kEnd) return {false, lexer_.taken()};
    return {true, std::nullopt};
  }

 private:
  enum class Step : uint8_t {
    kBehindValue,  // a value has ended
    kNextToken,    // a value begins with the next token
    kThisToken,    // a value begins with the token that was read
    kOver,
    kInvalid,
    kStopped,
  };

  static Step If(bool goes_on, Step step) { return goes_on ? step : Step::kStopped; }

  // Takes a value that begins with a token, up to its end or to the first value in it.
  Step Value(Token& token) {
    switch (token) {
      case Token::kBeginObject:
        if (!events_.StartObject()) return Step::kStopped;
        token = lexer_.Next();
        if (token == Token::kEndObject) return If(events_.EndObject(), Step::kBehindValue);
        is_array_.push_back(false);
        return Key(token);
      case Token::kBeginArray:
        if (!events_.StartArray()) return Step::kStopped;
        token = lexer_.Next();
        if (token == Token::kEndArray) return If(events_.EndArray(), Step::kBehindValue);
        is_array_.push_back(true);
        return Step::kThisToken;
      case Token::kString:
        return If(events_.String(lexer_.text()), Step::kBehindValue);
      case Token::kInteger:
        return If(events_.Integer(lexer_.integer()), Step::kBehindValue);
      case Token::kNatural:
        return If(events_.Natural(lexer_.natural()), Step::kBehindValue);
      case Token::kReal:
        return If(events_.Real(lexer_.real(), lexer_.text()), Step::kBehindValue);
      case Token::kTrue:
      case Token::kFalse:
        return If(events_.Bool(token == Token::kTrue), Step::kBehindValue);
      case Token::kNull:
        return If(events_.Null(), Step::kBehindValue);
      default:
        return Step::kInvalid;
    }
  }

  // A key and its colon.
  Step Key(Token token) {
    if (token != Token::kString) return Step::kInvalid;
    if (!events_.Key(lexer_.text())) return Step::kStopped;
    return lexer_.Next() == Token::kColon ? Step::kNextToken : Step::kInvalid;
  }

  Step BehindValue(Token* token) {
    if (is_array_.empty()) return Step::kOver;
    const bool is_array = is_array_.back();
    *token = lexer_.Next();
    if (*token == Token::kComma) return is_array ? Step::kNextToken : Key(lexer_.Next());
    if (*token != (is_array ? Token::kEndArray : Token::kEndObject)) return Step::kInvalid;
    is_array_.pop_back();
    return If(is_array ? events_.EndArray() : events_.EndObject(), Step::kBehindValue);
  }

  Lexer lexer_;
  JsonEvents& events_;
  std::vector<bool> is_array_;  // for each open array or object
};

}  // namespace

JsonEnding ParseJsonEvents(const std::deque<std::string>& pieces, const JsonSurvey& survey,
                           const CancelFlag& cancel, JsonEvents& events) {
  return Parser(pieces, survey, cancel, events).Parse();
}

}  // namespace annulus::server
