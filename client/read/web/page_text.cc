#include "client/read/web/page_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/read/characters.h"
#include "client/read/math_text.h"
#include "client/read/office/list_marks.h"
#include "client/read/web/page_tree.h"

namespace annulus::client {
namespace {

int HeadingLevel(absl::string_view name) {
  const bool is_heading = name.size() == 2 && name[0] == 'h' && name[1] >= '1' && name[1] <= '6';
  return is_heading ? name[1] - '0' : 0;
}

bool IsParagraph(absl::string_view name) {
  return IsOneOf(name, {"p", "blockquote", "section", "article", "aside", "header", "footer", "nav",
                        "main", "figure", "dl", "table", "hr", "pre"});
}

bool IsLine(absl::string_view name) {
  return IsOneOf(name, {"div", "dt", "dd", "caption", "figcaption", "address", "form", "fieldset",
                        "details", "summary", "tr", "option", "legend", "center", "body"});
}

bool IsStruck(absl::string_view name) { return IsOneOf(name, {"s", "del", "strike"}); }

// Elements of a picture that hold text to be seen, as titles of pictures do not.
bool IsSvgText(absl::string_view name) {
  return IsOneOf(name, {"text", "foreignobject", "foreignObject"});
}

bool IsListElement(absl::string_view name) { return name == "ul" || name == "ol"; }

int CountAt(const pugi::xml_node& node, const char* name, int otherwise, int most) {
  int number = 0;
  if (!absl::SimpleAtoi(node.attribute(name).value(), &number) || number < 0) return otherwise;
  return std::min(number, most);
}

bool HasClassLike(const pugi::xml_node& node, std::initializer_list<absl::string_view> parts) {
  const std::string classes = absl::AsciiStrToLower(node.attribute("class").value());
  return std::any_of(parts.begin(), parts.end(),
                     [&](absl::string_view part) { return absl::StrContains(classes, part); });
}

bool HasVisibleText(const pugi::xml_node& root) {
  bool has_text = false;
  WalkPage(
      root,
      [&](const pugi::xml_node& node) {
        const bool is_text = node.type() != pugi::node_element;
        has_text = has_text || (is_text && !absl::StripAsciiWhitespace(node.value()).empty());
        return !has_text && !IsOneOf(PageName(node), {"script", "style", "template"});
      },
      [](const pugi::xml_node&) {});
  return has_text;
}

// Whether a link only leads back to the text from a note, or to the heading next to it.
bool IsBacklink(const pugi::xml_node& node) {
  if (IsNotePart(node, "backlink")) return true;
  if (!absl::StartsWith(node.attribute("href").value(), "#")) return false;
  const absl::string_view text = absl::StripAsciiWhitespace(node.child_value());
  // Includes the link symbol next to a heading.
  return IsOneOf(text, {"\xC2\xB6", "#", "\xE2\x86\xA9", "\xE2\x86\xA9\xEF\xB8\x8E",
                        "\xE2\x86\xA9\xEF\xB8\x8F", "\xE2\x86\x91", "\xE2\x8F\x8E", "^"});
}

}  // namespace

std::string PageText::Read(const pugi::xml_node& root) {
  WalkPage(
      root, [this](const pugi::xml_node& node) { return Enter(node); },
      [this](const pugi::xml_node& node) { Leave(node); });
  const std::string title = title_.Take();
  const std::string heading = has_heading_ || title.empty() ? "" : absl::StrCat("# ", title, "\n");
  return absl::StrCat(heading, text_.Take());
}

bool PageText::Enter(const pugi::xml_node& node) {
  if (node.type() == pugi::node_element) return EnterElement(node, PageName(node));
  if (node.type() == pugi::node_pcdata || node.type() == pugi::node_cdata) Text(node);
  return false;
}

void PageText::Text(const pugi::xml_node& node) {
  absl::string_view text = node.value();
  if (svg_depth_ > 0 && svg_text_depth_ == 0) return;
  if (!sizes_.empty() && sizes_.back().none) {
    left_out_.hidden += absl::StripAsciiWhitespace(text).empty() ? 0 : 1;
    return;
  }
  if (!own_label_.empty() && !absl::StripAsciiWhitespace(text).empty()) {
    // "[^1]: 1. The note" needs its number once.
    text = absl::StripLeadingAsciiWhitespace(text);
    absl::string_view rest = text;
    const bool repeats =
        absl::ConsumePrefix(&rest, own_label_) &&
        (rest.empty() || !absl::ascii_isalnum(static_cast<unsigned char>(rest[0])));
    if (repeats) {
      absl::ConsumePrefix(&rest, ".") || absl::ConsumePrefix(&rest, ")") ||
          absl::ConsumePrefix(&rest, ":");
      text = rest;
    }
    label_alone_ = repeats && rest.empty();
    own_label_.clear();
  } else if (label_alone_ && !absl::StripAsciiWhitespace(text).empty()) {
    label_alone_ = false;
    absl::ConsumePrefix(&text, ".") || absl::ConsumePrefix(&text, ")") ||
        absl::ConsumePrefix(&text, ":");
  }
  if (pre_depth_ > 0) {
    text_.Verbatim(text);
  } else {
    text_.Flow(text);
  }
}

bool PageText::IsSkipped(const pugi::xml_node& node, absl::string_view name) {
  if (IsOneOf(name, {"head", "script", "style", "template", "noscript", "iframe", "object",
                     "canvas", "audio", "video", "rp", "annotation", "defs", "symbol"})) {
    return true;
  }
  // What KaTeX writes besides its MathML.
  if (name == "span" && HasClassLike(node, {"katex-html"})) return true;
  if (name == "a" && IsBacklink(node)) return true;
  if (!with_navigation_ && survey_.Navigates(node)) {
    left_navigation_ = true;
    return true;
  }
  const bool closed_dialog = name == "dialog" && !node.attribute("open");
  if (!closed_dialog && !survey_.style().Hides(node)) return false;
  left_out_.hidden += HasVisibleText(node) ? 1 : 0;
  return true;
}

bool PageText::EnterElement(const pugi::xml_node& node, absl::string_view name) {
  if (name == "head") FindTitle(node);
  if (IsSkipped(node, name)) return false;
  if (name == "math") {
    text_.Apart(MathText(node));
    return false;
  }
  if (name == "img") Picture(node);
  if (name == "svg") ++svg_depth_;
  if (svg_depth_ > 0 && IsSvgText(name)) {
    ++svg_text_depth_;
    text_.EndLine();
  }
  if (IsOneOf(name, {"input", "select", "textarea"})) {
    FormValue(node);
    return false;
  }
  if (name == "br") text_.EndLine();
  if (name == "wbr") return false;
  if (IsParagraph(name) || HeadingLevel(name) > 0) text_.EndParagraph();
  if (name == "pre") ++pre_depth_;
  if (HeadingLevel(name) > 0) {
    has_heading_ = true;
    text_.Prefix(absl::StrCat(std::string(static_cast<size_t>(HeadingLevel(name)), '#'), " "));
  }
  if (IsListElement(name)) BeginList(node);
  if (name == "table") BeginTable(node);
  if (!EnterTablePart(node, name) && IsLine(name)) text_.EndLine();
  if (name == "li") BeginItem(node);
  if (!EnterNote(node, name)) return false;
  if (IsStruck(name)) text_.BeginStruck();
  if (IsNoteReference(node)) {
    text_.Flow("[^");
  } else if (name == "sup" && !IsNoteReference(node.first_child()) &&
             !IsNoteReference(node.parent())) {
    text_.BeginScript(Script::kSuper);
  } else if (name == "sub") {
    text_.BeginScript(Script::kSub);
  } else if (name == "rt") {
    text_.Flow("(");
  } else if (name == "q") {
    text_.Flow("\"");
  }
  EnterSize(node);
  return true;
}

// Begins a note that the text cites. Returns false if the element is only its number.
bool PageText::EnterNote(const pugi::xml_node& node, absl::string_view name) {
  const std::string& label = survey_.NoteLabel(node);
  if (label.empty() || IsNoteReference(node)) return true;
  if (name != "li") {
    if (text_.line_open() && !IsParagraph(name) && !IsLine(name)) return true;
    text_.EndLine();
    text_.Prefix(absl::StrCat("[^", label, "]: "));
  }
  own_label_ = label;
  return true;
}

void PageText::BeginTable(const pugi::xml_node& table) {
  tables_.push_back(!survey_.Arranges(table));
  if (InData()) text_.BeginTable();
}

bool PageText::EnterTablePart(const pugi::xml_node& node, absl::string_view name) {
  if (!InData()) return false;
  if (name == "thead") ++head_depth_;
  if (name == "tr") {
    text_.BeginRow();
  } else if (name == "td" || name == "th") {
    TableCell cell{.columns = CountAt(node, "colspan", 1, 1000),
                   .rows = CountAt(node, "rowspan", 1, 65534),
                   .header = name == "th" || head_depth_ > 0};
    text_.BeginCell(cell);
  } else {
    return false;
  }
  return true;
}

bool PageText::LeaveTablePart(absl::string_view name) {
  if (!InData()) return false;
  if (name == "thead") --head_depth_;
  if (IsOneOf(name, {"thead", "tbody", "tfoot"})) text_.EndRowGroup();
  if (name == "tr") {
    text_.EndRow();
  } else if (name == "td" || name == "th") {
    text_.EndCell();
  } else {
    return false;
  }
  return true;
}

void PageText::Leave(const pugi::xml_node& node) {
  const absl::string_view name = PageName(node);
  if (IsNoteReference(node)) {
    text_.Flow("]");
  } else if (name == "sub" || (name == "sup" && !IsNoteReference(node.first_child()) &&
                               !IsNoteReference(node.parent()))) {
    text_.EndScript();
  } else if (name == "rt") {
    text_.Flow(")");
  } else if (name == "q") {
    text_.Flow("\"");
  }
  if (!sizes_.empty() && sizes_.back().id == node.hash_value()) sizes_.pop_back();
  if (svg_depth_ > 0 && IsSvgText(name)) {
    --svg_text_depth_;
    text_.EndLine();
  }
  if (name == "svg") --svg_depth_;
  if (IsStruck(name)) text_.EndStruck();
  if (HeadingLevel(name) > 0 || name == "li") text_.Prefix("");
  if (name == "table") {
    if (InData()) text_.EndTable();
    tables_.pop_back();
  }
  if (IsParagraph(name) || HeadingLevel(name) > 0) text_.EndParagraph();
  if (name == "pre") --pre_depth_;
  if (IsListElement(name)) {
    lists_.pop_back();
    text_.EndList();
  }
  if (name == "li") text_.EndLine();
  // Cells of a table that lays out the page are parts of it.
  if (!LeaveTablePart(name) && (IsLine(name) || name == "td" || name == "th")) text_.EndLine();
}

void PageText::EnterSize(const pugi::xml_node& node) {
  const std::optional<bool> none = survey_.style().HasNoSize(node);
  if (none.has_value()) sizes_.push_back({node.hash_value(), *none});
}

void PageText::BeginList(const pugi::xml_node& node) {
  constexpr int kMost = 1000000;
  List list;
  if (PageName(node) == "ol") {
    list.numbered = true;
    list.form = node.attribute("type").value();
    if (node.attribute("reversed")) {
      list.step = -1;
      list.next = 0;
      for (const pugi::xml_node& item : node.children())
        list.next += PageName(item) == "li" ? 1 : 0;
    }
    int start = 0;
    if (absl::SimpleAtoi(node.attribute("start").value(), &start)) {
      list.next = std::clamp(start, -kMost, kMost);
    }
  }
  lists_.push_back(std::move(list));
  text_.BeginList();
}

void PageText::BeginItem(const pugi::xml_node& node) {
  const std::string& label = survey_.NoteLabel(node);
  const bool is_note = IsNotePart(node, "footnote") || IsNotePart(node, "endnote");
  if (lists_.empty() || !lists_.back().numbered) {
    return text_.BeginItem(label.empty() ? "- " : absl::StrCat("[^", label, "]: "));
  }
  List& list = lists_.back();
  const int number = CountAt(node, "value", list.next, 1000000);
  list.next = number + list.step;
  const absl::string_view own = node.attribute("type").value();
  const std::string shown = FormatListNumber(number, own.empty() ? list.form : own);
  text_.BeginItem(!label.empty() ? absl::StrCat("[^", label, "]: ")
                  : is_note      ? absl::StrCat("[^", number, "]: ")
                                 : absl::StrCat(shown, ". "));
}

void PageText::Picture(const pugi::xml_node& node) {
  const absl::string_view alt = absl::StripAsciiWhitespace(node.attribute("alt").value());
  if (alt.empty()) return;
  // A formula that is shown as a picture is part of the text.
  if (HasClassLike(node, {"math", "tex", "latex"})) return text_.Apart(alt);
  if (options_.alt) return text_.Flow(absl::StrCat("[picture: ", alt, "]"));
  ++left_out_.alts;
}

void PageText::FormValue(const pugi::xml_node& node) {
  const absl::string_view name = PageName(node);
  if (name == "textarea") return text_.Apart(node.child_value());
  if (name == "select") return SelectValue(node);
  const std::string type = absl::AsciiStrToLower(node.attribute("type").value());
  if (type == "checkbox" || type == "radio") {
    text_.Apart(node.attribute("checked") ? kTicked : kUnticked);
  } else if (IsOneOf(type, {"", "text", "search", "number", "date", "datetime-local", "month",
                            "week", "email", "tel", "url", "time", "range"})) {
    text_.Apart(node.attribute("value").value());
  }
}

// Of a list that drops down, the choice that it shows: the first if none is selected.
void PageText::SelectValue(const pugi::xml_node& node) {
  std::string first;
  bool any = false;
  WalkPage(
      node,
      [&](const pugi::xml_node& option) {
        if (PageName(option) != "option") return true;
        if (first.empty()) first = option.child_value();
        any = any || option.attribute("selected");
        if (option.attribute("selected")) text_.Apart(option.child_value());
        return false;
      },
      [](const pugi::xml_node&) {});
  const int rows = CountAt(node, "size", 1, 1000);
  if (!any && rows <= 1 && !node.attribute("multiple")) text_.Apart(first);
}

void PageText::FindTitle(const pugi::xml_node& head) {
  for (const pugi::xml_node& child : head.children()) {
    if (PageName(child) == "title") title_.Flow(child.child_value());
  }
}

}  // namespace annulus::client
