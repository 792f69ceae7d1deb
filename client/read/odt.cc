#include "client/read/odt.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/read/list_marks.h"
#include "client/read/text_builder.h"
#include "client/read/xml.h"

namespace annulus::client {
namespace {

class OdtText {
 public:
  // `part` is the document element of content.xml or styles.xml.
  void AddStyles(const pugi::xml_node& part) { numbering_.AddStyles(part); }

  std::string Read(const pugi::xml_node& body) {
    Descend(body);
    text_.EndParagraph();
    in_note_ = true;
    for (size_t i = 0; i < notes_.size(); ++i) {
      text_.EndLine();
      text_.Prefix(absl::StrCat("[^", i + 1, "]: "));
      Descend(notes_[i]);
    }
    return text_.Take();
  }

 private:
  void Descend(const pugi::xml_node& parent) {
    for (const pugi::xml_node& child : parent.children()) Visit(child);
  }

  void Visit(const pugi::xml_node& node) {
    if (node.type() == pugi::node_pcdata || node.type() == pugi::node_cdata) {
      if (in_paragraph_) text_.Flow(node.value());
      return;
    }
    const absl::string_view name = LocalName(node);
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
    } else if (name == "table") {
      text_.EndParagraph();
      Descend(node);
      text_.EndParagraph();
    } else if (name == "table-row") {
      text_.BeginRow();
      Descend(node);
      text_.EndRow();
    } else if (name == "table-cell" || name == "covered-table-cell") {
      text_.BeginCell();
      Descend(node);
    } else if (name == "s" || name == "tab") {
      text_.Flow(" ");
    } else if (name == "line-break") {
      text_.EndLine();
    } else if (name == "note") {
      notes_.push_back(LocalChild(node, "note-body"));
      text_.Flow(absl::StrCat("[^", notes_.size(), "]"));
    } else if (name != "tracked-changes" && name != "annotation" && name != "sequence-decls" &&
               name != "forms" && name != "desc" && name != "title") {
      Descend(node);
    }
  }

  void Heading(const pugi::xml_node& node) {
    int level = 1;
    if (!absl::SimpleAtoi(LocalAttribute(node, "outline-level"), &level)) level = 1;
    text_.EndParagraph();
    text_.Prefix(absl::StrCat(std::string(static_cast<size_t>(std::clamp(level, 1, 6)), '#'), " "));
    Line(node);
    text_.Prefix("");
    text_.EndParagraph();
  }

  void Paragraph(const pugi::xml_node& node) {
    const absl::string_view style = LocalAttribute(node, "style-name");
    if (style == "Title") text_.Prefix("# ");
    Line(node);
    if (style == "Title") text_.Prefix("");
    if (items_ > 0 || in_note_) {
      text_.EndLine();
    } else {
      text_.EndParagraph();
    }
  }

  // Reads the text of a paragraph or a heading. It may contain further ones, inside frames.
  void Line(const pugi::xml_node& node) {
    const bool before = in_paragraph_;
    in_paragraph_ = true;
    Descend(node);
    in_paragraph_ = before;
  }

  OdtNumbering numbering_;
  TextBuilder text_;
  std::vector<pugi::xml_node> notes_;  // in the order of the text
  int items_ = 0;                      // number of open list items
  bool in_paragraph_ = false;
  bool in_note_ = false;
};

}  // namespace

absl::StatusOr<std::string> ReadOdt(absl::string_view what, const ZipArchive& archive,
                                    ReadBudget& budget) {
  // In an encrypted document the archive itself is not encrypted, only its parts are.
  if (archive.Find("META-INF/manifest.xml").has_value()) {
    const absl::StatusOr<std::string> manifest = archive.Read("META-INF/manifest.xml", budget);
    if (!manifest.ok()) return manifest.status();
    if (absl::StrContains(*manifest, "encryption-data")) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " is encrypted; save it without a password first"));
    }
  }
  const absl::StatusOr<std::string> text = archive.Read("content.xml", budget);
  if (!text.ok()) return text.status();
  const auto content = ParseXml(what, *text, budget);
  if (!content.ok()) return content.status();
  OdtText reader;
  if (archive.Find("styles.xml").has_value()) {
    const absl::StatusOr<std::string> styles_text = archive.Read("styles.xml", budget);
    if (!styles_text.ok()) return styles_text.status();
    const auto styles = ParseXml(what, *styles_text, budget);
    if (!styles.ok()) return styles.status();
    reader.AddStyles((*styles)->document_element());
  }
  reader.AddStyles((*content)->document_element());
  return reader.Read(LocalChild((*content)->document_element(), "body"));
}

}  // namespace annulus::client
