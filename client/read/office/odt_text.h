#ifndef ANNULUS_CLIENT_READ_OFFICE_ODT_TEXT_H_
#define ANNULUS_CLIENT_READ_OFFICE_ODT_TEXT_H_

#include <functional>
#include <map>
#include <memory>
#include <pugixml.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/read/context.h"
#include "client/read/office/list_marks.h"
#include "client/read/office/odt_styles.h"
#include "client/read/text_builder.h"

namespace annulus::client {

// Writes the text of an odt. The parts that it is given must outlive it.
class OdtText {
 public:
  using ObjectReader =
      std::function<std::unique_ptr<pugi::xml_document>(absl::string_view reference)>;

  // `object` returns the content of an embedded object; null if it cannot be read.
  OdtText(ReadContext& context, ObjectReader object)
      : context_(context), object_(std::move(object)) {}

  // `part` is the document element of content.xml or styles.xml.
  void AddStyles(const pugi::xml_node& part);
  // Adds the headers and footers of pages in styles.xml, or counts them.
  void AddHeaders(const pugi::xml_node& part);

  std::string Read(const pugi::xml_node& body);

 private:
  void Descend(const pugi::xml_node& parent);
  void Visit(const pugi::xml_node& node);
  bool VisitTable(const pugi::xml_node& node, absl::string_view name);
  bool VisitInline(const pugi::xml_node& node, absl::string_view name);
  void Text(absl::string_view text);
  void Span(const pugi::xml_node& node);
  void Heading(const pugi::xml_node& node);
  void Paragraph(const pugi::xml_node& node);
  void Line(const pugi::xml_node& node);
  void Row(const pugi::xml_node& node);
  void Annotation(const pugi::xml_node& node);
  void Description(const pugi::xml_node& node);
  void Control(const pugi::xml_node& node);
  void Object(absl::string_view reference);
  void FindControls(const pugi::xml_node& body);
  void Hide(const pugi::xml_node& node);
  bool IsHidden(const pugi::xml_node& node, absl::string_view name) const;

  ReadContext& context_;
  const ObjectReader object_;
  OdtStyles styles_;
  OdtNumbering numbering_;
  TextBuilder text_;
  std::vector<std::unique_ptr<pugi::xml_document>> charts_;  // notes may refer to them
  std::vector<pugi::xml_node> notes_;                        // in the order of the text
  std::vector<pugi::xml_node> comments_;                     // in the order of the text
  std::map<std::string, pugi::xml_node> controls_;           // of forms, by id
  OdtStyle style_;                                           // of the text that is read
  int items_ = 0;                                            // number of open list items
  int header_rows_ = 0;                                      // open groups of header rows
  int repeats_left_ = 10000;                                 // rows that stand for several
  bool in_paragraph_ = false;
  bool in_note_ = false;
  bool in_chart_ = false;
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_OFFICE_ODT_TEXT_H_
