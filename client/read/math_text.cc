#include "client/read/math_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/read/characters.h"
#include "client/read/xml.h"

namespace annulus::client {
namespace {

constexpr int kMostDepth = 64;  // a formula nested deeper is left out from there

// Part of a formula.
struct Piece {
  std::string text;
  bool composed = false;  // a fraction, a power or the like: no letter may touch it
};

// Whether two parts would read as one, such as the numbers 2 and 1/2, or x^2 and y.
bool Touch(const Piece& left, const Piece& right) {
  if (left.text.empty() || right.text.empty()) return false;
  const char last = left.text.back(), first = right.text.front();
  if (!IsWordByte(last) || !IsWordByte(first)) return false;
  if ((last & 0x80) != 0 || (first & 0x80) != 0) return left.composed && (first & 0x80) == 0;
  if (left.composed || right.composed || IsDigit(first)) return true;
  // "sin x", but "xy" and "2x".
  return !IsDigit(last) && (left.text.size() > 1 || right.text.size() > 1);
}

void Append(const Piece& piece, Piece* to) {
  absl::StrAppend(&to->text, Touch(*to, piece) ? " " : "", piece.text);
  to->composed = piece.composed;
}

// Brackets a part unless it is one number, one name or in brackets already.
std::string Grouped(const std::string& text) {
  const bool is_word = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalpha(static_cast<unsigned char>(c));
  });
  const bool is_number = std::all_of(text.begin(), text.end(),
                                     [](char c) { return IsDigit(c) || c == '.' || c == ','; });
  // One character, such as a Greek letter.
  const bool is_letter =
      !text.empty() && (text[0] & 0x80) != 0 &&
      std::all_of(text.begin() + 1, text.end(), [](char c) { return (c & 0xC0) == 0x80; });
  // A sign before a number, also U+2212.
  absl::string_view rest = text;
  const bool is_signed = (absl::ConsumePrefix(&rest, "-") || absl::ConsumePrefix(&rest, "+")) &&
                         !rest.empty() && std::all_of(rest.begin(), rest.end(), IsDigit);
  if (is_word || is_number || is_letter || is_signed) return text;
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    if (depth == 0 && i + 1 < text.size()) return absl::StrCat("(", text, ")");
  }
  return depth == 0 && text.front() == '(' ? text : absl::StrCat("(", text, ")");
}

// The name of a sign above a letter; empty for any other text.
absl::string_view AccentName(absl::string_view sign) {
  constexpr std::pair<absl::string_view, absl::string_view> kAccents[] = {{"\xC2\xAF", "bar"},
                                                                          {"\xE2\x80\xBE", "bar"},
                                                                          {"\xCC\x85", "bar"},
                                                                          {"\xCC\x84", "bar"},
                                                                          {"_", "bar"},
                                                                          {"\xE2\x86\x92", "vec"},
                                                                          {"\xE2\x83\x97", "vec"},
                                                                          {"^", "hat"},
                                                                          {"\xCB\x86", "hat"},
                                                                          {"\xCC\x82", "hat"},
                                                                          {"~", "tilde"},
                                                                          {"\xCB\x9C", "tilde"},
                                                                          {"\xCC\x83", "tilde"},
                                                                          {"\xCB\x99", "dot"},
                                                                          {"\xCC\x87", "dot"}};
  for (const auto& [text, name] : kAccents) {
    if (sign == text) return name;
  }
  return "";
}

std::string Accented(const std::string& base, const std::string& sign) {
  const absl::string_view name = AccentName(sign);
  if (!name.empty()) return absl::StrCat(name, "(", base, ")");
  return absl::StrCat(Grouped(base), "^", Grouped(sign));
}

class MathWriter {
 public:
  // All children, one after the other.
  Piece Row(const pugi::xml_node& parent) {
    Piece row;
    if (depth_ >= kMostDepth) return row;
    ++depth_;
    for (const pugi::xml_node& child : parent.children()) Append(Write(child), &row);
    --depth_;
    return row;
  }

 private:
  static std::string Plain(const pugi::xml_node& leaf) {
    std::string text;
    for (const pugi::xml_node& child : leaf.children()) text += child.value();
    // Signs that are not seen, but keep numbers apart.
    constexpr std::pair<absl::string_view, absl::string_view> kUnseen[] = {
        {"\xE2\x81\xA1", ""},
        {"\xE2\x81\xA2", "\xC2\xB7"},
        {"\xE2\x81\xA3", ","},
        {"\xE2\x81\xA4", " "}};
    for (const auto& [unseen, shown] : kUnseen) {
      if (absl::StripAsciiWhitespace(text) == unseen) return std::string(shown);
    }
    return text;
  }

  std::vector<std::string> Children(const pugi::xml_node& node) {
    std::vector<std::string> parts;
    for (const pugi::xml_node& child : node.children()) {
      if (child.type() == pugi::node_element && !absl::EndsWith(LocalName(child), "Pr")) {
        parts.push_back(Write(child).text);
      }
    }
    return parts;
  }

  // The text of a named child: "num", "sub".
  std::string Of(const pugi::xml_node& node, absl::string_view name) {
    return Row(LocalChild(node, name)).text;
  }

  static std::string Property(const pugi::xml_node& node, absl::string_view properties,
                              absl::string_view name, absl::string_view otherwise) {
    const pugi::xml_node found = LocalChild(LocalChild(node, properties), name);
    return std::string(found ? LocalAttribute(found, "val") : otherwise);
  }

  static std::string Fraction(const std::string& above, const std::string& below, bool bar) {
    if (!bar) return absl::StrCat("(", above, " over ", below, ")");
    return absl::StrCat(Grouped(above), "/", Grouped(below));
  }

  // A base with an index and a power; either may be empty.
  static std::string Scripted(const std::string& base, const std::string& below,
                              const std::string& above) {
    std::string text = base.empty() || base.size() <= 4 ? base : Grouped(base);
    if (!below.empty()) absl::StrAppend(&text, "_", Grouped(below));
    if (!above.empty()) absl::StrAppend(&text, "^", Grouped(above));
    return text;
  }

  std::string Matrix(const pugi::xml_node& node, absl::string_view row, absl::string_view cell) {
    std::string text = "[";
    for (const pugi::xml_node& line : node.children()) {
      if (LocalName(line) != row) continue;
      if (text.size() > 1) text += "; ";
      bool first = true;
      for (const pugi::xml_node& part : line.children()) {
        if (LocalName(part) != cell) continue;
        absl::StrAppend(&text, first ? "" : ", ", Row(part).text);
        first = false;
      }
    }
    return text + "]";
  }

  Piece Write(const pugi::xml_node& node) {
    if (depth_ >= kMostDepth) return {};
    const absl::string_view name = LocalName(node);
    if (node.type() != pugi::node_element) {
      return {std::string(absl::StripAsciiWhitespace(node.value()))};
    }
    if (name == "mi" || name == "mn" || name == "mo") {
      return {std::string(absl::StripAsciiWhitespace(Plain(node)))};
    }
    if (name == "mtext" || name == "ms" || name == "t") return {Plain(node)};
    if (name == "mspace") return {" "};
    if (absl::StartsWith(name, "annotation") || name == "mphantom" || name == "phant" ||
        absl::EndsWith(name, "Pr")) {
      return {};
    }
    ++depth_;
    Piece piece{Composed(node, name), true};
    --depth_;
    return piece.text.empty() ? Row(node) : piece;
  }

  // A fraction, a power or another composition; empty if the element is not one.
  std::string Composed(const pugi::xml_node& node, absl::string_view name) {
    if (name == "f") {
      return Fraction(Of(node, "num"), Of(node, "den"),
                      Property(node, "fPr", "type", "bar") != "noBar");
    }
    if (name == "sSup" || name == "sSub" || name == "sSubSup") {
      return Scripted(Of(node, "e"), Of(node, "sub"), Of(node, "sup"));
    }
    if (name == "sPre") {
      return absl::StrCat(Scripted("", Of(node, "sub"), Of(node, "sup")), " ", Of(node, "e"));
    }
    if (name == "limLow") return Scripted(Of(node, "e"), Of(node, "lim"), "");
    if (name == "limUpp") return Scripted(Of(node, "e"), "", Of(node, "lim"));
    if (name == "rad") return Root(Of(node, "e"), Of(node, "deg"));
    if (name == "acc") return Accented(Of(node, "e"), Property(node, "accPr", "chr", "\xCC\x82"));
    if (name == "bar") return absl::StrCat("bar(", Of(node, "e"), ")");
    if (name == "nary") {
      const std::string sign = Property(node, "naryPr", "chr", "\xE2\x88\xAB");
      return absl::StrCat(Scripted(sign, Of(node, "sub"), Of(node, "sup")), " ", Of(node, "e"));
    }
    if (name == "func") return absl::StrCat(Of(node, "fName"), " ", Of(node, "e"));
    if (name == "d") return Delimited(node);
    if (name == "m") return Matrix(node, "mr", "e");
    if (name == "eqArr") return Joined(Children(node), "; ");
    return ComposedMathMl(node, name);
  }

  std::string ComposedMathMl(const pugi::xml_node& node, absl::string_view name) {
    if (name == "mtable") return Matrix(node, "mtr", "mtd");
    if (name == "mfenced") return Fenced(node);
    if (name == "msqrt") return Root(Row(node).text, "");
    if (name == "mmultiscripts") return MultiScripts(node);
    static constexpr absl::string_view kNames[] = {
        "mfrac", "msup", "msub", "msubsup", "mroot", "munder", "mover", "munderover", "semantics"};
    if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) return "";
    std::vector<std::string> parts = Children(node);
    if (name == "semantics") return parts.empty() ? "" : parts[0];
    parts.resize(std::max<size_t>(parts.size(), 3));
    if (name == "mfrac") {
      const absl::string_view bar = LocalAttribute(node, "linethickness");
      return Fraction(parts[0], parts[1], bar != "0" && bar != "0pt" && bar != "0px");
    }
    if (name == "msup") return Scripted(parts[0], "", parts[1]);
    if (name == "mover") {
      const bool has_name = !AccentName(parts[1]).empty();
      return has_name ? Accented(parts[0], parts[1]) : Scripted(parts[0], "", parts[1]);
    }
    if (name == "msub" || name == "munder") return Scripted(parts[0], parts[1], "");
    if (name == "mroot") return Root(parts[0], parts[1]);
    return Scripted(parts[0], parts[1], parts[2]);
  }

  static std::string Root(const std::string& of, const std::string& degree) {
    const absl::string_view sign = "\xE2\x88\x9A";
    return degree.empty() ? absl::StrCat(sign, "(", of, ")")
                          : absl::StrCat(sign, "[", degree, "](", of, ")");
  }

  static std::string Joined(const std::vector<std::string>& parts, absl::string_view separator) {
    std::string text;
    for (const std::string& part : parts) {
      absl::StrAppend(&text, text.empty() ? "" : separator, part);
    }
    return text;
  }

  std::string Delimited(const pugi::xml_node& node) {
    return absl::StrCat(Property(node, "dPr", "begChr", "("),
                        Joined(Children(node), Property(node, "dPr", "sepChr", "|")),
                        Property(node, "dPr", "endChr", ")"));
  }

  std::string Fenced(const pugi::xml_node& node) {
    const auto stated = [&](const char* name, absl::string_view otherwise) {
      const pugi::xml_attribute attribute = node.attribute(name);
      return attribute ? absl::string_view(attribute.value()) : otherwise;
    };
    return absl::StrCat(stated("open", "("), Joined(Children(node), ", "), stated("close", ")"));
  }

  std::string MultiScripts(const pugi::xml_node& node) {
    std::string base, after, before;
    std::vector<std::string> pair;
    bool has_base = false, prescripts = false;
    for (const pugi::xml_node& child : node.children()) {
      if (child.type() != pugi::node_element) continue;
      if (LocalName(child) == "mprescripts") {
        prescripts = true;
      } else if (!has_base) {
        has_base = true;
        base = Write(child).text;
      } else {
        pair.push_back(Write(child).text);
        if (pair.size() < 2) continue;
        absl::StrAppend(prescripts ? &before : &after, Scripted("", pair[0], pair[1]));
        pair.clear();
      }
    }
    return absl::StrCat(before, before.empty() ? "" : " ", base, after);
  }

  int depth_ = 0;
};

}  // namespace

std::string MathText(const pugi::xml_node& node) {
  std::string text = MathWriter().Row(node).text;
  for (char& c : text) c = absl::ascii_isspace(static_cast<unsigned char>(c)) ? ' ' : c;
  return text;
}

}  // namespace annulus::client
