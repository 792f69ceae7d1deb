#include "engine/text/stages/pcre_dialect.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Escapes of letters and digits that mean the same in both. Escaped punctuation always does.
constexpr absl::string_view kSameEscapes = "dDpPrntfaexAzZ";

class Translator {
 public:
  explicit Translator(absl::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (at_ < pattern_.size()) {
      ANNULUS_RETURN_IF_ERROR(Step());
    }
    if (in_class_) return Refuse("an unclosed character class", class_start_);
    return std::move(out_);
  }

 private:
  absl::Status Step() {
    const char c = pattern_[at_];
    if (c == '\\') return Escape();
    if (in_class_) return InsideClass(c);
    switch (c) {
      case '[':
        return OpenClass();
      case '(':
        return OpenGroup();
      case '{':
        return Interval();
      default:
        return Copy(1);
    }
  }

  absl::Status Copy(size_t count) {
    out_.append(pattern_.data() + at_, count);
    at_ += count;
    return absl::OkStatus();
  }

  absl::Status Replace(size_t count, absl::string_view with) {
    out_.append(with.data(), with.size());
    at_ += count;
    return absl::OkStatus();
  }

  absl::Status Refuse(absl::string_view what, size_t offset) const {
    return absl::InvalidArgumentError(
        absl::StrCat("the pattern has ", what, " at byte ", offset, ", which is not supported"));
  }

  absl::Status Escape() {
    if (at_ + 1 == pattern_.size()) return Refuse("a backslash at its end", at_);
    const char c = pattern_[at_ + 1];
    constexpr absl::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}";
    switch (c) {
      case 's':
        return Replace(2, "\\p{White_Space}");
      case 'S':
        return Replace(2, "\\P{White_Space}");
      case 'w':
        return Replace(2, in_class_ ? std::string(kWord) : absl::StrCat("[", kWord, "]"));
      case 'W':
        if (in_class_) return Refuse("\\W inside a character class", at_);
        return Replace(2, absl::StrCat("[^", kWord, "]"));
      case 'u':
        return UnicodeEscape();
      default:
        break;
    }
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) && !absl::StrContains(kSameEscapes, c)) {
      return Refuse(absl::StrCat("the escape \\", absl::string_view(&c, 1)), at_);
    }
    if (pattern_.substr(at_ + 2, 1) != "{" || !absl::StrContains("pPx", c)) return Copy(2);
    const size_t close = pattern_.find('}', at_);
    if (close == absl::string_view::npos) return Refuse("an unclosed {", at_ + 2);
    return Copy(close + 1 - at_);
  }

  absl::Status UnicodeEscape() {
    const absl::string_view digits = pattern_.substr(at_ + 2, 4);
    for (const char digit : digits) {
      if (!absl::ascii_isxdigit(static_cast<unsigned char>(digit))) {
        return Refuse("a malformed \\u escape", at_);
      }
    }
    if (digits.size() != 4) return Refuse("a malformed \\u escape", at_);
    return Replace(6, absl::StrCat("\\x{", digits, "}"));
  }

  absl::Status OpenClass() {
    in_class_ = true;
    class_start_ = at_;
    ANNULUS_RETURN_IF_ERROR(Copy(1));
    if (at_ < pattern_.size() && pattern_[at_] == '^') ANNULUS_RETURN_IF_ERROR(Copy(1));
    if (at_ < pattern_.size() && pattern_[at_] == ']') {
      return Refuse("a character class that starts with ]", class_start_);
    }
    return absl::OkStatus();
  }

  absl::Status InsideClass(char c) {
    if (c == '[') return OpenNested();
    if (c == '&' && pattern_.substr(at_, 2) == "&&") return Refuse("an intersection (&&)", at_);
    if (c != ']') return Copy(1);
    if (nested_ > 0) return CloseNested();
    in_class_ = false;
    return Copy(1);
  }

  // A class inside a class adds its characters, so that its brackets can be left out. Left out they
  // must not make a range of what stands on both sides of a hyphen.
  absl::Status OpenNested() {
    const absl::string_view inside = pattern_.substr(at_ + 1, 1);
    if (inside == ":") return Refuse("a named character class", at_);
    if (inside == "^") return Refuse("a negated class inside a class", at_);
    if (inside == "]") return Refuse("a character class that starts with ]", at_);
    if (inside == "-" || pattern_[at_ - 1] == '-') return Refuse("a hyphen next to a [", at_);
    ++nested_;
    ++at_;
    return absl::OkStatus();
  }

  absl::Status CloseNested() {
    if (pattern_[at_ - 1] == '-' || pattern_.substr(at_ + 1, 1) == "-") {
      return Refuse("a hyphen next to the ] of a class inside a class", at_);
    }
    --nested_;
    ++at_;
    return absl::OkStatus();
  }

  // Groups: plain, non-capturing, atomic, look-around, named, and case-insensitive ones. The other
  // option letters mean different things.
  absl::Status OpenGroup() {
    const absl::string_view rest = pattern_.substr(at_);
    if (rest.substr(0, 2) == "(*") return Refuse("a verb (*...)", at_);
    if (rest.substr(0, 2) != "(?") return Copy(1);
    for (const absl::string_view known :
         {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?i)", "(?-i:", "(?-i)"}) {
      if (rest.substr(0, known.size()) == known) return Copy(known.size());
    }
    return Refuse(absl::StrCat("the group ", rest.substr(0, 4)), at_);
  }

  // {n}, {n,} and {n,m}. A + behind them makes PCRE2's interval possessive, but repeats Ruby's.
  absl::Status Interval() {
    const size_t close = pattern_.find('}', at_);
    if (close == absl::string_view::npos || at_ + 1 == close ||
        !absl::ascii_isdigit(static_cast<unsigned char>(pattern_[at_ + 1]))) {
      return Refuse("a { that starts no {n}, {n,} or {n,m}", at_);
    }
    for (const char c : pattern_.substr(at_ + 1, close - at_ - 1)) {
      if (!absl::ascii_isdigit(static_cast<unsigned char>(c)) && c != ',') {
        return Refuse("a { that starts no {n}, {n,} or {n,m}", at_);
      }
    }
    if (pattern_.substr(close + 1, 1) == "+") return Refuse("a + after {n,m}", close + 1);
    return Copy(close + 1 - at_);
  }

  absl::string_view pattern_;
  size_t at_ = 0;
  size_t class_start_ = 0;
  bool in_class_ = false;
  int nested_ = 0;  // classes inside it that are open
  std::string out_;
};

}  // namespace

absl::StatusOr<std::string> ToPcreDialect(absl::string_view pattern) {
  return Translator(pattern).Run();
}

}  // namespace annulus
