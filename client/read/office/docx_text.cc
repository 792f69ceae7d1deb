#include "client/read/office/docx_text.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/read/characters.h"
#include "client/read/math_text.h"
#include "client/read/office/field_codes.h"
#include "client/read/office/symbol_fonts.h"
#include "client/read/xml.h"

namespace annulus::client {
namespace {

// Whether to skip an element: it holds properties, deleted text or field codes, but no text to
// read.
bool IsSkipped(absl::string_view name) {
  static const auto& skipped = *new std::set<absl::string_view>{
      "del",     "moveFrom", "delText", "instrText", "delInstrText", "pPr",      "rPr",    "tblPr",
      "tblGrid", "trPr",     "tcPr",    "sectPr",    "sdtPr",        "Fallback", "fldData"};
  return skipped.count(name) > 0;
}

int NumberOf(const pugi::xml_node& property, int otherwise) {
  return LocalNumber(property, "val", otherwise);
}

// The number of cells in the first row of a table, and whether it has only that row.
bool IsBox(const pugi::xml_node& table) {
  int rows = 0, cells = 0;
  for (const pugi::xml_node& row : table.children()) {
    if (LocalName(row) != "tr") continue;
    ++rows;
    for (const pugi::xml_node& cell : row.children()) cells += LocalName(cell) == "tc" ? 1 : 0;
  }
  return rows == 1 && cells == 1;
}

}  // namespace

void DocxText::AddNotes(const pugi::xml_node& notes, absl::string_view kind) {
  for (const pugi::xml_node& note : notes.children()) {
    notes_[absl::StrCat(kind, LocalAttribute(note, "id"))] = note;
  }
}

void DocxText::AddHeader(const pugi::xml_node& part, absl::string_view kind) {
  text_.EndParagraph();
  text_.Prefix(absl::StrCat("[page ", kind, "] "));
  Descend(part);
  SetLists(0);
  text_.Prefix("");
  text_.EndParagraph();
}

std::string DocxText::Read(const pugi::xml_node& body) {
  Descend(body);
  text_.EndParagraph();
  in_note_ = true;
  // A note may cite another one and so extend `cited_`. Each is written once.
  for (size_t i = 0; i < cited_.size(); ++i) {
    text_.EndLine();
    text_.Prefix(absl::StrCat("[^", i + 1, "]: "));
    Descend(cited_[i]);
  }
  for (size_t i = 0; i < comments_.size(); ++i) {
    text_.EndLine();
    const absl::string_view author = LocalAttribute(comments_[i], "author");
    text_.Prefix(absl::StrCat("[comment ", i + 1, "] ", author, author.empty() ? "" : ": "));
    Descend(comments_[i]);
  }
  return text_.Take();
}

void DocxText::Descend(const pugi::xml_node& parent) {
  for (const pugi::xml_node& child : parent.children()) Visit(child);
}

void DocxText::Visit(const pugi::xml_node& node) {
  const absl::string_view name = LocalName(node);
  if (name == "p") {
    Paragraph(node);
  } else if (name == "r") {
    Run(node);
  } else if (name == "oMath") {
    text_.Apart(MathText(node));
  } else if (name == "tbl") {
    Table(node);
  } else if (name == "tr") {
    Row(node);
  } else if (name == "tc") {
    Cell(node);
  } else if (name == "drawing" || name == "pict" || name == "object") {
    Drawing(node);
  } else if (name == "altChunk") {
    text_.EndParagraph();
    embedded_(LocalAttribute(node, "id"), &text_);
    text_.EndParagraph();
  } else if (name == "fldSimple" && !node.first_child()) {
    text_.Apart(FieldText(LocalAttribute(node, "instr")));
  } else if (!IsSkipped(name)) {
    InRun(node, paragraph_run_);
  }
}

void DocxText::Run(const pugi::xml_node& run) {
  const DocxRunStyle style = styles_.OfRun(run, paragraph_run_);
  if (style.hidden) {
    const bool has_text = LocalChild(run, "t") || LocalChild(run, "sym");
    context_.left_out.hidden += has_text && !in_hidden_ ? 1 : 0;
    in_hidden_ = in_hidden_ || has_text;
    return;
  }
  // The mark of a note is raised, but no power.
  const bool cites = LocalChild(run, "footnoteReference") || LocalChild(run, "endnoteReference");
  const bool scripted = style.script != Script::kNone && !cites;
  if (style.struck) text_.BeginStruck();
  if (scripted) text_.BeginScript(style.script);
  for (const pugi::xml_node& child : run.children()) {
    const absl::string_view name = LocalName(child);
    if (name == "drawing" || name == "pict" || name == "object") {
      Drawing(child);
    } else if (name == "instrText") {
      if (!fields_.empty()) fields_.back() += child.child_value();
    } else if (!IsSkipped(name)) {
      InRun(child, style);
    }
  }
  if (scripted) text_.EndScript();
  if (style.struck) text_.EndStruck();
}

// What stands in a run; and in broken documents, beside one.
void DocxText::InRun(const pugi::xml_node& node, const DocxRunStyle& style) {
  const absl::string_view name = LocalName(node);
  if (name == "t") {
    in_hidden_ = false;
    if (!fields_.empty()) fields_.back().clear();
    for (const pugi::xml_node& child : node.children()) {
      const std::string text = WithoutPrivateSymbols(style.font, child.value());
      if (in_code_) {
        text_.Verbatim(text);
      } else {
        text_.Flow(text);
      }
    }
  } else if (name == "sym") {
    in_hidden_ = false;
    text_.Flow(SymbolText(LocalAttribute(node, "font"), LocalAttribute(node, "char")));
  } else if (name == "tab" || name == "ptab") {
    if (in_code_) text_.Verbatim("    ");
    text_.Flow(" ");
  } else if (name == "br" || name == "cr") {
    text_.EndLine();
  } else if (name == "noBreakHyphen") {
    text_.Flow("-");
  } else if (name == "footnoteReference" || name == "endnoteReference") {
    Cite(absl::StrCat(name.substr(0, name.find('R')), LocalAttribute(node, "id")));
  } else if (name == "commentReference") {
    Comment(std::string(LocalAttribute(node, "id")));
  } else if (name == "fldChar") {
    FieldMark(node);
  } else if (name == "ruby") {
    Ruby(node);
  } else {
    Descend(node);
  }
}

void DocxText::Ruby(const pugi::xml_node& node) {
  Descend(LocalChild(node, "rubyBase"));
  text_.Flow("(");
  Descend(LocalChild(node, "rt"));
  text_.Flow(")");
}

void DocxText::FieldMark(const pugi::xml_node& node) {
  const absl::string_view type = LocalAttribute(node, "fldCharType");
  if (type == "begin") {
    FormField(LocalChild(node, "ffData"));
    fields_.emplace_back();
  } else if (type == "end" && !fields_.empty()) {
    // Fields that show a sign or a formula of old Word have no result, but their code.
    const std::string text = FieldText(fields_.back());
    fields_.pop_back();
    text_.Apart(text);
    if (!text.empty() && !fields_.empty()) fields_.back().clear();
  }
}

void DocxText::FormField(const pugi::xml_node& data) {
  if (const pugi::xml_node box = LocalChild(data, "checkBox"); box) {
    const pugi::xml_node checked = LocalChild(box, "checked");
    text_.Apart(DocxSwitch(checked ? checked : LocalChild(box, "default")) ? kTicked : kUnticked);
  }
  const pugi::xml_node list = LocalChild(data, "ddList");
  if (!list) return;
  int left = NumberOf(LocalChild(list, "result"), NumberOf(LocalChild(list, "default"), 0));
  for (const pugi::xml_node& entry : list.children()) {
    if (LocalName(entry) == "listEntry" && left-- == 0) text_.Apart(LocalAttribute(entry, "val"));
  }
}

void DocxText::Drawing(const pugi::xml_node& node) {
  for (const pugi::xml_node& child : node.children()) {
    const absl::string_view name = LocalName(child);
    if (name == "txbxContent") {
      const DocxRunStyle outer = std::exchange(paragraph_run_, {});
      Descend(child);
      paragraph_run_ = outer;
      continue;
    }
    if (name == "Fallback") continue;
    if (name == "relIds" || name == "chart") {
      const absl::string_view id = LocalAttribute(child, name == "chart" ? "id" : "dm");
      text_.EndParagraph();
      embedded_(id, &text_);
      text_.EndParagraph();
      continue;
    }
    if (name == "docPr") {
      const absl::string_view alt = LocalAttribute(child, "descr");
      if (alt.empty()) continue;
      if (context_.options.alt) {
        text_.Flow(absl::StrCat("[picture: ", alt, "]"));
      } else {
        ++context_.left_out.alts;
      }
    }
    Drawing(child);
  }
}

void DocxText::Table(const pugi::xml_node& table) {
  SetLists(0);
  text_.EndParagraph();
  if (IsBox(table)) {
    // A frame around text.
    for (const pugi::xml_node& row : table.children()) {
      for (const pugi::xml_node& cell : row.children()) {
        if (LocalName(cell) == "tc") Descend(cell);
      }
    }
  } else {
    text_.BeginTable();
    Descend(table);
    text_.EndTable();
  }
  SetLists(0);
  text_.EndParagraph();
}

void DocxText::Row(const pugi::xml_node& row) {
  const pugi::xml_node properties = LocalChild(row, "trPr");
  if (LocalChild(properties, "del")) return;
  if (DocxSwitch(LocalChild(properties, "hidden"))) {
    ++context_.left_out.hidden;
    return;
  }
  const bool outer = std::exchange(in_header_row_, DocxSwitch(LocalChild(properties, "tblHeader")));
  text_.BeginRow();
  text_.SkipColumns(NumberOf(LocalChild(properties, "gridBefore"), 0));
  Descend(row);
  text_.EndRow();
  in_header_row_ = outer;
}

void DocxText::Cell(const pugi::xml_node& cell) {
  const pugi::xml_node properties = LocalChild(cell, "tcPr");
  const pugi::xml_node merge = LocalChild(properties, "vMerge");
  const int outer = std::exchange(lists_, 0);
  text_.BeginCell({.columns = std::max(NumberOf(LocalChild(properties, "gridSpan"), 1), 1),
                   .header = in_header_row_,
                   .continues = merge && LocalAttribute(merge, "val") != "restart"});
  Descend(cell);
  SetLists(0);
  text_.EndCell();
  lists_ = outer;
}

void DocxText::Paragraph(const pugi::xml_node& node) {
  DocxStyle style = styles_.OfParagraph(node);
  const DocxRunStyle outer = std::exchange(paragraph_run_, style.run);
  DocxParagraphStyle paragraph = in_note_ ? DocxParagraphStyle{} : style.paragraph;
  const std::string mark =
      paragraph.list.empty() ? kBulletMark : numbering_.Next(paragraph.list, paragraph.level);
  if (paragraph.item) {
    SetLists(std::clamp(paragraph.level, 0, 8) + 1);
    text_.BeginItem(mark);
    Descend(node);
    text_.Prefix("");
    text_.EndLine();
    paragraph_run_ = outer;
    return;
  }
  SetLists(0);
  if (paragraph.heading > 0) {
    text_.EndParagraph();
    text_.Prefix(absl::StrCat(std::string(static_cast<size_t>(paragraph.heading), '#'), " ",
                              mark == kBulletMark ? "" : mark));
  }
  const bool outer_code = std::exchange(in_code_, paragraph.code);
  Descend(node);
  in_code_ = outer_code;
  if (paragraph.heading > 0) text_.Prefix("");
  if (in_note_ || paragraph.code) {
    text_.EndLine();
  } else {
    text_.EndParagraph();
  }
  paragraph_run_ = outer;
}

void DocxText::SetLists(int depth) {
  for (; lists_ < depth; ++lists_) text_.BeginList();
  for (; lists_ > depth; --lists_) text_.EndList();
}

void DocxText::Cite(const std::string& key) {
  const auto note = notes_.find(key);
  if (note == notes_.end()) return;
  const auto [at, is_new] = numbers_.emplace(key, cited_.size() + 1);
  if (is_new) cited_.push_back(note->second);
  text_.Flow(absl::StrCat("[^", at->second, "]"));
}

void DocxText::Comment(const std::string& id) {
  const auto comment = notes_.find(absl::StrCat("comment", id));
  if (comment == notes_.end()) return;
  if (!context_.options.comments) {
    ++context_.left_out.comments;
    return;
  }
  const auto [at, is_new] = numbers_.emplace(comment->first, comments_.size() + 1);
  if (is_new) comments_.push_back(comment->second);
  text_.Flow(absl::StrCat(" [comment ", at->second, "]"));
}

}  // namespace annulus::client
