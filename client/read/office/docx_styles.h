#ifndef ANNULUS_CLIENT_READ_OFFICE_DOCX_STYLES_H_
#define ANNULUS_CLIENT_READ_OFFICE_DOCX_STYLES_H_

#include <map>
#include <pugixml.hpp>
#include <string>

#include "client/read/text_builder.h"

namespace annulus::client {

// The properties of a paragraph that matter for plain text.
struct DocxParagraphStyle {
  int heading = 0;  // 1 to 6; 0: none
  bool item = false;
  bool code = false;  // blanks and lines are kept
  std::string list;   // id of a list in the numbering part; empty: none
  int level = 0;
};

// The properties of a run of letters that matter for plain text.
struct DocxRunStyle {
  Script script = Script::kNone;
  bool hidden = false;
  bool struck = false;
  std::string font;
};

struct DocxStyle {
  DocxParagraphStyle paragraph;
  DocxRunStyle run;
};

// The styles of a docx, each with what it inherits.
class DocxStyles {
 public:
  // `root` is the document element of the styles part, or null.
  explicit DocxStyles(const pugi::xml_node& root);

  // The style of a paragraph (`p`), of its own properties and those of its named style.
  DocxStyle OfParagraph(const pugi::xml_node& paragraph) const;
  // The style of a run (`r`) in a paragraph of that style.
  DocxRunStyle OfRun(const pugi::xml_node& run, const DocxRunStyle& paragraph) const;

 private:
  std::map<std::string, DocxStyle> styles_;  // by id
};

// Whether a property that is a switch ("vanish") is on: present, and not "0" or "false".
bool DocxSwitch(const pugi::xml_node& property);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_OFFICE_DOCX_STYLES_H_
