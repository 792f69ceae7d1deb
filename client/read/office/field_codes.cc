#include "client/read/office/field_codes.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/read/characters.h"
#include "client/read/office/symbol_fonts.h"

namespace annulus::client {
namespace {

std::string Symbol(absl::string_view arguments) {
  const std::vector<absl::string_view> words = absl::StrSplit(arguments, ' ', absl::SkipEmpty());
  int code = 0;
  absl::string_view number = words.empty() ? "" : words[0];
  const bool is_hex = absl::ConsumePrefix(&number, "0x") || absl::ConsumePrefix(&number, "0X");
  if (!(is_hex ? absl::SimpleHexAtoi(number, &code) : absl::SimpleAtoi(number, &code))) return "";
  // The font's name may have blanks: \f "Wingdings 2".
  std::string font;
  if (const size_t at = arguments.find("\\f"); at != absl::string_view::npos) {
    absl::string_view rest = absl::StripLeadingAsciiWhitespace(arguments.substr(at + 2));
    const bool quoted = absl::ConsumePrefix(&rest, "\"");
    font = std::string(rest.substr(0, rest.find(quoted ? '"' : ' ')));
  }
  return SymbolText(font, absl::StrFormat("%04X", code & 0xFFFF));
}

// Reads the code of a formula: text, and switches such as \f(a,b) with arguments in brackets.
class EquationReader {
 public:
  explicit EquationReader(absl::string_view code) : rest_(code) {}

  // Up to the end, or to a comma or bracket that closes an argument.
  std::string Read(bool in_argument) {
    std::string text;
    while (!rest_.empty()) {
      if (in_argument && depth_ == 0 && absl::StrContains(",;)", rest_[0])) break;
      if (rest_[0] == '\\' && rest_.size() > 1) {
        rest_.remove_prefix(1);
        if (absl::ascii_isalpha(static_cast<unsigned char>(rest_[0]))) {
          absl::StrAppend(&text, Switch());
          continue;
        }
      } else if (in_argument) {
        depth_ += rest_[0] == '(' ? 1 : rest_[0] == ')' ? -1 : 0;
      }
      text += rest_[0];
      rest_.remove_prefix(1);
    }
    return std::string(absl::StripAsciiWhitespace(text));
  }

 private:
  static std::string Grouped(const std::string& text) {
    const bool is_one =
        std::all_of(text.begin(), text.end(), [](char c) { return IsWordByte(c) || c == '.'; });
    return is_one ? text : absl::StrCat("(", text, ")");
  }

  // The letters after a backslash, its options (\up8), and its arguments.
  std::string Switch() {
    constexpr int kMostDepth = 32;
    const auto letters = [this] {
      size_t end = 0;
      while (end < rest_.size() && absl::ascii_isalpha(static_cast<unsigned char>(rest_[end]))) {
        ++end;
      }
      const std::string word = absl::AsciiStrToLower(rest_.substr(0, end));
      rest_.remove_prefix(end);
      return word;
    };
    const std::string name = letters();
    bool lowers = false;
    while (!rest_.empty() && rest_[0] != '(') {
      if (rest_[0] == '\\' && rest_.size() > 1) {
        rest_.remove_prefix(1);
        const std::string option = letters();
        lowers = lowers || option == "do";
        if (option.empty() && !rest_.empty()) rest_.remove_prefix(1);
      } else if (rest_[0] == ' ' || IsDigit(rest_[0])) {
        rest_.remove_prefix(1);
      } else {
        return "";  // a switch without arguments
      }
    }
    std::vector<std::string> arguments;
    const int outer = depth_;
    if (++nesting_ > kMostDepth) rest_ = {};
    while (!rest_.empty() && rest_[0] != ')') {
      rest_.remove_prefix(1);  // "(" or ","
      depth_ = 0;
      arguments.push_back(Read(/*in_argument=*/true));
    }
    --nesting_;
    depth_ = outer;
    if (!rest_.empty()) rest_.remove_prefix(1);
    return Composed(name, lowers, arguments);
  }

  static std::string Composed(const std::string& name, bool lowers,
                              const std::vector<std::string>& arguments) {
    if (arguments.empty()) return "";
    if (name == "f" && arguments.size() > 1) {
      return absl::StrCat(Grouped(arguments[0]), "/", Grouped(arguments[1]));
    }
    if (name == "r") {
      const bool has_degree = arguments.size() > 1 && !arguments[0].empty();
      return absl::StrCat("\xE2\x88\x9A", has_degree ? absl::StrCat("[", arguments[0], "]") : "",
                          "(", arguments.back(), ")");
    }
    if (name == "s") {
      std::string scripts = absl::StrCat(lowers ? "_" : "^", Grouped(arguments[0]));
      if (arguments.size() > 1) absl::StrAppend(&scripts, "_", Grouped(arguments[1]));
      return scripts;
    }
    if (name == "b") return absl::StrCat("(", arguments[0], ")");
    return absl::StrJoin(arguments, name == "a" || name == "l" ? ", " : "");
  }

  absl::string_view rest_;
  int depth_ = 0;    // brackets of text that are open in the argument
  int nesting_ = 0;  // switches inside each other
};

}  // namespace

std::string FieldText(absl::string_view code) {
  code = absl::StripAsciiWhitespace(code);
  const std::string name = absl::AsciiStrToUpper(code.substr(0, code.find(' ')));
  const absl::string_view arguments = code.substr(std::min(name.size(), code.size()));
  if (name == "SYMBOL") return Symbol(arguments);
  if (name == "EQ") return EquationReader(arguments).Read(/*in_argument=*/false);
  return "";
}

}  // namespace annulus::client
