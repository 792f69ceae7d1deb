#include "client/read/office/odt_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/read/characters.h"
#include "client/read/math_text.h"
#include "client/read/office/symbol_fonts.h"
#include "client/read/xml.h"

namespace annulus::client {
namespace {

int RepeatsAt(const pugi::xml_node& node, absl::string_view name, int most) {
  int number = 1;
  if (!absl::SimpleAtoi(LocalAttribute(node, name), &number)) return 1;
  return std::clamp(number, 1, most);
}

bool HasParagraphs(const pugi::xml_node& node) {
  const auto is_text = [](const pugi::xml_node& inner) {
    return inner.type() == pugi::node_pcdata && !absl::StripAsciiWhitespace(inner.value()).empty();
  };
  return static_cast<bool>(node.find_node(is_text));
}

}  // namespace

void OdtText::AddStyles(const pugi::xml_node& part) {
  styles_.Add(part);
  numbering_.AddStyles(part);
}

void OdtText::AddHeaders(const pugi::xml_node& part) {
  for (const pugi::xml_node& page : LocalChild(part, "master-styles").children()) {
    for (const pugi::xml_node& header : page.children()) {
      const absl::string_view name = LocalName(header);
      const bool is_header = absl::StartsWith(name, "header");
      if (!is_header && !absl::StartsWith(name, "footer")) continue;
      if (!HasParagraphs(header) || LocalAttribute(header, "display") == "false") continue;
      if (!context_.options.headers) {
        ++context_.left_out.headers;
        continue;
      }
      text_.Prefix(is_header ? "[page header] " : "[page footer] ");
      Descend(header);
      text_.Prefix("");
      text_.EndParagraph();
    }
  }
}

std::string OdtText::Read(const pugi::xml_node& body) {
  FindControls(body);
  Descend(body);
  text_.EndParagraph();
  in_note_ = true;
  for (size_t i = 0; i < notes_.size(); ++i) {
    text_.EndLine();
    text_.Prefix(absl::StrCat("[^", i + 1, "]: "));
    Descend(notes_[i]);
  }
  for (size_t i = 0; i < comments_.size(); ++i) {
    text_.EndLine();
    const absl::string_view author = LocalChild(comments_[i], "creator").child_value();
    text_.Prefix(absl::StrCat("[comment ", i + 1, "] ", author, author.empty() ? "" : ": "));
    for (const pugi::xml_node& child : comments_[i].children()) {
      if (LocalName(child) == "p" || LocalName(child) == "list") Visit(child);
    }
  }
  return text_.Take();
}

void OdtText::Descend(const pugi::xml_node& parent) {
  for (const pugi::xml_node& child : parent.children()) Visit(child);
}

void OdtText::Text(absl::string_view text) {
  const std::string plain = WithoutPrivateSymbols(style_.font, text);
  if (style_.code) {
    text_.Verbatim(plain);
  } else {
    text_.Flow(plain);
  }
}

bool OdtText::IsHidden(const pugi::xml_node& node, absl::string_view name) const {
  if (name == "hidden-text" || name == "hidden-paragraph") {
    return LocalAttribute(node, "is-hidden") != "false";
  }
  if (name == "section") return LocalAttribute(node, "display") == "none";
  const absl::string_view visibility = LocalAttribute(node, "visibility");
  return name == "table-row" && (visibility == "collapse" || visibility == "filter");
}

void OdtText::Hide(const pugi::xml_node& node) {
  const bool has_text = HasParagraphs(node) || !LocalAttribute(node, "string-value").empty();
  context_.left_out.hidden += has_text ? 1 : 0;
}

void OdtText::Visit(const pugi::xml_node& node) {
  if (node.type() == pugi::node_pcdata || node.type() == pugi::node_cdata) {
    if (in_paragraph_) Text(node.value());
    return;
  }
  const absl::string_view name = LocalName(node);
  if (IsHidden(node, name)) return Hide(node);
  if (name == "h") {
    Heading(node);
  } else if (name == "p") {
    Paragraph(node);
  } else if (name == "list") {
    text_.BeginList();
    numbering_.Enter(node);
    Descend(node);
    numbering_.Leave();
    text_.EndList();
  } else if (name == "list-item" || name == "list-header") {
    text_.BeginItem(name == "list-item" ? numbering_.Next(node) : "");
    ++items_;
    Descend(node);
    text_.Prefix("");
    --items_;
  } else if (!VisitTable(node, name) && !VisitInline(node, name) && name != "tracked-changes" &&
             name != "sequence-decls" && name != "forms") {
    Descend(node);
  }
}

bool OdtText::VisitTable(const pugi::xml_node& node, absl::string_view name) {
  if (name == "table") {
    text_.EndParagraph();
    text_.BeginTable();
    Descend(node);
    text_.EndTable();
    text_.EndParagraph();
  } else if (name == "table-header-rows") {
    ++header_rows_;
    Descend(node);
    --header_rows_;
  } else if (name == "table-row") {
    Row(node);
  } else if (name == "table-cell") {
    constexpr int kMostColumns = 1000, kMostRows = 65534;
    text_.BeginCell({.columns = RepeatsAt(node, "number-columns-spanned", kMostColumns),
                     .rows = RepeatsAt(node, "number-rows-spanned", kMostRows),
                     .copies = RepeatsAt(node, "number-columns-repeated", kMostColumns),
                     .header = header_rows_ > 0});
    const int items = std::exchange(items_, 0);
    Descend(node);
    items_ = items;
    text_.EndCell();
  } else {
    // The cell that spans a covered one stands for it.
    return name == "covered-table-cell";
  }
  return true;
}

void OdtText::Row(const pugi::xml_node& node) {
  int copies = HasParagraphs(node) ? RepeatsAt(node, "number-rows-repeated", repeats_left_ + 1) : 1;
  repeats_left_ -= copies - 1;
  for (; copies > 0; --copies) {
    text_.BeginRow();
    Descend(node);
    text_.EndRow();
  }
}

bool OdtText::VisitInline(const pugi::xml_node& node, absl::string_view name) {
  if (name == "span") {
    Span(node);
  } else if (name == "s") {
    constexpr int kMostBlanks = 200;
    const auto blanks = static_cast<size_t>(RepeatsAt(node, "c", kMostBlanks));
    Text(std::string(blanks, ' '));
  } else if (name == "tab") {
    Text(style_.code ? "    " : " ");
  } else if (name == "line-break") {
    text_.EndLine();
  } else if (name == "note") {
    notes_.push_back(LocalChild(node, "note-body"));
    text_.Flow(absl::StrCat("[^", notes_.size(), "]"));
  } else if (name == "annotation") {
    Annotation(node);
  } else if (name == "math") {
    text_.Apart(MathText(node));
  } else if (name == "object" && !LocalAttribute(node, "href").empty()) {
    Object(LocalAttribute(node, "href"));
  } else if (name == "control") {
    Control(node);
  } else if (name == "ruby-text") {
    text_.Flow("(");
    Descend(node);
    text_.Flow(")");
  } else if (name == "desc" || name == "title") {
    Description(node);
  } else {
    return false;
  }
  return true;
}

void OdtText::Span(const pugi::xml_node& node) {
  const OdtStyle named = styles_.Of(LocalAttribute(node, "style-name"));
  if (named.hidden) return Hide(node);
  const OdtStyle outer = style_;
  if (!named.font.empty()) style_.font = named.font;
  if (named.struck) text_.BeginStruck();
  if (named.script != Script::kNone) text_.BeginScript(named.script);
  Descend(node);
  if (named.script != Script::kNone) text_.EndScript();
  if (named.struck) text_.EndStruck();
  style_ = outer;
}

void OdtText::Annotation(const pugi::xml_node& node) {
  if (!context_.options.comments) {
    ++context_.left_out.comments;
    return;
  }
  comments_.push_back(node);
  text_.Flow(absl::StrCat(" [comment ", comments_.size(), "]"));
}

void OdtText::Description(const pugi::xml_node& node) {
  const absl::string_view alt = absl::StripAsciiWhitespace(node.child_value());
  if (alt.empty() || LocalName(node.parent()) != "frame") return;
  if (context_.options.alt) {
    text_.Flow(absl::StrCat("[picture: ", alt, "]"));
  } else if (LocalName(node) == "desc" || !LocalChild(node.parent(), "desc")) {
    ++context_.left_out.alts;
  }
}

// A formula, or the titles and the table of values of a chart.
void OdtText::Object(absl::string_view reference) {
  if (in_chart_) return;  // which shows none, but might name itself
  std::unique_ptr<pugi::xml_document> object = object_(reference);
  if (object == nullptr) return;
  const pugi::xml_node root = object->document_element();
  if (LocalName(root) == "math") return text_.Apart(MathText(root));
  const pugi::xml_node chart = LocalChild(LocalChild(LocalChild(root, "body"), "chart"), "chart");
  if (!chart) return;
  charts_.push_back(std::move(object));
  const bool before = std::exchange(in_paragraph_, false);
  in_chart_ = true;
  text_.EndParagraph();
  for (const absl::string_view name : {"title", "subtitle", "table"}) {
    for (const pugi::xml_node& part : chart.children()) {
      if (LocalName(part) == name) name == "table" ? Visit(part) : Descend(part);
    }
  }
  in_chart_ = false;
  in_paragraph_ = before;
}

void OdtText::FindControls(const pugi::xml_node& body) {
  const auto remember = [this](const pugi::xml_node& node) {
    const absl::string_view name = node.name();
    if (absl::StartsWith(name, "form:")) {
      const absl::string_view id = LocalAttribute(node, "id");
      if (!id.empty()) controls_.emplace(std::string(id), node);
    }
    return false;
  };
  body.find_node(remember);
}

void OdtText::Control(const pugi::xml_node& node) {
  const auto found = controls_.find(std::string(LocalAttribute(node, "control")));
  if (found == controls_.end()) return;
  const pugi::xml_node& control = found->second;
  const absl::string_view kind = LocalName(control);
  if (kind == "checkbox" || kind == "radio") {
    const bool ticked = LocalAttribute(control, "current-state") == "checked" ||
                        LocalAttribute(control, "current-selected") == "true";
    text_.Apart(ticked ? kTicked : kUnticked);
    text_.Flow(absl::StrCat(" ", LocalAttribute(control, "label")));
    return;
  }
  if (kind == "listbox") {
    for (const pugi::xml_node& option : control.children()) {
      if (LocalAttribute(option, "current-selected") == "true") {
        text_.Apart(LocalAttribute(option, "label"));
      }
    }
    return;
  }
  const absl::string_view current = LocalAttribute(control, "current-value");
  text_.Apart(current.empty() ? LocalAttribute(control, "value") : current);
}

void OdtText::Heading(const pugi::xml_node& node) {
  int level = 1;
  if (!absl::SimpleAtoi(LocalAttribute(node, "outline-level"), &level)) level = 1;
  text_.EndParagraph();
  text_.Prefix(absl::StrCat(std::string(static_cast<size_t>(std::clamp(level, 1, 6)), '#'), " "));
  Line(node);
  text_.Prefix("");
  text_.EndParagraph();
}

void OdtText::Paragraph(const pugi::xml_node& node) {
  const absl::string_view style = LocalAttribute(node, "style-name");
  if (styles_.Of(style).hidden) return Hide(node);
  if (LocalChild(node, "hidden-paragraph") &&
      LocalAttribute(LocalChild(node, "hidden-paragraph"), "is-hidden") != "false") {
    return Hide(node);
  }
  if (style == "Title") text_.Prefix("# ");
  Line(node);
  if (style == "Title") text_.Prefix("");
  if (items_ > 0 || in_note_ || styles_.Of(style).code) {
    text_.EndLine();
  } else {
    text_.EndParagraph();
  }
}

// Reads the text of a paragraph or a heading. It may contain further ones, inside frames.
void OdtText::Line(const pugi::xml_node& node) {
  const bool before = in_paragraph_;
  const OdtStyle outer = std::exchange(style_, styles_.Of(LocalAttribute(node, "style-name")));
  in_paragraph_ = true;
  Descend(node);
  in_paragraph_ = before;
  style_ = outer;
}

}  // namespace annulus::client
