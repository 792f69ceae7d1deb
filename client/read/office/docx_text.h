#ifndef ANNULUS_CLIENT_READ_OFFICE_DOCX_TEXT_H_
#define ANNULUS_CLIENT_READ_OFFICE_DOCX_TEXT_H_

#include <functional>
#include <map>
#include <pugixml.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/read/context.h"
#include "client/read/office/docx_styles.h"
#include "client/read/office/list_marks.h"
#include "client/read/text_builder.h"

namespace annulus::client {

using EmbeddedPart = std::function<void(absl::string_view id, TextBuilder* text)>;

// Writes the text of a docx. The parts that it is given must outlive it.
class DocxText {
 public:
  // The document elements of the parts for styles and numbering; null if the document has none.
  // `embedded` writes the diagram, chart or document with that relationship's id.
  DocxText(const pugi::xml_node& styles, const pugi::xml_node& numbering, ReadContext& context,
           EmbeddedPart embedded)
      : styles_(styles), numbering_(numbering), context_(context), embedded_(std::move(embedded)) {}

  // Registers the notes of one kind ("footnote", "endnote" or "comment") under their ids.
  void AddNotes(const pugi::xml_node& notes, absl::string_view kind);
  // Adds a header or footer of pages above the body, if it has text.
  void AddHeader(const pugi::xml_node& part, absl::string_view kind);

  std::string Read(const pugi::xml_node& body);

 private:
  void Descend(const pugi::xml_node& parent);
  void Visit(const pugi::xml_node& node);
  void Run(const pugi::xml_node& run);
  void InRun(const pugi::xml_node& node, const DocxRunStyle& style);
  void Table(const pugi::xml_node& table);
  void Row(const pugi::xml_node& row);
  void Cell(const pugi::xml_node& cell);
  void Paragraph(const pugi::xml_node& node);
  void SetLists(int depth);
  void Cite(const std::string& key);
  void Comment(const std::string& id);
  void Ruby(const pugi::xml_node& node);
  // The beginning, middle or end of a field; its code stands between the first two, and what it
  // shows between the last two.
  void FieldMark(const pugi::xml_node& node);
  void FormField(const pugi::xml_node& data);
  // Reads the text boxes of a drawing, and the descriptions of its pictures.
  void Drawing(const pugi::xml_node& node);

  const DocxStyles styles_;
  DocxNumbering numbering_;
  ReadContext& context_;
  const EmbeddedPart embedded_;
  TextBuilder text_;
  std::map<std::string, pugi::xml_node> notes_;
  std::map<std::string, size_t> numbers_;  // of cited notes, from 1 in the order of citation
  std::vector<pugi::xml_node> cited_;
  std::vector<pugi::xml_node> comments_;  // in the order of the text
  DocxRunStyle paragraph_run_;            // of the open paragraph
  std::vector<std::string> fields_;       // codes of the open ones; empty once they show something
  int lists_ = 0;
  bool in_note_ = false;
  bool in_code_ = false;
  bool in_header_row_ = false;
  bool in_hidden_ = false;  // the last text was hidden
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_OFFICE_DOCX_TEXT_H_
