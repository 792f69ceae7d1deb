#include "client/read/docx.h"

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/read/list_marks.h"
#include "client/read/text_builder.h"
#include "client/read/xml.h"

namespace annulus::client {
namespace {

constexpr char kMainPart[] = "word/document.xml";

using XmlPart = std::unique_ptr<pugi::xml_document>;

// The properties of a paragraph style that matter for plain text.
struct Style {
  int heading = 0;  // 1 to 6; 0: none
  bool item = false;
  std::string list;  // id of a list in numbering.xml; empty: none
  int level = 0;
};

// Takes the list from the properties of a style or of a paragraph, if they name one.
void ReadList(const pugi::xml_node& properties, Style* style) {
  const pugi::xml_node numbering = LocalChild(properties, "numPr");
  const absl::string_view list = LocalAttribute(LocalChild(numbering, "numId"), "val");
  if (list.empty()) return;
  style->list = list == "0" ? "" : std::string(list);  // 0 cancels the list of the style
  style->item = style->heading == 0 && list != "0";
  if (!absl::SimpleAtoi(LocalAttribute(LocalChild(numbering, "ilvl"), "val"), &style->level)) {
    style->level = 0;
  }
}

Style StyleOf(const pugi::xml_node& style) {
  const std::string name = absl::AsciiStrToLower(LocalAttribute(LocalChild(style, "name"), "val"));
  Style result;
  int level = 0;
  absl::string_view rest = name;
  if (name == "title") {
    result.heading = 1;
  } else if (absl::ConsumePrefix(&rest, "heading ") && absl::SimpleAtoi(rest, &level)) {
    result.heading = std::clamp(level, 1, 6);
  }
  result.item = absl::StartsWith(name, "list bullet") || absl::StartsWith(name, "list number");
  const bool item = result.item;
  ReadList(LocalChild(style, "pPr"), &result);
  result.item = item || result.item;
  return result;
}

// Whether to skip an element: it holds properties, deleted text or field codes, but no text to
// read.
bool IsSkipped(absl::string_view name) {
  static const auto& skipped = *new std::set<absl::string_view>{
      "del",   "moveFrom", "delText", "instrText", "delInstrText", "pPr",
      "rPr",   "tblPr",    "tblGrid", "trPr",      "tcPr",         "sectPr",
      "sdtPr", "Fallback", "drawing", "fldData"};
  return skipped.count(name) > 0;
}

class DocxText {
 public:
  // `numbering` is the document element of numbering.xml, or null if the document has none.
  DocxText(std::map<std::string, Style> styles, const pugi::xml_node& numbering)
      : styles_(std::move(styles)), numbering_(numbering) {}

  // Registers the notes of one kind ("footnote" or "endnote") under their ids.
  void AddNotes(const pugi::xml_node& notes, absl::string_view kind) {
    for (const pugi::xml_node& note : notes.children()) {
      notes_[absl::StrCat(kind, LocalAttribute(note, "id"))] = note;
    }
  }

  std::string Read(const pugi::xml_node& body) {
    Descend(body);
    text_.EndParagraph();
    // A note may cite another one and so extend `cited_`. Each is written once.
    for (size_t i = 0; i < cited_.size(); ++i) {
      text_.EndLine();
      text_.Prefix(absl::StrCat("[^", i + 1, "]: "));
      in_note_ = true;
      Descend(cited_[i]);
    }
    return text_.Take();
  }

 private:
  void Descend(const pugi::xml_node& parent) {
    for (const pugi::xml_node& child : parent.children()) Visit(child);
  }

  void Visit(const pugi::xml_node& node) {
    const absl::string_view name = LocalName(node);
    if (name == "t") {
      for (const pugi::xml_node& child : node.children()) text_.Flow(child.value());
    } else if (name == "p") {
      Paragraph(node);
    } else if (name == "tbl") {
      text_.EndParagraph();
      Descend(node);
      text_.EndParagraph();
    } else if (name == "tr") {
      text_.BeginRow();
      Descend(node);
      text_.EndRow();
    } else if (name == "tc") {
      text_.BeginCell();
      Descend(node);
    } else if (name == "tab") {
      text_.Flow(" ");
    } else if (name == "br" || name == "cr") {
      text_.EndLine();
    } else if (name == "noBreakHyphen") {
      text_.Flow("-");
    } else if (name == "footnoteReference" || name == "endnoteReference") {
      Cite(absl::StrCat(name.substr(0, name.find('R')), LocalAttribute(node, "id")));
    } else if (name == "drawing") {
      Boxes(node);
    } else if (!IsSkipped(name)) {
      Descend(node);
    }
  }

  // Reads only the text boxes of a drawing.
  void Boxes(const pugi::xml_node& node) {
    for (const pugi::xml_node& child : node.children()) {
      if (LocalName(child) == "txbxContent") {
        Descend(child);
      } else {
        Boxes(child);
      }
    }
  }

  void Paragraph(const pugi::xml_node& node) {
    const pugi::xml_node properties = LocalChild(node, "pPr");
    const std::string id(LocalAttribute(LocalChild(properties, "pStyle"), "val"));
    const auto found = styles_.find(id);
    Style style = found == styles_.end() ? Style{} : found->second;
    ReadList(properties, &style);
    if (in_note_) style = {};
    const std::string mark =
        style.list.empty() ? kBulletMark : numbering_.Next(style.list, style.level);
    if (style.item) {
      SetLists(std::clamp(style.level, 0, 8) + 1);
      text_.BeginItem(mark);
      Descend(node);
      text_.Prefix("");
      text_.EndLine();
      return;
    }
    SetLists(0);
    if (style.heading > 0) {
      text_.EndParagraph();
      text_.Prefix(absl::StrCat(std::string(static_cast<size_t>(style.heading), '#'), " ",
                                mark == kBulletMark ? "" : mark));
    }
    Descend(node);
    if (style.heading > 0) text_.Prefix("");
    if (in_note_) {
      text_.EndLine();
    } else {
      text_.EndParagraph();
    }
  }

  void SetLists(int depth) {
    for (; lists_ < depth; ++lists_) text_.BeginList();
    for (; lists_ > depth; --lists_) text_.EndList();
  }

  void Cite(const std::string& key) {
    const auto note = notes_.find(key);
    if (note == notes_.end()) return;
    const auto [at, is_new] = numbers_.emplace(key, cited_.size() + 1);
    if (is_new) cited_.push_back(note->second);
    text_.Flow(absl::StrCat("[^", at->second, "]"));
  }

  const std::map<std::string, Style> styles_;
  DocxNumbering numbering_;
  TextBuilder text_;
  std::map<std::string, pugi::xml_node> notes_;
  std::map<std::string, size_t> numbers_;  // of cited notes, from 1 in the order of citation
  std::vector<pugi::xml_node> cited_;
  int lists_ = 0;
  bool in_note_ = false;
};

// Parses a part of the document. Null if the document does not have it.
absl::StatusOr<XmlPart> OptionalPart(absl::string_view what, const ZipArchive& archive,
                                     const std::string& name, ReadBudget& budget) {
  if (!archive.Find(name).has_value()) return nullptr;
  const absl::StatusOr<std::string> text = archive.Read(name, budget);
  if (!text.ok()) return text.status();
  return ParseXml(what, *text, budget);
}

}  // namespace

bool IsDocx(const ZipArchive& archive) { return archive.Find(kMainPart).has_value(); }

absl::StatusOr<std::string> ReadDocx(absl::string_view what, const ZipArchive& archive,
                                     ReadBudget& budget) {
  const absl::StatusOr<XmlPart> main = OptionalPart(what, archive, kMainPart, budget);
  if (!main.ok()) return main.status();
  if (*main == nullptr) return archive.Read(kMainPart, budget).status();
  const absl::StatusOr<XmlPart> styles = OptionalPart(what, archive, "word/styles.xml", budget);
  if (!styles.ok()) return styles.status();
  std::map<std::string, Style> style_of;
  if (*styles != nullptr) {
    for (const pugi::xml_node& style : (*styles)->document_element().children()) {
      if (LocalName(style) != "style") continue;
      style_of[std::string(LocalAttribute(style, "styleId"))] = StyleOf(style);
    }
  }
  const absl::StatusOr<XmlPart> numbering =
      OptionalPart(what, archive, "word/numbering.xml", budget);
  if (!numbering.ok()) return numbering.status();
  DocxText text(std::move(style_of),
                *numbering == nullptr ? pugi::xml_node() : (*numbering)->document_element());
  std::vector<XmlPart> notes;  // owns the trees that `text` refers to
  for (const absl::string_view kind : {"footnote", "endnote"}) {
    absl::StatusOr<XmlPart> part =
        OptionalPart(what, archive, absl::StrCat("word/", kind, "s.xml"), budget);
    if (!part.ok()) return part.status();
    if (*part == nullptr) continue;
    text.AddNotes((*part)->document_element(), kind);
    notes.push_back(*std::move(part));
  }
  return text.Read((*main)->document_element());
}

}  // namespace annulus::client
