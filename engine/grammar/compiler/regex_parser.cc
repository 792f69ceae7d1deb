// The syntax of regular expressions: regex_tree.h.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json_parser.h"
#include "engine/grammar/compiler/regex_tree.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using Kind = RegexTree::Kind;

RegexTree Character(CharacterClass members) {
  RegexTree tree;
  tree.kind = Kind::kCharacter;
  tree.members = std::move(members);
  return tree;
}

CharacterClass Single(char32_t c) { return CharacterClass({{c, c}}); }

// The class that a letter after a backslash stands for.
std::optional<CharacterClass> NamedClass(char32_t letter) {
  switch (letter) {
    case 'd':
      return CharacterClass({{'0', '9'}});
    case 'w':
      return CharacterClass({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
    case 's':
      return CharacterClass({{'\t', '\r'},
                             {' ', ' '},
                             {0xA0, 0xA0},
                             {0x1680, 0x1680},
                             {0x2000, 0x200A},
                             {0x2028, 0x2029},
                             {0x202F, 0x202F},
                             {0x205F, 0x205F},
                             {0x3000, 0x3000},
                             {0xFEFF, 0xFEFF}});
    case 'D':
    case 'W':
    case 'S':
      return NamedClass(letter - 'A' + 'a')->Complement();
    default:
      return std::nullopt;
  }
}

std::optional<char32_t> ControlEscape(char32_t letter) {
  switch (letter) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '0':
      return 0;
    default:
      return std::nullopt;
  }
}

class Parser {
 public:
  explicit Parser(absl::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<RegexTree> Parse() {
    ANNULUS_ASSIGN_OR_RETURN(RegexTree tree, Choice(0));
    if (!AtEnd()) return Error("a ) without a (; write \\) for the character");
    return tree;
  }

 private:
  bool AtEnd() const { return at_ == pattern_.size(); }
  char Peek() const { return AtEnd() ? '\0' : pattern_[at_]; }
  bool Take(absl::string_view text) {
    if (pattern_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }

  absl::Status Error(absl::string_view problem) const {
    return absl::InvalidArgumentError(absl::StrCat("the regular expression \"",
                                                   QuoteForMessage(pattern_), "\" has at offset ",
                                                   at_, " ", problem));
  }

  absl::StatusOr<RegexTree> Choice(int depth) {
    if (depth > kMaxRegexDepth) {
      return Error(absl::StrCat("a group more than ", kMaxRegexDepth, " levels deep"));
    }
    RegexTree choice;
    choice.kind = Kind::kChoice;
    do {
      ANNULUS_ASSIGN_OR_RETURN(RegexTree sequence, Sequence(depth));
      choice.children.push_back(std::move(sequence));
    } while (Take("|"));
    return choice;
  }

  absl::StatusOr<RegexTree> Sequence(int depth) {
    RegexTree sequence;
    while (!AtEnd() && Peek() != '|' && Peek() != ')') {
      ANNULUS_ASSIGN_OR_RETURN(RegexTree atom, Atom(depth));
      ANNULUS_RETURN_IF_ERROR(Quantify(&atom));
      sequence.children.push_back(std::move(atom));
    }
    return sequence;
  }

  absl::StatusOr<RegexTree> Atom(int depth) {
    RegexTree anchor;
    anchor.kind = Peek() == '^' ? Kind::kBegin : Kind::kEnd;
    if (Take("^") || Take("$")) return anchor;
    if (Take("(")) return Group(depth);
    if (Take("[")) return Class();
    if (Take(".")) {
      return Character(CharacterClass({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).Complement());
    }
    if (Take("\\")) {
      ANNULUS_ASSIGN_OR_RETURN(CharacterClass members, Escape(/*in_class=*/false));
      return Character(std::move(members));
    }
    if (Peek() == '*' || Peek() == '+' || Peek() == '?' || Peek() == '{') {
      return Error("a repetition of nothing; write a backslash before the character");
    }
    return Character(Single(NextCodePoint(pattern_, &at_)));
  }

  absl::StatusOr<RegexTree> Group(int depth) {
    if (Take("?")) {
      const bool named = Take("P<") || (Peek() == '<' && pattern_.substr(at_, 2) != "<=" &&
                                        pattern_.substr(at_, 2) != "<!" && Take("<"));
      if (named) {
        at_ = std::min(pattern_.find('>', at_), pattern_.size());
        if (!Take(">")) return Error("a group's name without its end >");
      } else if (!Take(":")) {
        return Error("a kind of group that is not supported; allowed: ( ), (?: ), (?<name> )");
      }
    }
    ANNULUS_ASSIGN_OR_RETURN(RegexTree choice, Choice(depth + 1));
    if (!Take(")")) return Error("a ( without its )");
    return choice;
  }

  absl::StatusOr<uint32_t> Hexadecimal(size_t least, size_t most) {
    uint32_t value = 0;
    size_t digits = 0;
    for (; digits < most && absl::ascii_isxdigit(static_cast<unsigned char>(Peek())); ++digits) {
      const char digit = absl::ascii_tolower(static_cast<unsigned char>(pattern_[at_++]));
      value = value * 16 + static_cast<uint32_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    if (digits < least || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      return Error("an escape without the hexadecimal number of a character");
    }
    return value;
  }

  // After a backslash.
  absl::StatusOr<CharacterClass> Escape(bool in_class) {
    if (AtEnd()) return Error("a backslash at its end");
    if (Take("x")) {
      ANNULUS_ASSIGN_OR_RETURN(const uint32_t value, Hexadecimal(2, 2));
      return Single(value);
    }
    if (Take("u{")) {
      ANNULUS_ASSIGN_OR_RETURN(const uint32_t value, Hexadecimal(1, 6));
      if (!Take("}")) return Error("an escape \\u{ without its }");
      return Single(value);
    }
    if (Take("u")) {
      ANNULUS_ASSIGN_OR_RETURN(const uint32_t value, Hexadecimal(4, 4));
      return Single(value);
    }
    const size_t before = at_;
    const char32_t letter = NextCodePoint(pattern_, &at_);
    if (auto members = NamedClass(letter)) return *std::move(members);
    const bool number_follows = absl::ascii_isdigit(static_cast<unsigned char>(Peek()));
    if (const auto control = ControlEscape(letter); control && !(letter == '0' && number_follows)) {
      return Single(*control);
    }
    if (in_class && letter == 'b') return Single('\b');
    if (letter < 0x80 && absl::ascii_isalnum(static_cast<unsigned char>(letter))) {
      at_ = before;
      return Error(
          "an escape that is not supported; allowed: \\d \\w \\s \\D \\W \\S \\n \\r \\t \\f \\v "
          "\\0 "
          "\\xHH \\uHHHH \\u{H} and a backslash before punctuation");
    }
    return Single(letter);
  }

  // After "[".
  absl::StatusOr<RegexTree> Class() {
    const bool negated = Take("^");
    std::vector<CodePoints> ranges;
    while (!Take("]")) {
      ANNULUS_ASSIGN_OR_RETURN(const CharacterClass first, ClassMember());
      const bool single =
          first.ranges().size() == 1 && first.ranges()[0].first == first.ranges()[0].last;
      if (Peek() != '-' || pattern_.substr(at_, 2) == "-]") {
        ranges.insert(ranges.end(), first.ranges().begin(), first.ranges().end());
        continue;
      }
      Take("-");
      ANNULUS_ASSIGN_OR_RETURN(const CharacterClass last, ClassMember());
      if (!single || last.ranges().size() != 1 || last.ranges()[0].first != last.ranges()[0].last ||
          last.ranges()[0].first < first.ranges()[0].first) {
        return Error("the end of a range that does not ascend from one character to another");
      }
      ranges.push_back({first.ranges()[0].first, last.ranges()[0].last});
    }
    CharacterClass members(std::move(ranges));
    return Character(negated ? members.Complement() : members);
  }

  absl::StatusOr<CharacterClass> ClassMember() {
    if (AtEnd()) return Error("a [ without its ]");
    if (Take("\\")) return Escape(/*in_class=*/true);
    if (pattern_.substr(at_, 2) == "[:") return Error("a POSIX class; write its characters");
    return Single(NextCodePoint(pattern_, &at_));
  }

  absl::StatusOr<uint32_t> Count() {
    uint32_t value = 0;
    const size_t before = at_;
    while (absl::ascii_isdigit(static_cast<unsigned char>(Peek())) && value <= kMaxRegexRepeats) {
      value = value * 10 + static_cast<uint32_t>(pattern_[at_++] - '0');
    }
    if (at_ == before || value > kMaxRegexRepeats) {
      return Error(absl::StrCat("a { without a count of at most ", kMaxRegexRepeats,
                                "; write \\{ for the character"));
    }
    return value;
  }

  absl::Status Quantify(RegexTree* atom) {
    uint32_t least = 0;
    uint32_t most = kUnbounded;
    if (Take("*")) {
    } else if (Take("+")) {
      least = 1;
    } else if (Take("?")) {
      most = 1;
    } else if (Take("{")) {
      ANNULUS_ASSIGN_OR_RETURN(least, Count());
      most = least;
      if (Take(",")) {
        most = kUnbounded;
        if (Peek() != '}') {
          ANNULUS_ASSIGN_OR_RETURN(most, Count());
        }
      }
      if (!Take("}")) return Error("a { without its }; write \\{ for the character");
      if (most < least) return Error("a repetition whose counts descend");
    } else {
      return absl::OkStatus();
    }
    if (atom->kind == Kind::kBegin || atom->kind == Kind::kEnd) {
      return Error("a repetition of ^ or $");
    }
    Take("?");
    if (Peek() == '*' || Peek() == '+' || Peek() == '?' || Peek() == '{') {
      return Error("a repetition of a repetition; put the inner one in (?: )");
    }
    RegexTree repeat;
    repeat.kind = Kind::kRepeat;
    repeat.least = least;
    repeat.most = most;
    repeat.children.push_back(std::move(*atom));
    *atom = std::move(repeat);
    return absl::OkStatus();
  }

  const absl::string_view pattern_;
  size_t at_ = 0;
};

bool HasAnchor(const RegexTree& tree) {
  return tree.kind == Kind::kBegin || tree.kind == Kind::kEnd ||
         std::any_of(tree.children.begin(), tree.children.end(), HasAnchor);
}

RegexTree Anything() {
  RegexTree repeat;
  repeat.kind = Kind::kRepeat;
  repeat.most = kUnbounded;
  repeat.children.push_back(Character(CharacterClass::All()));
  return repeat;
}

// Removes the anchors at the ends of an alternative; opens the ends that have none.
void ResolveAnchors(RegexMatch match, RegexTree* sequence) {
  std::vector<RegexTree>& parts = sequence->children;
  const bool begins = !parts.empty() && parts.front().kind == Kind::kBegin;
  if (begins) parts.erase(parts.begin());
  const bool ends = !parts.empty() && parts.back().kind == Kind::kEnd;
  if (ends) parts.pop_back();
  if (match == RegexMatch::kWhole) return;
  if (!begins) parts.insert(parts.begin(), Anything());
  if (!ends) parts.push_back(Anything());
}

}  // namespace

absl::StatusOr<RegexTree> ParseRegex(absl::string_view pattern, RegexMatch match) {
  if (const auto offset = FirstInvalidUtf8(pattern)) return InvalidUtf8Error(*offset);
  ANNULUS_ASSIGN_OR_RETURN(RegexTree tree, Parser(pattern).Parse());
  for (RegexTree& alternative : tree.children) {
    ResolveAnchors(match, &alternative);
    if (HasAnchor(alternative)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the regular expression \"", QuoteForMessage(pattern),
                       "\" has ^ or $ inside; allowed: at the ends of the pattern or of its "
                       "alternatives"));
    }
  }
  return tree;
}

}  // namespace annulus
