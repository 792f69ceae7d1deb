#include "engine/text/template/language/lexer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "engine/text/template/language/failure.h"
#include "engine/text/template/language/literals.h"
#include "engine/text/template/library/characters.h"

namespace annulus::jinja {
namespace {

constexpr std::array<absl::string_view, 25> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};

bool IsNameByte(char c) { return absl::ascii_isalnum(c) || c == '_' || (c & 0x80) != 0; }

std::string NormalizeLineEnds(absl::string_view source) {
  std::string text = absl::StrReplaceAll(source, {{"\r\n", "\n"}, {"\r", "\n"}});
  if (absl::EndsWith(text, "\n")) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(absl::string_view source) : source_(source) {}

  std::vector<Token> Run() {
    while (position_ < source_.size()) LexData();
    Add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  absl::string_view Rest() const { return source_.substr(position_); }
  bool At(absl::string_view text) const { return absl::StartsWith(Rest(), text); }

  void Add(TokenType type, absl::string_view text) {
    Token token;
    token.type = type;
    token.line = line_;
    token.text = std::string(text);
    tokens_.push_back(std::move(token));
  }

  void Advance(size_t bytes) {
    const absl::string_view passed = Rest().substr(0, bytes);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    if (bytes > 0) line_starting_ = passed.back() == '\n';
    position_ += bytes;
  }

  void SkipSpace() { Advance(Rest().size() - StripLeft(Rest()).size()); }

  // Text up to the next tag, and the tag.
  void LexData() {
    size_t begin = position_;
    do {
      begin = source_.find('{', begin);
      if (begin == absl::string_view::npos || begin + 1 == source_.size()) {
        AddData(Rest());
        Advance(Rest().size());
        return;
      }
    } while (!absl::StrContains("{%#", source_.substr(begin + 1, 1)) && ++begin > 0);

    const char tag = source_[begin + 1];
    const char next = begin + 2 < source_.size() ? source_[begin + 2] : '\0';
    const char sign = next == '-' || next == '+' ? next : '\0';
    const absl::string_view data = source_.substr(position_, begin - position_);
    AddData(BeforeTag(data, tag, sign));
    Advance(data.size() + 2 + (sign != '\0' ? 1 : 0));
    line_starting_ = false;
    if (tag == '#') return LexComment();
    if (tag == '%' && LexRaw()) return;
    LexTag(tag == '{');
  }

  void AddData(absl::string_view data) {
    if (!data.empty()) Add(TokenType::kData, data);
  }

  // What is left of the text in front of a tag.
  absl::string_view BeforeTag(absl::string_view data, char tag, char sign) const {
    if (sign == '-') return StripRight(data);
    if (sign == '+' || tag == '{') return data;
    const size_t line_end = data.rfind('\n');
    const bool has_line_end = line_end != absl::string_view::npos;
    if (!has_line_end && !line_starting_) return data;
    const size_t line_begin = has_line_end ? line_end + 1 : 0;
    return StripLeft(data.substr(line_begin)).empty() ? data.substr(0, line_begin) : data;
  }

  // Passes over the end of a block or a comment: `end` with its sign and what the sign strips.
  // False if there is none here.
  bool PassEnd(absl::string_view end) {
    const absl::string_view rest = Rest();
    if (absl::StartsWith(rest, end)) {
      Advance(end.size() + (absl::StartsWith(rest.substr(end.size()), "\n") ? 1 : 0));
      return true;
    }
    if (rest.empty() || !absl::StartsWith(rest.substr(1), end)) return false;
    if (rest[0] == '+') {
      Advance(1 + end.size());
      return true;
    }
    if (rest[0] != '-') return false;
    Advance(1 + end.size());
    SkipSpace();
    return true;
  }

  void LexComment() {
    const int begin_line = line_;
    while (!Rest().empty()) {
      if (PassEnd("#}")) return;
      Advance(1);
    }
    FailAt(begin_line, "a comment has no end: '#}' is missing");
  }

  // {% raw %}...{% endraw %}, if it is one; the position is behind "{%" and its sign.
  bool LexRaw() {
    absl::string_view rest = StripLeft(Rest());
    if (!absl::ConsumePrefix(&rest, "raw")) return false;
    rest = StripLeft(rest);
    const bool strip = absl::ConsumePrefix(&rest, "-");
    if (!absl::ConsumePrefix(&rest, "%}")) return false;
    const int begin_line = line_;
    Advance(Rest().size() - rest.size());
    line_starting_ = false;
    if (strip) SkipSpace();
    for (size_t begin = source_.find("{%", position_); begin != absl::string_view::npos;
         begin = source_.find("{%", begin + 1)) {
      if (LexEndRaw(begin)) return true;
    }
    FailAt(begin_line, "'raw' has no 'endraw'");
  }

  bool LexEndRaw(size_t begin) {
    absl::string_view rest = source_.substr(begin + 2);
    char sign = '\0';
    if (absl::StartsWith(rest, "-") || absl::StartsWith(rest, "+")) {
      sign = rest[0];
      rest.remove_prefix(1);
    }
    rest = StripLeft(rest);
    if (!absl::ConsumePrefix(&rest, "endraw")) return false;
    rest = StripLeft(rest);
    const size_t end = source_.size() - rest.size();
    const std::pair<size_t, int> before(position_, line_);
    const bool line_starting = line_starting_;
    const absl::string_view data = source_.substr(position_, begin - position_);
    Advance(end - position_);
    if (!PassEnd("%}")) {
      std::tie(position_, line_) = before;
      line_starting_ = line_starting;
      return false;
    }
    const bool now_starting = std::exchange(line_starting_, line_starting);
    const absl::string_view kept = BeforeTag(data, '%', sign);
    line_starting_ = now_starting;
    if (!kept.empty()) {
      Add(TokenType::kData, kept);
      tokens_.back().line = before.second;
    }
    return true;
  }

  void LexTag(bool variable) {
    const int begin_line = line_;
    Add(variable ? TokenType::kVariableBegin : TokenType::kBlockBegin, variable ? "{{" : "{%");
    std::string open;  // brackets that wait for their partner
    while (!Rest().empty()) {
      if (open.empty() && PassTagEnd(variable)) return;
      const size_t space = Rest().size() - StripLeft(Rest()).size();
      if (space > 0) {
        Advance(space);
        continue;
      }
      if (!LexNumber() && !LexName() && !LexString()) LexOperator(open);
    }
    FailAt(begin_line, "a tag has no end: '", variable ? "}}" : "%}", "' is missing");
  }

  bool PassTagEnd(bool variable) {
    const int line = line_;
    if (variable) {
      if (At("}}")) {
        Advance(2);
      } else if (At("-}}")) {
        Advance(3);
        SkipSpace();
      } else {
        return false;
      }
    } else if (!PassEnd("%}")) {
      return false;
    }
    Add(variable ? TokenType::kVariableEnd : TokenType::kBlockEnd, variable ? "}}" : "%}");
    tokens_.back().line = line;
    return true;
  }

  bool LexNumber() {
    const bool behind_dot = position_ > 0 && source_[position_ - 1] == '.';
    const std::optional<NumberLiteral> literal = ReadNumber(Rest(), /*may_be_float=*/!behind_dot);
    if (!literal.has_value()) return false;
    if (literal->too_large) FailAt(line_, "an integer does not fit 64 bits");
    Add(literal->is_float ? TokenType::kFloat : TokenType::kInt, Rest().substr(0, literal->length));
    tokens_.back().integer = literal->integer;
    tokens_.back().number = literal->number;
    Advance(literal->length);
    return true;
  }

  bool LexName() {
    const absl::string_view rest = Rest();
    size_t length = 0;
    while (length < rest.size() && IsNameByte(rest[length])) ++length;
    if (length == 0) return false;
    if (absl::ascii_isdigit(rest[0])) FailAt(line_, "a name begins with a digit");
    Add(TokenType::kName, rest.substr(0, length));
    Advance(length);
    return true;
  }

  bool LexString() {
    const absl::string_view rest = Rest();
    const char quote = rest[0];
    if (quote != '\'' && quote != '"') return false;
    size_t end = 1;
    while (end < rest.size() && rest[end] != quote) end += rest[end] == '\\' ? 2 : 1;
    if (end >= rest.size())
      FailAt(line_, "a string has no end: ", rest.substr(0, 1), " is missing");
    std::string text;
    const absl::string_view problem = Unescape(rest.substr(1, end - 1), &text);
    if (!problem.empty()) FailAt(line_, problem);
    Add(TokenType::kString, text);
    Advance(end + 1);
    return true;
  }

  void LexOperator(std::string& open) {
    const auto found = std::find_if(kOperators.begin(), kOperators.end(),
                                    [this](absl::string_view text) { return At(text); });
    if (found == kOperators.end()) {
      size_t position = 0;
      FailAt(line_, "unexpected character '", NextCharacter(Rest(), &position), "'");
    }
    const char c = found->size() == 1 ? found->front() : '\0';
    if (c == '(') open.push_back(')');
    if (c == '[') open.push_back(']');
    if (c == '{') open.push_back('}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) {
        FailAt(line_, "unexpected '", *found, "'",
               open.empty() ? "" : absl::StrCat(", expected '", open.substr(open.size() - 1), "'"));
      }
      open.pop_back();
    }
    Add(TokenType::kOperator, *found);
    Advance(found->size());
  }

  const absl::string_view source_;
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // what was passed last ended with a line end
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(absl::string_view source) {
  const std::string text = NormalizeLineEnds(source);
  return Lexer(text).Run();
}

}  // namespace annulus::jinja
